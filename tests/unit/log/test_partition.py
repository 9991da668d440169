"""Append and read: what a partition promises on a good day."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from headwater.batch import decode
from headwater.errors import OffsetOutOfRange, StorageFailed, UnknownStream
from headwater.log import DiskFiles, Flusher
from headwater.testing.files import FaultyFiles, MemoryFiles
from tests.unit.log.logs import SMALL, STREAM, append, batch, batches, opened, values


def test_records_come_back_in_order_over_many_segments(disk, idle) -> None:
    """Offsets are dense from 0, batches are stamped with offset and epoch, and segments roll by bytes."""
    partition = opened(disk, idle, epoch=7, **SMALL)
    for number in range(40):
        [answer] = append(partition, batch(b"%d" % number, b"and" * 10))
        assert answer == (2 * number, 2 * number + 2, False)
    assert values(partition) == [value for number in range(40) for value in (b"%d" % number, b"and" * 10)]
    assert {one.epoch for one in batches(partition)} == {7} == {partition.last_epoch}
    assert len(partition._state.segments) > 3
    assert all(one.size <= 1000 for one in partition._state.segments)
    assert partition.size_bytes == sum(one.length for one in batches(partition))
    assert partition.check() == []


def test_nothing_is_made_before_the_first_append(disk, idle) -> None:
    """Opening, reading and closing an empty partition leaves no trace on disk."""
    partition = opened(disk, idle)
    assert partition.read(0, 100) == []
    assert (partition.start, partition.end, partition.last_epoch, partition.size_bytes) == (0, 0, -1, 0)
    assert partition.find_timestamp(0) is None
    assert partition.max_timestamp() is None
    assert partition.epoch_end(0) == (0, 0)  # it has begun, and wrote nothing
    assert partition.epoch_end(1) == (-1, -1)
    partition.close()
    assert disk.names("") == []


def test_files_are_where_they_are_said_to_be(tmp_path: Path, idle) -> None:
    """Names are by stream id, partition and base offset; a clean close leaves every sidecar."""
    partition = opened(DiskFiles(tmp_path), idle, index=3, **SMALL)
    for _ in range(3):
        append(partition, batch(b"x" * 600))
    partition.close()
    directory = tmp_path / "streams" / "00" / STREAM.hex()
    segments = [f"3-{offset:020d}" for offset in range(3)]
    expected = {"3.checkpoint", f"{segments[2]}.producers"}
    expected |= {f"{segment}.{suffix}" for segment in segments for suffix in ("log", "index", "time")}
    assert {one.name for one in directory.iterdir()} == expected


def test_a_log_is_a_kafka_segment_byte_for_byte(tmp_path: Path, idle) -> None:
    """A `.log` holds the batches as they were sent, but for base offset and epoch, and nothing else."""
    partition = opened(DiskFiles(tmp_path), idle, epoch=5)
    sent = [batch(b"one"), batch(b"two", b"three")]
    before = [bytes(one.view) for one in sent]
    append(partition, *sent)
    [log] = tmp_path.rglob("*.log")
    written = log.read_bytes()
    assert written == b"".join(bytes(one.view) for one in sent)
    assert written[16 : len(before[0])] == before[0][16:]
    assert written[len(before[0]) + 16 :] == before[1][16:]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=40),
    group=st.integers(1, 5),
    interval=st.sampled_from([1, 150, 4096]),
    bytes_max=st.integers(0, 3000),
)
def test_every_offset_can_be_read_from(sizes, group, interval, bytes_max) -> None:
    """From any offset a read gives whole batches from the one that holds it, within its bytes, at least one."""
    partition = opened(MemoryFiles(), Flusher(), segment_bytes=1500, index_interval_bytes=interval)
    made = [batch(b"x" * size, b"y") for size in sizes]
    for first in range(0, len(made), group):
        append(partition, *made[first : first + group])
    for offset in range(2 * len(sizes)):
        slices = partition.read(offset, bytes_max)
        holder, length = made[offset // 2], sum(one.length for one in slices)
        assert slices[0].bytes().startswith(bytes(holder.view))
        assert length <= bytes_max or (len(slices) == 1 and length == holder.length)
    assert partition.check() == []


def test_reads_outside_of_the_log_are_refused(disk, idle) -> None:
    """The end itself is an empty read; beyond it, and before the start, there is nothing to wait for."""
    partition = opened(disk, idle)
    append(partition, batch())
    assert partition.read(1, 100) == []
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange):
            partition.read(offset, 100)


def test_reads_stop_where_they_are_told(disk, idle) -> None:
    """`upto` bounds a read to whole batches below it, in whatever segment it lies."""
    partition = opened(disk, idle, **SMALL)
    for number in range(20):
        append(partition, batch(b"x" * 200, b"%d" % number))
    for upto in range(41):
        found = batches(partition, upto=upto)
        assert (found[-1].next_offset if found else 0) == upto - upto % 2


def test_readers_of_file_sync_see_what_is_durable(disk, idle) -> None:
    """With `file_sync` the high watermark is the durable offset, with `file_async` the end."""
    sync, plain = opened(disk, idle, sync=True), opened(disk, idle, index=1)
    for partition in (sync, plain):
        append(partition, batch(b"a"))
        partition.flush()
        append(partition, batch(b"b"))
    assert (sync.end, sync.durable, sync.high_watermark, values(sync)) == (2, 1, 1, [b"a"])
    assert (plain.end, plain.durable, plain.high_watermark, values(plain)) == (2, 1, 2, [b"a", b"b"])
    sync.flush()
    assert values(sync) == [b"a", b"b"]


def test_listeners_hear_when_readers_may_see_more(disk, idle) -> None:
    """With `file_async` after an append, with `file_sync` after the flush; and at the end of the partition."""
    heard: list[str] = []
    sync, plain = opened(disk, idle, sync=True), opened(disk, idle, index=1)

    def listener() -> None:
        heard.append("sync")

    sync.add_listener(listener)
    plain.add_listener(lambda: heard.append("plain"))
    append(sync, batch())
    assert heard == []
    append(plain, batch())
    sync.flush()
    assert heard == ["plain", "sync"]
    plain.delete()
    sync.remove_listener(listener)
    sync.close()
    assert heard == ["plain", "sync", "plain"]


def test_a_slice_outlives_its_partition(tmp_path: Path, idle) -> None:
    """What is being sent is sent to its end, from the file's own descriptor, even if the stream is deleted."""
    partition = opened(DiskFiles(tmp_path), idle, **SMALL)
    sent = [batch(b"x" * 600) for _ in range(3)]
    append(partition, *sent)
    slices = partition.read(0, 10_000)
    partition.delete()
    assert list(tmp_path.rglob("0*")) == [] or not any(one.is_file() for one in tmp_path.rglob("*"))
    for piece, one in zip(slices, sent, strict=True):
        assert os.pread(piece.fileno(), piece.length, piece.position) == piece.bytes() == bytes(one.view)


