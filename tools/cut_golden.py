"""Cuts the golden data directory of a format version: `python -m tools.cut_golden`. Once per version, never again.

What `tests/golden/format_<version>/` holds must be readable for ever; a test opens it. It has seen a kill (two epochs),
rolled segments, an idempotent writer, gzip, keys, headers, tombstones, cursors and a deleted stream.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

from bench.raw_client import Raw, codec
from headwater.batch import BatchRecord, Codec, encode
from headwater.config import FORMAT_VERSION
from tests.golden.reading import GROUP, facts

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / f"format_{FORMAT_VERSION}"
BORN_MS = 1_700_000_000_000  # records' own times, so that lookups by time have an answer
SEGMENT_BYTES = 2_000


def main() -> int:
    if GOLDEN.exists():
        print(f"{GOLDEN} is there: what was cut stays as it is, for ever", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        with _Broker(data) as broker:
            producer = _first_life(broker.address)
            broker.kill()
        with _Broker(data) as broker:
            _second_life(broker.address, producer)
            expected = {**facts(broker.address), "producer": producer}
        GOLDEN.mkdir(parents=True)
        shutil.copytree(
            data, GOLDEN / "data", ignore=shutil.ignore_patterns("lock", "clients", "address", "meta.reserve")
        )
    (GOLDEN / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(f"cut {GOLDEN}: {sum(one.stat().st_size for one in GOLDEN.rglob('*') if one.is_file()):,} bytes")
    return 0


class _Broker:
    def __init__(self, data: Path) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "headwater",
                "up",
                "--port",
                "0",
                "--data",
                str(data),
                "--segment-bytes",
                str(SEGMENT_BYTES),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().split()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _first_life(address: str) -> dict[str, int]:
    with Raw(address) as raw:
        for name, partitions, config in (("orders", 2, {}), ("ledger", 1, {"flush.messages": "1"}), ("gone", 1, {})):
            _create(raw, name, partitions, config)
            _publish(raw, name, 0, _records(name, 0, 3))
        answer = raw.ask("init_producer_id", 4, transactional_id=None, transaction_timeout_ms=60_000)
        producer = {"id": answer.producer_id, "epoch": answer.producer_epoch, "sequence": 0}
        for number in range(12):
            _publish(raw, "orders", 1, _records("orders", number * 5, 5), gzip=number % 2 == 1, producer=producer)
        raw.ask("delete_topics", 5, topic_names=["gone"], timeout_ms=10_000)
        _commit(raw, "orders", 1, 17, "half-way")
    return producer


def _second_life(address: str, producer: dict[str, int]) -> None:
    with Raw(address) as raw:
        for number in range(3):
            _publish(raw, "orders", 1, _records("orders", 100 + number * 4, 4), producer=producer)
        _publish(raw, "ledger", 0, _records("ledger", 3, 2))
        _commit(raw, "ledger", 0, 4, "")


def _create(raw: Raw, name: str, partitions: int, config: dict[str, str]) -> None:
    module = codec("create_topics")
    configs = [module.CreatableTopicConfig(name=key, value=value) for key, value in config.items()]
    topic = module.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    assert raw.ask("create_topics", 7, topics=[topic]).topics[0].error_code == 0


def _records(name: str, first: int, count: int) -> list[BatchRecord]:
    """Every third has no value, every fourth no key, every second a header."""
    return [
        BatchRecord(
            offset=number - first,
            timestamp_ms=BORN_MS + number * 1000,
            key=None if number % 4 == 3 else f"key-{number % 7}".encode(),
            value=None if number % 3 == 2 else f"{name} {number} ".encode() * 12,
            headers=(("n", str(number).encode()), ("empty", None)) if number % 2 else (),
        )
        for number in range(first, first + count)
    ]


def _publish(
    raw: Raw,
    name: str,
    partition: int,
    records: list[BatchRecord],
    *,
    gzip: bool = False,
    producer: dict[str, int] | None = None,
) -> None:
    options: dict[str, Any] = {"codec": Codec.GZIP if gzip else Codec.NONE}
    if producer is not None:
        options |= {
            "producer_id": producer["id"],
            "producer_epoch": producer["epoch"],
            "base_sequence": producer["sequence"],
        }
        producer["sequence"] += len(records)
    module = codec("produce")
    part = module.PartitionProduceData(index=partition, records=memoryview(encode(records, **options)))
    topic = module.TopicProduceData(name=name, partition_data=[part])
    answer = raw.ask("produce", 9, acks=-1, timeout_ms=10_000, topic_data=[topic])
    assert answer.responses[0].partition_responses[0].error_code == 0


def _commit(raw: Raw, name: str, partition: int, offset: int, metadata: str) -> None:
    module = codec("offset_commit")
    part = module.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=0, committed_metadata=metadata
    )
    topic = module.OffsetCommitRequestTopic(name=name, partitions=[part])
    answer = raw.ask("offset_commit", 8, group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    assert answer.topics[0].partitions[0].error_code == 0


if __name__ == "__main__":
    sys.exit(main())
