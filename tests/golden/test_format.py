"""Data directories of released format versions open, for ever, and say what they said when they were cut."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.raw_client import Raw, codec
from headwater import testing
from headwater.batch import BatchRecord, encode
from headwater.model import PartitionIndex
from tests.golden.reading import facts

VERSIONS = sorted(Path(__file__).parent.glob("format_*"))


@pytest.fixture(params=VERSIONS, ids=lambda one: one.name)
def golden(request, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A copy of the directory, and what it says."""
    shutil.copytree(request.param / "data", tmp_path / "data")
    return tmp_path / "data", json.loads((request.param / "expected.json").read_text())


def test_there_is_a_golden_directory_of_each_version() -> None:
    """Version 1 was cut; a later version adds one."""
    assert [one.name for one in VERSIONS][:1] == ["format_1"]


def test_it_says_what_it_said(golden) -> None:
    """Streams, ids, records, epochs and cursors are those of the day it was cut."""
    data, expected = golden
    with testing.broker(data=str(data)) as server:
        found = facts(server.address)
        assert found == {name: expected[name] for name in found}
        _check(server)


def test_its_caches_can_be_lost(golden) -> None:
    """Without indexes, time indexes and checkpoints the answers are the same."""
    data, expected = golden
    lost = [one for kind in ("index", "time", "checkpoint") for one in data.rglob(f"*.{kind}")]
    assert len(lost) > 10
    for one in lost:
        one.unlink()
    with testing.broker(data=str(data)) as server:
        found = facts(server.address)
        assert found == {name: expected[name] for name in found}
        _check(server)


def test_it_goes_on_from_there(golden) -> None:
    """The writer of that day is known: what it sends twice is not written twice, and what follows is appended."""
    data, expected = golden
    producer, last = expected["producer"], expected["streams"]["orders"]["partitions"]["1"][-1]["offset"]
    with testing.broker(data=str(data)) as server, Raw(server.address) as raw:
        assert _publish(raw, producer, producer["sequence"] - 4, 4) == last - 3
        assert _publish(raw, producer, producer["sequence"], 1) == last + 1
        _check(server)


def _publish(raw: Raw, producer: dict[str, int], sequence: int, count: int) -> int:
    """The base offset that the batch got."""
    batch = encode(
        [BatchRecord(offset=at, timestamp_ms=0, key=None, value=b"x", headers=()) for at in range(count)],
        producer_id=producer["id"],
        producer_epoch=producer["epoch"],
        base_sequence=sequence,
    )
    module = codec("produce")
    part = module.PartitionProduceData(index=1, records=memoryview(batch))
    topic = module.TopicProduceData(name="orders", partition_data=[part])
    answer = raw.ask("produce", 9, acks=-1, timeout_ms=10_000, topic_data=[topic])
    got = answer.responses[0].partition_responses[0]
    assert got.error_code == 0
    return int(got.base_offset)


def _check(server: Any) -> None:
    for entry in server.store.streams():
        for index in range(entry.partitions):
            assert server.store.partition((entry.id, PartitionIndex(index))).check() == []
