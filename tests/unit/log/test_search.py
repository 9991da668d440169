"""Offsets by time and by epoch, against the plain answer that a list gives."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from headwater.batch import Codec
from headwater.log import Flusher
from headwater.log.index import epoch_end
from headwater.testing.files import MemoryFiles
from tests.unit.log.logs import SMALL, append, batch, batches, opened

TIMES = st.lists(st.integers(0, 40), min_size=1, max_size=40)


@settings(max_examples=80, deadline=None)
@given(times=TIMES, restart=st.booleans(), interval=st.sampled_from([1, 200, 4096]))
def test_the_first_record_that_is_not_older_is_found(times, restart, interval) -> None:
    """For every time, in a log whose times go up and down, within batches and over segments, before and after a start."""
    files, idle = MemoryFiles(), Flusher()
    options = {"segment_bytes": 700, "index_interval_bytes": interval}
    partition = opened(files, idle, **options)
    append(partition, *[batch(b"a", b"b", at_ms=time) for time in times])
    if restart:
        partition.close()
        partition = opened(files, idle, **options)
    records = [time + late for time in times for late in (0, 1)]
    for wanted in range(-1, 44):
        expected = next(((n, time, 0) for n, time in enumerate(records) if time >= wanted), None)
        assert partition.find_timestamp(wanted) == expected
    latest = max(records)
    assert partition.max_timestamp() == (records.index(latest), latest, 0)
    assert partition.check() == []


def test_a_compressed_batch_is_not_opened(disk, idle) -> None:
    """There the answer is its first record, which may be older than was asked: the reader skips to the right one."""
    partition = opened(disk, idle)
    append(partition, batch(b"a", b"b", at_ms=10), batch(b"c", b"d", b"e", at_ms=20, codec=Codec.GZIP))
    assert partition.find_timestamp(11) == (1, 11, 0)
    assert partition.find_timestamp(21) == (2, 20, 0)
    assert partition.max_timestamp() == (2, 20, 0)


def test_only_what_readers_see_is_found(disk, idle) -> None:
    """With `file_sync`, a record that is not durable is not found by its time either."""
    partition = opened(disk, idle, sync=True)
    append(partition, batch(at_ms=10))
    assert partition.find_timestamp(5) is None
    assert partition.max_timestamp() is None
    partition.flush()
    assert partition.find_timestamp(5) == (0, 10, 0)


@settings(max_examples=80, deadline=None)
@given(runs=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6), st.booleans()), min_size=1, max_size=8))
def test_epochs_end_where_the_next_begins(runs) -> None:
    """After starts with growing epochs, clean or not, with few records or none, each epoch's end is what the log says."""
    files, idle = MemoryFiles(), Flusher()
    epoch = -1
    for step, count, clean in runs:
        epoch += step
        partition = opened(files, idle, epoch, **SMALL)
        append(partition, *[batch(b"x" * 150) for _ in range(count)])
        if clean:
            partition.close()
    partition = opened(files, idle, epoch, **SMALL)
    found = batches(partition)
    assert partition.last_epoch == (found[-1].epoch if found else -1)
    for wanted in range(-1, epoch + 2):
        if wanted < 0 or wanted > epoch:
            assert partition.epoch_end(wanted) == (-1, -1)
            continue
        if wanted > partition.last_epoch:  # it has been, and wrote nothing here
            assert partition.epoch_end(wanted) == (wanted, partition.end)
            continue
        below = [one.epoch for one in found if one.epoch <= wanted]
        above = [one.base_offset for one in found if one.epoch > wanted]
        assert partition.epoch_end(wanted) == (below[-1] if below else wanted, above[0] if above else partition.end)
    assert partition.check() == []


def test_epochs_as_kafka_answers_them() -> None:
    """The cases of Kafka's LeaderEpochFileCache.endOffsetFor."""
    epochs = [(2, 0), (5, 10), (7, 30)]
    assert epoch_end(epochs, 7, 42) == (7, 42)
    assert epoch_end(epochs, 5, 42) == (5, 30)
    assert epoch_end(epochs, 6, 42) == (5, 30)
    assert epoch_end(epochs, 2, 42) == (2, 10)
    assert epoch_end(epochs, 1, 42) == (1, 0)
    assert epoch_end(epochs, 8, 42) == (-1, -1)
    assert epoch_end(epochs, -1, 42) == (-1, -1)
    assert epoch_end([], 0, 0) == (-1, -1)
