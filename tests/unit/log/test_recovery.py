"""What a start does with what it finds: torn ends are cut, rot is refused, caches do not matter."""

from __future__ import annotations

from random import Random
from zlib import crc32

import pytest

from headwater.batch import parse
from headwater.errors import FormatTooNew, StorageFailed
from headwater.log.layout import HEADER
from headwater.testing.files import FaultyFiles
from tests.unit.log.logs import SMALL, STREAM, append, batch, opened, values

DIRECTORY = f"streams/00/{STREAM.hex()}"
VALUES = [b"%02d" % number * 40 for number in range(20)]


def filled(disk, idle, *, stop: bool, flush: bool = True, **options):
    """Twenty batches of one record, over several segments if `options` say so; stopped, or as after a kill."""
    partition = opened(disk, idle, **options)
    append(partition, *[batch(value, at_ms=1000 + 10 * number) for number, value in enumerate(VALUES)])
    if flush:
        partition.flush()
    if stop:
        partition.close()
    return partition


def logs(disk: FaultyFiles) -> list[str]:
    return sorted(f"{DIRECTORY}/{name}" for name in disk.names(DIRECTORY) if name[:2] == "0-" and name.endswith(".log"))


def cut(disk: FaultyFiles, path: str, size: int) -> None:
    file = disk.open(path)
    file.cut(size)
    file.flush()


def test_a_clean_stop_leaves_nothing_to_read(disk, idle) -> None:
    """Opening after a clean stop does not look at old records: rot in them shows when they are read."""
    filled(disk, idle, stop=True)
    disk.damage(logs(disk)[0], 300, b"?")
    partition = opened(disk, idle)
    assert partition.recovery is None
    with pytest.raises(StorageFailed, match="rotted at byte"):
        partition.read(0, 10_000)


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("options", [{}, SMALL], ids=["one segment", "several"])
def test_a_torn_end_is_cut_and_reported(disk, idle, stop, options) -> None:
    """Half of the last batch is cut off; all before it is there, and the log goes on from there."""
    filled(disk, idle, stop=stop, **options)
    last = logs(disk)[-1]
    size = disk.open(last).size()
    cut(disk, last, size - 10)
    partition = opened(disk, idle, 1, **options)
    assert partition.recovery is not None
    assert (partition.recovery.end, partition.recovery.durable_lost) == (19, True)
    assert 0 < partition.recovery.cut_bytes < 160
    assert values(partition) == VALUES[:19]
    append(partition, batch(b"next"))
    assert values(partition, 19) == [b"next"]
    assert partition.epoch_end(0) == (0, 19)
    assert partition.check() == []
    partition.close()
    assert opened(disk, idle, 1, **options).recovery is None


