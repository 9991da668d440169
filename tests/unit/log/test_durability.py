"""Flushes, waiters and failing disks: what an ack may rest on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from headwater.errors import StorageFailed, WireError
from headwater.log import Appended, Flusher, Partition
from headwater.testing.files import FaultyFiles
from tests.unit.log.logs import SMALL, append, batch, noting, opened, values


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Waits for something that a flush thread does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def reaches(partition: Partition, offset: int) -> bool:
    return partition.durable == offset


# --- waiting -------------------------------------------------------------------------------------


def test_a_lone_waiter_is_answered_inline(disk, idle) -> None:
    """One who is alone flushes in its own thread, and has its answer when the call returns."""
    partition = opened(disk, idle, sync=True)
    [answer] = append(partition, batch())
    got: list[WireError | None] = []
    partition.when_durable(answer.next_offset, got.append, alone=True)
    assert got == [None]
    assert partition.durable == 1


def test_many_waiters_share_a_flush(disk, flusher) -> None:
    """A hundred acks cost one or two flushes of the log, and each is answered once, after it is durable."""
    partition = opened(disk, flusher, sync=True)
    append(partition, batch())
    partition.flush()
    before = disk.flush_count
    got: list[tuple[int, int]] = []
    for answer in append(partition, *[batch() for _ in range(100)]):
        offset = answer.next_offset
        partition.when_durable(offset, noting(lambda at: got.append((at, partition.durable)), offset))
    until(lambda: len(got) == 100)
    assert [offset for offset, _ in got] == list(range(2, 102))
    assert all(durable >= offset for offset, durable in got)
    assert disk.flush_count - before <= 3


def test_what_is_durable_already_is_answered_at_once(disk, idle) -> None:
    """Also a duplicate of a batch that is on disk."""
    partition = opened(disk, idle, sync=True)
    append(partition, batch())
    partition.flush()
    got: list[WireError | None] = []
    partition.when_durable(1, got.append)
    assert got == [None]


def test_durable_means_flushed_with_names(disk, idle) -> None:
    """At the moment of the ack the record, its file's name and every directory above would survive a power cut."""
    partition = opened(disk, idle, sync=True, **SMALL)
    for number in range(12):
        [answer] = append(partition, batch(b"%d" % number * 200))
        partition.when_durable(answer.next_offset, lambda _: None, alone=True)
        assert partition.durable == number + 1
    again = opened(disk.crash(), idle, 1, sync=True, **SMALL)
    assert values(again) == [b"%d" % number * 200 for number in range(12)]
    assert again.check() == []


def test_file_async_is_flushed_in_time(disk, flusher) -> None:
    """Nobody has to ask: an append is durable soon after `flush_ms`, again and again."""
    partition = opened(disk, flusher, flush_ms=20)
    for number in range(1, 4):
        append(partition, batch())
        until(partial(reaches, partition, number))


def test_file_async_is_flushed_after_so_many_records(disk, flusher) -> None:
    """A crowd of records does not wait for the clock."""
    partition = opened(disk, flusher, flush_ms=60_000, flush_records=10)
    for _ in range(3):
        append(partition, *[batch(*[b"v"] * 5)] * 1, batch(*[b"v"] * 4))
        durable = partition.durable
        append(partition, batch(b"the tenth"))
        until(partial(reaches, partition, durable + 10))


def test_an_ack_does_not_wait_for_another_streams_backlog(flusher) -> None:
    """While one partition's flush stands still, another's ack goes through."""
    slow_disk, disk = FaultyFiles(), FaultyFiles()
    slow, quick = opened(slow_disk, flusher, flush_ms=0), opened(disk, flusher, sync=True, index=1)
    with slow_disk.lock:  # its flush hangs here
        pass
    holds, release = threading.Event(), threading.Event()

    def hold() -> None:
        with slow_disk.lock:
            holds.set()
            release.wait(5)

    append(slow, batch())
    until(lambda: slow.durable == 1)
    append(slow, batch())
    holder = threading.Thread(target=hold)
    holder.start()
    holds.wait(5)
    got: list[WireError | None] = []
    [answer] = append(quick, batch())
    quick.when_durable(answer.next_offset, got.append)
    until(lambda: got == [None])
    release.set()
    holder.join()
    until(lambda: slow.durable == 2)


