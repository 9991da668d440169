"""A broker and its disk: full, torn at the end, rotted inside, without indexes. What was acked is there or named as lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from bench.raw_client import Raw, batch_of, codec
from headwater.errors import StorageFailed
from tests.crash.acked import (
    DURABILITY,
    PARTITIONS,
    SECONDS,
    SEGMENTS,
    STREAM,
    Killable,
    Reader,
    Writer,
    create,
    judge,
    logs,
    partitions_of,
    tear_the_ends,
    until,
    values_of,
)
from tests.unit.broker.conftest import fetch, produce, values_of as values_in

DISK_MIB = 12
BLOCK = bytes(500_000)
CODE = StorageFailed.code
NO_DISK = 77
MOUNT = (
    f'disk="$1"; copy="$2"; shift 2; mount -t tmpfs -o size={DISK_MIB}m none "$disk" || exit {NO_DISK}; '
    '"$@"; "$@"; code=$?; cp -r "$disk/data" "$copy"; exit $code'
)


def write(writer: Writer, count: int) -> None:
    writer.start()
    writer.until_acked(count)
    writer.finish()


# --- the end is torn -----------------------------------------------------------------------------


@pytest.mark.parametrize("durability", DURABILITY)
def test_a_torn_tail_is_cut_and_reported_and_the_writer_goes_on(broker: Killable, durability: str) -> None:
    """Half of a batch lies behind the last one that was acked; the same idempotent writer goes on after it."""
    create(broker.address, STREAM, DURABILITY[durability] | SEGMENTS)
    writer, reader = Writer(broker.address), Reader(broker.address)
    writer.start()
    reader.start()
    writer.until_acked(1500)
    broker.kill()
    tear_the_ends(broker)
    broker.start()
    writer.until_acked(writer.acked_count + 500)
    writer.finish()
    for partition in range(PARTITIONS):
        assert f"stream {STREAM}, partition {partition}: its end was damaged" in broker.said()
    judge(broker, writer, reader)


# --- a sealed segment rots -----------------------------------------------------------------------


def test_rot_in_a_sealed_segment_is_an_error_of_its_partition_alone(broker: Killable) -> None:
    """Reads before it and behind it go on, and so do writes; the other partition is served whole."""
    create(broker.address, STREAM, SEGMENTS)
    writer = Writer(broker.address)
    write(writer, 5000)
    broker.stop()
    sealed = logs(broker, 0)[1]
    with sealed.open("r+b") as file:
        file.seek(sealed.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    broker.start()
    with Raw(broker.address) as raw:
        assert whole(raw, 1) == [b"%d" % number for number in range(len(writer.acked[1]))]
        found = whole(raw, 0, stop_at=CODE)
        assert found == [b"%d" % number for number in range(len(found))]
        assert int(sealed.name[2:22]) <= len(found) < int(logs(broker, 0)[2].name[2:22])
        behind = int(logs(broker, 0)[2].name[2:22])
        assert values_in(fetch(raw, STREAM, behind))[0].split()[0] == b"%d" % behind
        assert produce(raw, STREAM, batch_of([b"more"])).error_code == 0


def whole(raw: Raw, partition: int, *, stop_at: int = 0) -> list[bytes]:
    """The first word of each record from the start, to the end or to the first answer with that error."""
    found: list[bytes] = []
    while True:
        answer = fetch(raw, STREAM, len(found), partition=partition)
        if answer.error_code:
            assert answer.error_code == stop_at
            return found
        assert answer.high_watermark >= len(found)
        if answer.high_watermark == len(found):
            return found
        skip = len(found) - _base_offset(answer)
        found += [value.split()[0] for value in values_in(answer)[skip:]]


def _base_offset(answer: Any) -> int:
    return int.from_bytes(bytes(answer.records[:8]), "big")


# --- indexes are caches --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deleted", "emptied", "flipped"])
def test_without_its_indexes_a_log_gives_the_same_answers(broker: Killable, how: str) -> None:
    """Of offsets, of times and of epochs; after a clean stop as after a kill."""
    create(broker.address, STREAM, SEGMENTS)
    write(Writer(broker.address), 3000)
    broker.kill()
    broker.start()
    write(Writer(broker.address), 3000)
    broker.stop()
    broker.start()
    before = answers(broker.address)
    broker.stop()
    for name in ("index", "time", "producers"):
        for path in broker.data.glob(f"streams/*/*/*.{name}"):
            if how == "deleted":
                path.unlink()
            else:
                path.write_bytes(b"" if how == "emptied" else bytes(byte ^ 0x10 for byte in path.read_bytes()))
    broker.start()
    assert answers(broker.address) == before
    broker.stop()
    assert [len(values_of(one)) > 0 for one in partitions_of(broker.data, STREAM)] == [True] * PARTITIONS


def answers(address: str) -> list[Any]:
    found: list[Any] = []
    with Raw(address) as raw:
        for partition in range(PARTITIONS):
            end = fetch(raw, STREAM, partition=partition).high_watermark
            for offset in range(0, end, 199):
                answer = fetch(raw, STREAM, offset, partition=partition, partition_max_bytes=1)
                stamp = int.from_bytes(bytes(answer.records[27:35]), "big")
                found.append((_base_offset(answer), stamp, offset_at(raw, partition, stamp + 1)))
            found += [epoch_end(raw, partition, epoch) for epoch in range(3)]
    return found


def offset_at(raw: Raw, partition: int, timestamp_ms: int) -> tuple[int, int]:
    module = codec("list_offsets")
    part = module.ListOffsetsPartition(partition_index=partition, timestamp=timestamp_ms)
    topic = module.ListOffsetsTopic(name=STREAM, partitions=[part])
    answer = raw.ask("list_offsets", 7, replica_id=-1, topics=[topic]).topics[0].partitions[0]
    assert answer.error_code == 0
    return answer.offset, answer.timestamp


def epoch_end(raw: Raw, partition: int, epoch: int) -> tuple[int, int]:
    module = codec("offset_for_leader_epoch")
    part = module.OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
    topic = module.OffsetForLeaderTopic(topic=STREAM, partitions=[part])
    answer = raw.ask("offset_for_leader_epoch", 4, replica_id=-1, topics=[topic]).topics[0].partitions[0]
    assert answer.error_code == 0
    return answer.leader_epoch, answer.end_offset


# --- the disk is full ----------------------------------------------------------------------------


class OnSmallDisk(Killable):
    """Has a disk of its own for two lives; nobody else sees it, but a copy of its data is left behind."""

    def __init__(self, path: Path) -> None:
        super().__init__(path / "copy")
        self.disk, self.pid = path / "disk", 0
        self.disk.mkdir()

    def start(self, failpoint: str = "", *flags: str) -> None:
        assert not failpoint
        if self.process is None:
            self._mount(*flags)
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line and self.process.wait(SECONDS) == NO_DISK:
            pytest.skip("this machine gives a test no small disk of its own")
        assert line.startswith("READY"), (line, self.said())
        self.address, self.pid = line.split()[1], int(line.split("pid=")[1])

    def _mount(self, *flags: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        up = [sys.executable, "-m", "headwater", "up", "--data", str(self.disk / "data"), "--port", str(port), *flags]
        script = ["sh", "-c", MOUNT, "sh", str(self.disk), str(self.data), *up]
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                ["unshare", "--user", "--map-root-user", "--mount", *script],
                stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        assert self.wait_for_its_end() == 0, self.said()

    def end(self) -> None:
        assert self.process is not None
        for _ in range(2):
            with contextlib.suppress(ProcessLookupError):
                if self.process.poll() is None:
                    self.kill()
        self.process.kill()
        self.wait_for_its_end()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[OnSmallDisk]:
    if shutil.which("unshare") is None:
        pytest.skip("this machine gives a test no small disk of its own")
    one = OnSmallDisk(tmp_path)
    one.start()
    yield one
    one.end()


def test_a_full_disk_refuses_writes_and_nothing_else_and_recovers(small: OnSmallDisk) -> None:
    """Reads, a kill, a start and a delete get through; with room again the same writer goes on, and nothing is lost."""
    for name in (STREAM, "big"):
        create(small.address, name, SEGMENTS)
    writer, reader = Writer(small.address, outstanding=1000), Reader(small.address)
    reader.start()
    with Raw(small.address) as raw:
        count = fill(raw)
        writer.start()
        until(lambda: produce(raw, "big", batch_of([bytes(2000)])).error_code == CODE, "full to the last page")
        assert read_back(raw) == count
    small.kill()
    small.start()
    with Raw(small.address) as raw:
        assert read_back(raw) == count
        count += fill(raw)  # the start has tidied up, and so made some room
        assert read_back(raw) == count
    stood_at = writer.acked_count
    admin = AdminClient({"bootstrap.servers": small.address})
    admin.delete_topics(["big"])["big"].result(SECONDS)
    writer.until_acked(stood_at + 2000)
    writer.finish()
    judge(small, writer, reader)


def fill(raw: Raw) -> int:
    """How many large records found room; the next one was refused for that reason."""
    count, answer = 0, produce(raw, "big", batch_of([BLOCK]))
    while not answer.error_code:
        count, answer = count + 1, produce(raw, "big", batch_of([BLOCK]))
    assert answer.error_code == CODE, answer.error_message
    assert "no space" in answer.error_message.lower()
    return count


def read_back(raw: Raw) -> int:
    """How many of the large records there are, each whole."""
    offset = found = 0
    while values := values_in(fetch(raw, "big", offset)):
        found += sum(value == BLOCK for value in values)
        offset += len(values)
    return found
