"""The faulty disk does what it is told: other tests rest on it."""

from __future__ import annotations

from random import Random

import pytest

from headwater.errors import StorageFailed
from headwater.testing.files import SECTOR_BYTES, FaultyFiles


def test_a_crash_takes_what_was_not_flushed() -> None:
    """Bytes need a flush of their file, names one of their directory; without both nothing is left."""
    disk = FaultyFiles()
    for name in ("both", "bytes only", "name only"):
        disk.open(name, create=True).write([b"12"], 0)
        if name != "name only":
            disk.open(name).flush()
        if name == "both":
            disk.flush_directory("")
    disk.open("both").write([b"3"], 2)
    after = disk.crash()
    assert after.names("") == ["both"]
    assert after.open("both").read(0, 9) == b"12"


def test_a_name_without_its_bytes_is_an_empty_file() -> None:
    """A flushed directory brings a file back, but not what was written into it."""
    disk = FaultyFiles()
    disk.open("a", create=True).write([b"12"], 0)
    disk.flush_directory("")
    assert disk.crash().open("a").size() == 0


def test_deletes_and_renames_need_a_flush_too() -> None:
    """What was deleted or renamed without a flush of the directory is as before."""
    disk = FaultyFiles()
    for name in ("a", "b"):
        disk.open(name, create=True)
    disk.flush_directory("")
    disk.delete("a")
    disk.rename("b", "c")
    assert sorted(disk.crash().names("")) == ["a", "b"]


def test_a_dead_disk_answers_nothing() -> None:
    """After the crash the old disk and its files are errors."""
    disk = FaultyFiles()
    file = disk.open("a", create=True)
    disk.crash()
    for attempt in (lambda: file.write([b"x"], 0), file.flush, lambda: file.read(0, 1), lambda: disk.names("")):
        with pytest.raises(StorageFailed):
            attempt()


def test_luck_keeps_sectors() -> None:
    """With luck a crash keeps some sectors of a write and not others, and never invents bytes."""
    seen = set()
    for seed in range(60):
        disk = FaultyFiles()
        file = disk.open("a", create=True)
        disk.flush_directory("")
        file.write([b"x" * SECTOR_BYTES, b"y" * SECTOR_BYTES], 0)
        left = disk.crash(Random(seed)).open("a").read(0, 9999)
        assert set(left) <= {ord("x"), ord("y"), 0}
        seen.add((left[:1], left[SECTOR_BYTES : SECTOR_BYTES + 1]))
    assert {(b"x", b"y"), (b"", b""), (b"\0", b"y"), (b"x", b"")} <= seen


def test_the_nth_write_fails() -> None:
    """A failing write leaves nothing, a short one its first half."""
    disk = FaultyFiles()
    file = disk.open("a", create=True)
    disk.fail_write(2)
    disk.fail_write(3, "short")
    assert file.write([b"1234"], 0) == 4
    with pytest.raises(StorageFailed):
        file.write([b"5678"], 4)
    assert file.write([b"5678"], 4) == 2
    assert file.read(0, 9) == b"123456"


def test_a_failed_flush_loses_its_pages() -> None:
    """The flush after a failed one succeeds, and still the bytes of the first are gone after a crash."""
    disk = FaultyFiles()
    file = disk.open("a", create=True)
    disk.flush_directory("")
    file.write([b"1"], 0)
    disk.fail_flush()
    with pytest.raises(StorageFailed):
        file.flush()
    file.flush()
    assert file.read(0, 1) == b"1"
    assert disk.crash().open("a").size() == 0


def test_a_full_disk_takes_what_fits() -> None:
    """The write that fills the disk is short, the next one fails, and room makes it work again."""
    disk = FaultyFiles()
    file = disk.open("a", create=True)
    disk.space_bytes = 3
    assert file.write([b"1234"], 0) == 3
    with pytest.raises(StorageFailed):
        file.write([b"4"], 3)
    with pytest.raises(StorageFailed):
        disk.open("b", create=True)
    disk.space_bytes = None
    assert file.write([b"4"], 3) == 1