@pytest.mark.parametrize("left", [0, 10])
def test_a_checkpoint_does_not_outlive_what_it_speaks_of(disk, idle, left) -> None:
    """A log that was cut between batches, or to nothing, is reported, and its old checkpoint is believed no more."""
    filled(disk, idle, stop=True)
    (path,) = logs(disk)
    cut(disk, path, disk.open(path).size() * left // 20)
    partition = opened(disk, idle, 1)
    assert partition.recovery is not None
    assert (partition.recovery.end, partition.recovery.durable_lost) == (left, True)
    others = [b"other%d" % number * number for number in range(1, 60)]  # beyond the place that the checkpoint named
    append(partition, *[batch(one) for one in others])
    again = opened(disk, idle, 2)  # as after a kill
    assert values(again) == [*VALUES[:left], *others]
    assert again.check() == []


@pytest.mark.parametrize("garbage", [b"\0" * 1000, Random(1).randbytes(5000), b"\0" * 7 + b"\x14"])
def test_garbage_behind_the_end_is_cut(disk, idle, garbage) -> None:
    """Zeros, noise, or the beginning of a header behind the last batch are a torn write."""
    filled(disk, idle, stop=False)
    path = logs(disk)[0]
    size = disk.open(path).size()
    disk.damage(path, size, garbage)
    partition = opened(disk, idle, 1)
    assert partition.recovery is not None
    assert partition.recovery.cut_bytes == len(garbage)
    assert not partition.recovery.durable_lost
    assert values(partition) == VALUES
    assert disk.open(path).size() == size


@pytest.mark.parametrize("options", [{}, SMALL], ids=["one segment", "several"])
def test_rot_inside_is_refused_and_nothing_is_changed(disk, idle, options) -> None:
    """A bad batch with right ones behind it, below what was flushed, is not torn: that partition does not open."""
    filled(disk, idle, stop=False, **options)
    other = opened(disk, idle, index=1)
    append(other, batch(b"fine"))
    last = logs(disk)[-1] if not options else logs(disk)[len(logs(disk)) - 2]
    before = {path: disk.open(path).read(0, 10_000) for path in logs(disk)}
    disk.damage(last, 200, b"?")
    for _ in range(2):
        if options:  # a sealed segment behind the checkpoint is looked at when it is read
            partition = opened(disk, idle, 1, **options)
            assert partition.recovery is None
            with pytest.raises(StorageFailed, match="rotted"):
                values(partition)
        else:
            with pytest.raises(StorageFailed, match="rotted"):
                opened(disk, idle, 1, **options)
    disk.damage(last, 200, before[last][200:201])
    assert {path: disk.open(path).read(0, 10_000) for path in before} == before
    assert values(opened(disk, idle, 1, **options)) == VALUES
    assert values(opened(disk, idle, 1, index=1)) == [b"fine"]


def test_rot_in_a_sealed_segment_hides_nothing_else(disk, idle) -> None:
    """Reads before and behind the rotten block go on; a read that meets it is an error, never a gap."""
    filled(disk, idle, stop=True, **SMALL)
    disk.damage(logs(disk)[1], 150, b"?")
    partition = opened(disk, idle, **SMALL)
    assert values(partition, 15) == VALUES[15:]
    rotten = partition._state.segments[1].base_offset
    got = b"".join(piece.bytes() for piece in partition.read(0, 500))
    assert VALUES[0] in got
    with pytest.raises(StorageFailed, match="rotted"):
        partition.read(rotten, 500)
    with pytest.raises(StorageFailed, match="rotted"):
        values(partition)


@pytest.mark.parametrize("bytes_max", [1, 700, 2_000, 1 << 20])
def test_all_that_lies_before_rot_is_read(disk, idle, bytes_max) -> None:
    """However much is asked for at once: the error is for who has come to the rotten block."""
    filled(disk, idle, stop=True, **SMALL)
    disk.damage(logs(disk)[1], 450, b"?")
    partition = opened(disk, idle, **SMALL)
    found = 0
    with pytest.raises(StorageFailed, match="rotted"):
        while found < partition.end:
            found = partition_end(partition.read(found, bytes_max))
    segment = partition._state.segments[1]
    index = segment.opened()[1]
    assert found == segment.base_offset + index.offsets[index.block_of_position(450)] > segment.base_offset


def partition_end(slices) -> int:
    """The offset behind the last batch that was read."""
    data, at, end = memoryview(bytearray(b"".join(piece.bytes() for piece in slices))), 0, 0
    while at < len(data):
        one = parse(data, at)
        at, end = at + one.length, one.next_offset
    return end


def test_every_flipped_bit_of_a_sealed_segment_is_noticed(disk, idle) -> None:
    """Also where the checksum does not reach: base offset, length, epoch and magic."""
    filled(disk, idle, stop=True, **SMALL)
    path = logs(disk)[0]
    data = disk.open(path).read(0, 10_000)
    second = len(data) // 6
    for position in [*range(61), *range(second, second + 61, 7)]:
        disk.damage(path, position, bytes([data[position] ^ 4]))
        partition = opened(disk, idle, **SMALL)
        with pytest.raises(StorageFailed):
            values(partition)
        disk.damage(path, position, data[position : position + 1])


def test_a_hole_that_was_never_flushed_is_torn(disk, idle) -> None:
    """A power cut may keep late pages and lose early ones: right batches behind the hole were promised to nobody."""
    partition = filled(disk, idle, stop=False)
    assert partition.durable == 20
    append(partition, *[batch(b"x" * 400) for _ in range(5)])
    path = logs(disk)[0]
    position = partition._state.flushed.position
    disk.damage(path, position + 100, b"\0" * 300)
    again = opened(disk, idle, 1)
    assert again.end == 20
    assert again.recovery is not None
    assert again.recovery.cut_bytes == 5 * batch(b"x" * 400).length
    assert values(again) == VALUES


@pytest.mark.parametrize("how", ["delete", "cut", "flip", "empty", "noise"])
@pytest.mark.parametrize("stop", [True, False])
def test_sidecars_are_caches(disk, idle, how, stop) -> None:
    """Without any of them, or with all of them damaged, every answer stays the same; afterwards they are whole again."""
    partition = filled(disk, idle, stop=False, **SMALL)
    answers = [partition.find_timestamp(at) for at in range(990, 1220, 3)]
    ends = [partition.epoch_end(epoch) for epoch in range(-1, 3)]
    if stop:
        partition.close()
    for name in disk.names(DIRECTORY):
        path = f"{DIRECTORY}/{name}"
        if not name.endswith((".index", ".time", ".producers")):
            continue
        size = disk.open(path).size()
        if how == "delete":
            disk.delete(path)
        elif how == "flip":
            disk.damage(path, size - 1 if size > 64 else 20, bytes([disk.open(path).read(size - 1, 1)[0] ^ 1]))
        elif how == "noise":
            disk.damage(path, 0, Random(2).randbytes(size))
        else:
            cut(disk, path, 0 if how == "empty" else size - 3)
    again = opened(disk, idle, 0, **SMALL)
    assert again.recovery is None
    assert [again.find_timestamp(at) for at in range(990, 1220, 3)] == answers
    assert [again.epoch_end(epoch) for epoch in range(-1, 3)] == ends
    assert values(again) == VALUES
    assert again.check() == []
    again.close()
    names = set(disk.names(DIRECTORY))
    assert {name.replace(".log", ".index") for name in names if name.endswith(".log")} <= names


@pytest.mark.parametrize("how", ["delete", "noise", "header", "slot"])
def test_a_lost_checkpoint_costs_time_only(disk, idle, how) -> None:
    """Without it everything is read again, and rot inside is still not taken for a torn end."""
    filled(disk, idle, stop=True, **SMALL)
    path = f"{DIRECTORY}/0.checkpoint"
    if how == "delete":
        disk.delete(path)
    else:
        positions = {"noise": range(1500), "header": range(10), "slot": range(512, 560)}[how]
        disk.damage(path, positions[0], Random(3).randbytes(len(positions)))
    partition = opened(disk, idle, 1, **SMALL)
    assert values(partition) == VALUES
    assert partition.check() == []
    partition.close()
    assert f"{DIRECTORY}/0.checkpoint".rpartition("/")[2] in disk.names(DIRECTORY)
    if how == "slot":
        return
    disk.delete(path)
    disk.damage(logs(disk)[1], 150, b"?")
    with pytest.raises(StorageFailed, match="rotted"):
        opened(disk, idle, 1, **SMALL)


def test_a_missing_segment_is_refused(disk, idle) -> None:
    """A log with a hole in it, or without the segment that its checkpoint speaks of, does not open."""
    filled(disk, idle, stop=True, **SMALL)
    last = logs(disk)[-1]
    kept = disk.open(last).read(0, 10_000)
    disk.delete(last)
    with pytest.raises(StorageFailed, match="gone"):
        opened(disk, idle, **SMALL)
    disk.open(last, create=True).write([kept], 0)
    disk.delete(logs(disk)[1])
    with pytest.raises(StorageFailed):
        values(opened(disk, idle, **SMALL))


def test_a_newer_format_is_refused(disk, idle) -> None:
    """A sidecar of a later version may say what this one cannot read: it is not rebuilt over."""
    filled(disk, idle, stop=True)
    path = logs(disk)[0].replace(".log", ".index")
    raw = bytearray(disk.open(path).read(0, 10_000))
    raw[4:6] = (2).to_bytes(2, "big")
    raw[HEADER.size : HEADER.size + 4] = crc32(bytes(raw[: HEADER.size])).to_bytes(4, "big")
    disk.damage(path, 0, bytes(raw))
    with pytest.raises(FormatTooNew, match="format 2"):
        opened(disk, idle)


def test_an_empty_segment_of_a_killed_roll_is_used(disk, idle) -> None:
    """A roll that was killed after making its file leaves an empty segment, which simply goes on."""
    partition = filled(disk, idle, stop=False, **SMALL)
    disk.open(partition._state.place.path(20, "log"), create=True)
    again = opened(disk, idle, 1, **SMALL)
    assert again.recovery is None
    append(again, batch(b"next"))
    assert values(again, 19) == [VALUES[19], b"next"]
    assert again.check() == []


def test_recovery_can_be_interrupted_anywhere(idle) -> None:
    """Killed after any of its changes and begun again, recovery comes to the same log."""
    for changes in range(40):
        disk = FaultyFiles()
        partition = filled(disk, idle, stop=False, flush=False, **SMALL)
        assert partition.durable == 0
        cut(disk, logs(disk)[1], 400)
        disk.changes_left = changes
        try:
            opened(disk, idle, 1, **SMALL)
            finished = not disk.dead
        except StorageFailed:
            finished = False
        disk.dead, disk.changes_left = False, None
        again = opened(disk, idle, 2, **SMALL)
        end = again.end
        assert 6 < end < 12
        assert values(again) == VALUES[:end]
        assert again.check() == []
        if finished:
            assert changes > 3
            return
    raise AssertionError("recovery never came to its end")