def test_a_deleted_partition_answers_that_it_is_gone(disk, idle) -> None:
    """Readers, writers and waiters of a deleted partition get the same named error."""
    partition = opened(disk, idle, sync=True)
    append(partition, batch())
    waiting: list[object] = []
    partition.when_durable(1, waiting.append)
    partition.delete()
    assert isinstance(waiting[0], UnknownStream)
    assert isinstance(partition.append([batch()])[0], UnknownStream)
    with pytest.raises(UnknownStream):
        partition.read(0, 100)


def test_a_closed_partition_takes_nothing(disk, idle) -> None:
    """After the close an append is a storage error, which clients try again, and so is a read."""
    partition = opened(disk, idle)
    append(partition, batch())
    partition.close()
    assert isinstance(partition.append([batch()])[0], StorageFailed)
    with pytest.raises(StorageFailed):
        partition.read(0, 100)


def test_a_stop_and_a_start_change_nothing(disk, idle) -> None:
    """After a clean stop everything is durable, readable, and can be appended to."""
    partition = opened(disk, idle, **SMALL)
    for number in range(20):
        append(partition, batch(b"%d" % number * 50))
    partition.close()
    again = opened(disk.crash(), idle, epoch=0, **SMALL)
    assert again.recovery is None
    assert (again.end, again.durable) == (20, 20)
    append(again, batch(b"more"))
    assert values(again) == [b"%d" % number * 50 for number in range(20)] + [b"more"]
    assert again.check() == []


def test_more_segments_than_may_be_open_can_be_read() -> None:
    """Only so many sealed segments are held open; all can be read, and a held slice is not disturbed."""
    disk, idle = FaultyFiles(), Flusher()
    partition = opened(disk, idle, segment_bytes=100)
    append(partition, *[batch(b"%d" % number * 20) for number in range(60)])
    assert sum(one.is_loaded for one in partition._state.segments) <= 17
    partition.close()
    partition = opened(disk, idle, segment_bytes=100)
    [first] = partition.read(0, 1)
    for _ in range(2):
        assert values(partition) == [b"%d" % number * 20 for number in range(60)]
    assert sum(one.is_loaded for one in partition._state.segments) <= 17
    assert first.bytes().count(b"0" * 20) == 1


def test_a_batch_that_claims_very_many_offsets_gets_a_segment_of_its_own(disk, idle) -> None:
    """Relative offsets have 31 bits, as Kafka's: a batch beyond them begins a new segment."""
    partition = opened(disk, idle)
    huge = batch()
    huge.last_offset_delta = 2**31 - 1
    append(partition, batch(b"a"), huge, batch(b"b"))
    bases = [one.base_offset for one in partition._state.segments]
    assert bases == [0, 1, 2**31 + 1]
    assert decode(batches(partition, 2**31 + 1)[0])[0].value == b"b"


def test_epochs_never_go_back(disk, idle) -> None:
    """A data directory whose epoch was set back (its meta.db is an old copy) goes on with the log's own."""
    partition = opened(disk, idle, epoch=5)
    append(partition, batch(b"a"))
    partition.close()
    partition = opened(disk, idle, epoch=2)
    append(partition, batch(b"b"))
    partition.close()
    partition = opened(disk, idle, epoch=2)
    assert [one.epoch for one in batches(partition)] == [5, 5]
    assert partition.epoch_end(5) == (5, 2)


def test_its_size_is_known_without_loading_segments(disk, idle) -> None:
    """All segments are counted, and none is opened for it."""
    partition = opened(disk, idle, **SMALL)
    append(partition, *[batch(b"x" * 400) for _ in range(9)])
    size = partition.size_bytes
    partition.close()
    partition = opened(disk, idle, **SMALL)
    assert partition.size_bytes == size == 9 * batch(b"x" * 400).length
    assert sum(one.is_loaded for one in partition._state.segments) == 1
