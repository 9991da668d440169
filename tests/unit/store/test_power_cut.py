"""meta.db survives a power cut and the log's tail does not: what spans both agrees again at the next start."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from random import Random

import pytest

from headwater.config import Settings
from headwater.errors import StorageFailed
from headwater.model import StreamName
from headwater.store import Store, StreamEntry
from headwater.testing.files import FaultyFiles
from tests.unit.store.acts import GROUP, append, commit, create, offsets, place_of, values


def started(data: Path, files: FaultyFiles) -> Store:
    return Store.open(Settings(data=str(data), flush_ms=3_600_000, flush_records=1_000_000), files=files)


def after_a_power_cut(store: Store, files: FaultyFiles, to: Path, random: Random | None = None) -> Store:
    """A store over what is durable: all of meta.db, and of the log what was flushed (and, with `random`, some more)."""
    shutil.copytree(store.settings.data, to)
    kept = files.crash(random)
    store.close()
    return started(to, kept)


def left_of(entry: StreamEntry, files: FaultyFiles) -> list[str]:
    return [
        name for shared in files.names("streams") for name in files.names(f"streams/{shared}") if name == entry.id.hex()
    ]


def wait_until_freed(store: Store) -> None:
    deadline = time.monotonic() + 10
    while any(entry.deleting for entry in store._meta.streams()):
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_cursors_of_a_tail_that_was_lost_are_set_to_the_new_end(tmp_path: Path) -> None:
    """A group that had read records which a power cut took stands at the end of what is left, and reads what follows."""
    files = FaultyFiles()
    store = started(tmp_path / "before", files)
    entry = create(store)
    partition = store.partition(place_of(entry))
    append(partition, b"kept")
    partition.flush()
    append(partition, b"lost")
    append(partition, b"lost too")
    commit(store, entry, 3)
    store = after_a_power_cut(store, files, tmp_path / "after")
    assert offsets(store) == {0: 1}
    partition = store.partition(place_of(entry))
    append(partition, b"new")
    assert values(partition) == [b"kept", b"new"]
    assert (offsets(store), partition.last_epoch) == ({0: 1}, 1)
    assert partition.check() == []
    store.close()


def test_file_sync_and_its_cursors_lose_nothing(tmp_path: Path) -> None:
    """With flush.messages=1 what was acked is there after a power cut, and cursors stay where they are."""
    files = FaultyFiles()
    store = started(tmp_path / "before", files)
    entry = create(store, flush_messages="1")
    partition = store.partition(place_of(entry))
    for value in (b"one", b"two"):
        append(partition, value)
        acked: list[object] = []
        partition.when_durable(partition.end, acked.append, alone=True)
        assert acked == [None]
    commit(store, entry, 2)
    store = after_a_power_cut(store, files, tmp_path / "after")
    assert values(store.partition(place_of(entry))) == [b"one", b"two"]
    assert offsets(store) == {0: 2}
    store.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_delete_that_a_power_cut_met_is_finished(tmp_path: Path, seed: int) -> None:
    """Whatever of a delete's changes to the disk survives, the stream is gone, its files are freed at the next start."""
    random = Random(seed)
    files = FaultyFiles()
    store = started(tmp_path / "before", files)
    keep, gone = create(store, "keep"), create(store, "gone", partitions=3)
    for entry in (keep, gone):
        for index in range(2):
            partition = store.partition(place_of(entry, index))
            append(partition, b"one")
            partition.flush()
    commit(store, gone, 1)
    files.changes_left = random.randrange(12)
    store.delete(StreamName("gone")).result(5)
    store = after_a_power_cut(store, files, tmp_path / "after", random)
    assert [one.name for one in store.streams()] == ["keep"]
    assert store.cursors(GROUP) == {}
    for index in range(2):
        assert values(store.partition(place_of(keep, index))) == [b"one"]
    wait_until_freed(store)
    disk = store._files
    assert isinstance(disk, FaultyFiles)
    store.close()
    assert left_of(gone, disk.crash()) == []  # for good: another power cut brings nothing back
    assert left_of(keep, disk.crash()) != []


def test_a_partition_that_failed_leaves_the_run_unclean(tmp_path: Path) -> None:
    """After a failed flush the stop is not noted as clean, so that the next start recovers under a new epoch."""
    files = FaultyFiles()
    store = started(tmp_path, files)
    entry = create(store)
    partition = store.partition(place_of(entry))
    append(partition, b"one")
    files.fail_flush()
    partition.flush()
    assert partition.failed is not None
    store.close()
    store = started(tmp_path, files.crash())
    assert (store.was_clean, store.epoch) == (False, 1)
    store.close()


def test_a_damaged_partition_does_not_stop_its_neighbours(tmp_path: Path) -> None:
    """A partition that cannot be opened answers with its error; its neighbour is read, and cursors are answered."""
    files = FaultyFiles()
    store = started(tmp_path / "before", files)
    entry = create(store)
    for index in range(2):
        partition = store.partition(place_of(entry, index))
        for value in (b"one", b"two", b"three"):
            append(partition, value)
        commit(store, entry, 2, index=index)
    store.close()
    store = started(tmp_path / "before", files)
    directory = f"streams/{entry.id.hex()[:2]}/{entry.id.hex()}"
    files.delete(f"{directory}/0-{0:020}.log")
    files.flush_directory(directory)
    store = after_a_power_cut(store, files, tmp_path / "after")
    assert values(store.partition(place_of(entry, 1))) == [b"one", b"two", b"three"]
    for _ in range(2):
        with pytest.raises(StorageFailed, match="no segment"):
            store.partition(place_of(entry, 0))
    assert offsets(store) == {0: 2, 1: 2}
    store.close()
