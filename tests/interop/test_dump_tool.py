"""A log of ours is Kafka's: its own tool reads each segment, and finds what we say is in it.

It takes the offset from the file's name, so each segment is linked under the name that Kafka would give it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bench.raw_client import Raw
from headwater import testing
from tests.sdk.live import ROOT
from tests.unit.broker.conftest import create

RECORDS = 3000
HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater-peers"


def publish(address: str, codec: str, partition: int) -> None:
    producer = Producer({
        "bootstrap.servers": address, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5,
        "batch.num.messages": 100,
    })  # fmt: skip
    for number in range(RECORDS):
        headers: list[tuple[str, str | bytes | None]] = [("n", str(number).encode())]
        producer.produce("dumped", os.urandom(400) * 2, f"k{number}", partition, headers=headers)
        producer.poll(0)
    assert producer.flush(30) == 0


def test_kafkas_dump_tool_reads_every_segment_of_ours(tmp_path: Path):
    """Every codec, idempotent writers, segments that follow each other: every record, at its offset, all valid."""
    if not any(HOME.glob("kafka-*")):
        pytest.skip("Apache Kafka is not installed: tools/kafka install")
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    links: dict[str, list[tuple[int, Path]]] = {}
    with testing.broker(data=str(tmp_path / "data")) as server:
        with Raw(server.address) as raw:
            create(raw, "dumped", partitions=len(codecs), segment_bytes=str(1024**2))
        for partition, codec in enumerate(codecs):
            publish(server.address, codec, partition)
    for log in (tmp_path / "data").rglob("*.log"):
        match = re.fullmatch(r"(\d+)-(\d{20})\.log", log.name)
        if match is None:
            continue  # the broker's own log
        directory = tmp_path / "links" / match[1]
        directory.mkdir(parents=True, exist_ok=True)
        os.link(log, directory / f"{match[2]}.log")
        links.setdefault(match[1], []).append((int(match[2]), directory / f"{match[2]}.log"))
    assert len(links) == len(codecs)
    assert all(len(segments) > 1 for segments in links.values())
    for index, segments in links.items():
        files = ",".join(str(path) for _, path in sorted(segments))
        command = [
            sys.executable,
            str(ROOT / "tools/kafka"),
            "tool",
            "DumpLogSegments",
            "--print-data-log",
            "--files",
            files,
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        offsets = [int(one) for one in re.findall(r"^\| offset: (\d+) ", said, re.MULTILINE)]
        assert offsets == list(range(RECORDS))
        assert re.findall(r" key: (\S+) ", said) == [f"k{number}" for number in range(RECORDS)]
        assert set(re.findall(r"isvalid: (\w+)", said)) == {"true"}
        assert set(re.findall(r"compresscodec: (\w+)", said)) == {codecs[int(index)]}
        assert "Found" not in said, said[-500:]  # what it says of bytes it could not read