def test_readers_and_writers_do_not_wait_for_a_flush(flusher) -> None:
    """An append and a read go on while the disk is busy with a flush."""
    disk = FaultyFiles()
    partition = opened(disk, flusher, sync=True)
    stop = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(len(values(partition)))

    reader = threading.Thread(target=read)
    append(partition, batch())
    reader.start()
    acked: list[int] = []
    for _ in range(300):
        [answer] = append(partition, batch(b"v" * 50))
        partition.when_durable(answer.next_offset, noting(acked.append, answer.next_offset))
    until(lambda: len(acked) == 300)
    stop.set()
    reader.join()
    assert seen == sorted(seen)
    assert partition.check() == []


def test_what_recovery_found_is_durable(disk, idle) -> None:
    """After a kill the records are only in the kernel: opening flushes them before it calls them durable."""
    append(opened(disk, idle, sync=True), batch(b"a"))
    partition = opened(disk, idle, 1, sync=True)
    assert (partition.durable, partition.high_watermark) == (1, 1)
    assert values(opened(disk.crash(), idle, 2, sync=True)) == [b"a"]


def test_names_that_a_killed_process_made_are_flushed(disk, idle) -> None:
    """It may have been killed between making a file and flushing its directory: the next one's acks rest on that too."""
    disk.fail_write(3)  # the first two are the checkpoint's
    assert isinstance(opened(disk, idle, sync=True).append([batch()])[0], StorageFailed)
    partition = opened(disk, idle, 1, sync=True)
    append(partition, batch(b"a"))
    partition.flush()
    assert partition.durable == 1
    assert values(opened(disk.crash(), idle, 2)) == [b"a"]


# --- failing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["error", "short"])
def test_a_failed_write_is_cut_back_and_may_be_tried_again(disk, idle, how) -> None:
    """The log is as it was, readers see nothing of it, and the next attempt succeeds."""
    partition = opened(disk, idle)
    append(partition, batch(b"a"))
    disk.fail_write(1, how)
    answers = partition.append([batch(b"b"), batch(b"c")])
    assert [type(one) for one in answers] == [StorageFailed, StorageFailed]
    assert partition.failed is None
    assert values(partition) == [b"a"]
    assert partition.check() == []
    assert append(partition, batch(b"b")) == [(1, 2, False)]
    assert values(opened(disk, idle, 1)) == [b"a", b"b"]


def test_what_was_refused_does_not_come_back(idle) -> None:
    """A short write that held a whole batch is cut back for good: no power cut brings it back behind what was acked."""
    for seed in range(40):
        disk = FaultyFiles()
        partition = opened(disk, idle)
        append(partition, batch(b"a"))
        partition.flush()
        disk.fail_write(1, "short")
        assert isinstance(partition.append([batch(b"b"), batch(b"c")])[0], StorageFailed)
        partition.close()
        assert values(opened(disk.crash(Random(seed)), idle, 1)) == [b"a"]


def test_a_full_disk_recovers_when_there_is_room(disk, idle) -> None:
    """While it is full: storage errors, reads as ever, a stop. Then it goes on, with nothing lost."""
    partition = opened(disk, idle, **SMALL)
    append(partition, batch(b"a" * 500))
    disk.space_bytes = 300
    for _ in range(3):
        assert isinstance(partition.append([batch(b"b" * 900)])[0], StorageFailed)
    assert values(partition) == [b"a" * 500]
    disk.space_bytes = None
    append(partition, batch(b"b" * 900))
    assert values(partition) == [b"a" * 500, b"b" * 900]
    assert partition.check() == []
    disk.space_bytes = 0
    partition.flush()
    assert partition.durable == 2
    with pytest.raises(StorageFailed):
        partition.close()
    disk.space_bytes = None
    assert values(opened(disk, idle, 1, **SMALL)) == [b"a" * 500, b"b" * 900]


