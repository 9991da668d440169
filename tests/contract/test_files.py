"""What every implementation of `Files` and `File` must do: the real disk, the one in memory, and the faulty one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.config import BUFFERS_PER_WRITE_MAX
from headwater.errors import StorageFailed
from headwater.log import DiskFiles, File, Files
from headwater.testing.files import FaultyFiles, MemoryFiles

DISKS: dict[str, Callable[[Path], Files]] = {
    "disk": DiskFiles,
    "memory": lambda _: MemoryFiles(),
    "faulty": lambda _: FaultyFiles(),
}


@pytest.fixture(params=DISKS)
def files(request, tmp_path: Path) -> Files:
    return DISKS[request.param](tmp_path)


def test_it_is_the_seam(files: Files) -> None:
    """Each implementation has the methods of the seam, and the seam has no more than eight."""
    assert isinstance(files, Files)
    assert isinstance(files.open("a", create=True), File)
    for seam in (Files, File):
        assert len([name for name in vars(seam) if callable(getattr(seam, name)) and name[0] != "_"]) <= 8


def test_written_bytes_are_read_back(files: Files) -> None:
    """Several buffers go to one position, back to back; another opening of the file sees them."""
    file = files.open("a", create=True)
    assert file.write([b"one", bytearray(b"two"), memoryview(b"three")], 0) == 11
    assert file.write([b"2"], 1) == 1
    assert file.read(0, 100) == b"o2etwothree"
    assert files.open("a").read(3, 3) == b"two"
    assert file.size() == files.open("a").size() == 11
    file.flush()


def test_reading_beyond_the_end_gives_what_is_there(files: Files) -> None:
    """A read that begins or ends beyond the end of a file is short, not an error."""
    file = files.open("a", create=True)
    file.write([b"abc"], 0)
    assert file.read(2, 10) == b"c"
    assert file.read(3, 10) == b""
    assert file.read(99, 10) == b""


def test_more_buffers_than_the_kernel_takes_are_written(files: Files) -> None:
    """A write of more buffers than fit into one system call is one write all the same."""
    count = 2 * BUFFERS_PER_WRITE_MAX + 7
    file = files.open("a", create=True)
    assert file.write([b"%07d" % number for number in range(count)], 0) == 7 * count
    assert file.read(7 * (count - 1), 7) == b"%07d" % (count - 1)


def test_a_cut_forgets_the_rest(files: Files) -> None:
    """After a cut the file ends there, and can grow again."""
    file = files.open("a", create=True)
    file.write([b"abcdef"], 0)
    file.cut(2)
    assert (file.size(), file.read(0, 10)) == (2, b"ab")
    file.write([b"X"], 2)
    assert file.read(0, 10) == b"abX"


def test_the_descriptor_can_be_sent_from(files: Files) -> None:
    """`fileno` is a descriptor of the file's own bytes."""
    file = files.open("a", create=True)
    file.write([b"abcdef"], 0)
    assert os.pread(file.fileno(), 3, 2) == b"cde"


def test_only_asked_for_files_are_made(files: Files) -> None:
    """Opening what is not there is an error, unless it is to be made, and then only in a directory that is there."""
    with pytest.raises(StorageFailed):
        files.open("a")
    with pytest.raises(StorageFailed):
        files.open("no/such", create=True)
    with pytest.raises(StorageFailed):
        files.open("")
    assert files.names("") == []


def test_directories_list_their_names(files: Files) -> None:
    """Parents are made too; each directory lists its own names; one that is absent lists none."""
    files.make_directory("x/y")
    files.make_directory("x/y")
    files.open("x/y/file", create=True)
    files.flush_directory("x/y")
    assert files.names("") == ["x"]
    assert files.names("x") == ["y"]
    assert files.names("x/y") == ["file"]
    assert files.names("elsewhere") == []


def test_a_rename_replaces(files: Files) -> None:
    """The target becomes the source; who holds the old target keeps it."""
    for name in ("a", "b"):
        files.open(name, create=True).write([name.encode()], 0)
    old = files.open("b")
    files.rename("a", "b")
    assert files.names("") == ["b"]
    assert files.open("b").read(0, 9) == b"a"
    assert old.read(0, 9) == b"b"
    with pytest.raises(StorageFailed):
        files.rename("a", "c")


def test_a_deleted_file_can_be_read_by_who_holds_it(files: Files) -> None:
    """Deleting takes the name; the bytes stay for those who have the file open."""
    file = files.open("a", create=True)
    file.write([b"still here"], 0)
    files.delete("a")
    files.delete("a")
    assert files.names("") == []
    assert file.read(0, 99) == b"still here"
    assert os.pread(file.fileno(), 99, 0) == b"still here"


def test_only_empty_directories_are_deleted(files: Files) -> None:
    """A directory with a name in it stays."""
    files.make_directory("x")
    files.open("x/a", create=True)
    with pytest.raises(StorageFailed):
        files.delete("x")
    files.delete("x/a")
    files.delete("x")
    assert files.names("") == []
    with pytest.raises(StorageFailed):
        files.flush_directory("x")


def test_a_file_closes_itself(tmp_path: Path) -> None:
    """The real disk's descriptors are given back when the last holder lets go."""
    files = DiskFiles(tmp_path)
    before = _open_count()
    held = [files.open(str(number), create=True) for number in range(50)]
    held.clear()
    after = _open_count()
    assert after <= before + 5


def _open_count() -> int:
    descriptors = Path("/proc/self/fd")
    return len(list(descriptors.iterdir())) if descriptors.exists() else 0
