"""Run on a disk of its own by test_full_disk.py: what a store does when nothing more fits."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headwater.config import Settings
from headwater.errors import StorageFailed
from headwater.model import Cursor, GroupName, Offset, StreamName
from headwater.store import Store, directory
from tests.unit.store.acts import GROUP, NOW, append, create, files_of, place_of, values


def fill(disk: Path) -> Path:
    """A file that takes every byte that is left."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


def commit_until_refused(store: Store, place) -> None:
    """Uses up what room meta.db has left in its own files."""
    for size in (4000, 0):
        for number in range(100_000):
            cursor = Cursor(offset=Offset(number), metadata="m" * size, committed_ms=NOW)
            try:
                store.commit_cursors(GROUP, {place: cursor}).result(10)
            except StorageFailed:
                break
        else:
            raise AssertionError("the disk did not get full")


def until_killed(disk: Path) -> None:
    """Fills the disk, does what must get through, and ends without closing anything."""
    store = Store.open(Settings(data=str(disk / "data")))
    kept, gone = create(store, "kept"), create(store, "gone")
    store.announce("served", "127.0.0.1", 30_000)
    for entry in (kept, gone):
        append(store.partition(place_of(entry)), b"one")
    for number in range(50):
        group = GroupName(f"{number} reads what will be deleted, so that a delete has pages to write")
        store.commit_cursors(group, {place_of(gone): Cursor(offset=Offset(1), metadata="m" * 1000)}).result(10)
    fill(disk)
    commit_until_refused(store, place_of(kept))
    fill(disk)
    assert values(store.partition(place_of(kept))) == [b"one"]
    store.delete(StreamName("gone")).result(10)
    assert files_of(store, gone) == []
    fill(disk)
    store.announce("served", "127.0.0.1", 9092)
    os.kill(os.getpid(), signal.SIGKILL)


def started_again(disk: Path) -> None:
    """Starts on the full disk, reads, gets room, and goes on as if nothing had been."""
    settings = Settings(data=str(disk / "data"))
    store = Store.open(settings)
    kept = store.streams()[0]
    partition = store.partition(place_of(kept))
    assert values(partition) == [b"one"]
    where = directory.address(settings.data)
    assert where is not None
    assert where.port == 9092
    (disk / "filler").unlink()
    append(partition, b"two")
    store.commit_cursors(GROUP, {place_of(kept): Cursor(offset=Offset(1))}).result(10)
    store.close()
    store = Store.open(settings)
    assert store.was_clean
    assert values(store.partition(place_of(kept))) == [b"one", b"two"]
    assert store.cursors(GROUP)[place_of(kept)].offset == 1
    assert (disk / "data" / "meta.reserve").stat().st_size > 0
    store.close()


if __name__ == "__main__":
    {"until_killed": until_killed, "started_again": started_again}[sys.argv[2]](Path(sys.argv[1]))