def test_what_was_written_before_a_roll_failed_is_answered(disk, idle) -> None:
    """Of one append, the batches before the failure are written and the others are told."""
    partition = opened(disk, idle, **SMALL)
    append(partition, batch(b"a"))
    disk.fail_write(2)
    answers = partition.append([batch(b"b"), batch(b"c" * 900), batch(b"d")])
    assert [type(one) for one in answers] == [Appended, StorageFailed, StorageFailed]
    assert values(partition) == [b"a", b"b"]
    append(partition, batch(b"c" * 900), batch(b"d"))
    assert partition.check() == []


def test_a_failed_flush_is_final(disk, idle) -> None:
    """Every waiter fails, nothing more is taken, and no later flush pretends that it went well."""
    partition = opened(disk, idle, sync=True)
    append(partition, batch(b"a"))
    partition.flush()
    append(partition, batch(b"b"))
    disk.fail_flush()
    got: list[WireError | None] = []
    partition.when_durable(2, got.append)
    partition.when_durable(2, got.append, alone=True)
    assert [type(one) for one in got] == [StorageFailed, StorageFailed]
    partition.flush()
    assert (partition.durable, partition.high_watermark) == (1, 1)
    partition.when_durable(2, got.append)
    assert isinstance(got[2], StorageFailed)
    assert isinstance(partition.append([batch()])[0], StorageFailed)
    assert len(partition.read(0, 1000)) == 1
    with pytest.raises(StorageFailed):
        partition.read(1, 1000)
    with pytest.raises(StorageFailed):
        partition.close()
    assert values(opened(disk.crash(), idle, 1)) == [b"a"]


def test_after_a_failed_flush_only_durable_records_are_sent(disk, idle) -> None:
    """With `file_async` too: the kernel may have dropped what readers could see a moment ago."""
    partition = opened(disk, idle)
    append(partition, batch(b"a"))
    partition.flush()
    append(partition, batch(b"b"))
    disk.fail_flush()
    partition.flush()
    assert b"".join(piece.bytes() for piece in partition.read(0, 1000)).endswith(b"a\x00")
    with pytest.raises(StorageFailed):
        partition.read(1, 1000)


def test_a_failed_directory_flush_is_final_too(disk, idle) -> None:
    """A name that may be gone after a power cut is no better than bytes that may be."""
    partition = opened(disk, idle, sync=True)
    append(partition, batch())
    directory = partition._state.place.directory
    for name in disk.names(directory):
        disk.delete(f"{directory}/{name}")
    disk.delete(directory)
    got: list[WireError | None] = []
    partition.when_durable(1, got.append, alone=True)
    assert isinstance(got[0], StorageFailed)
    assert partition.durable == 0


def test_an_end_that_cannot_be_cut_back_is_the_end(disk, idle) -> None:
    """With unknown bytes behind its end a log must not grow: the partition fails until a restart looks at them."""
    partition = opened(disk, idle)
    append(partition, batch(b"a"))
    disk.fail_write(1, "short")
    disk.fail_flush(1)
    assert isinstance(partition.append([batch(b"b"), batch(b"c")])[0], StorageFailed)
    assert isinstance(partition.failed, StorageFailed)
    assert isinstance(partition.append([batch(b"b")])[0], StorageFailed)
    assert values(opened(disk, idle, 1)) == [b"a"]


def test_a_flusher_that_was_not_started_can_be_closed() -> None:
    """Closing needs no start before it."""
    Flusher().close()


def test_a_waiter_that_raises_ends_nobody_elses_acks(flusher, monkeypatch) -> None:
    """The bug is reported as a thread's is, and the next partition's ack goes through."""
    reported: list[object] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)

    def raises(_: WireError | None) -> None:
        raise RuntimeError("a bug")

    disk = FaultyFiles()
    got: list[WireError | None] = []
    waiters: list[Callable[[WireError | None], None]] = [raises, got.append]
    for index, waiter in enumerate(waiters):
        partition = opened(disk, flusher, sync=True, index=index)
        append(partition, batch())
        partition.when_durable(1, waiter)
    until(lambda: got == [None])
    assert len(reported) == 1
