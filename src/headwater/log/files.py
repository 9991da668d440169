"""The disk as the log sees it: two narrow seams, and the real disk behind them.

`Files` is a data directory: names, directories, and what makes a name durable. `File` is one open file: bytes at
positions, and what makes bytes durable. The two are apart on purpose, as they are on disk: flushing a file does not
make its name survive a power cut, flushing its directory does not make its bytes survive one.

Every method raises `StorageFailed` and nothing else. A file closes itself when its last holder lets go of it: a range
that is being sent holds its file, so the log may delete a segment that somebody still reads.

Other implementations (in memory, and one that fails on command) are in `headwater.testing.files`; all of them pass
`tests/contract/test_files.py`.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from headwater.config import BUFFERS_PER_WRITE_MAX, DESCRIPTORS_FOR_CLIENTS, DESCRIPTORS_FOR_FLUSHES
from headwater.errors import StorageFailed

Buffer = bytes | bytearray | memoryview

# fdatasync also writes the size when it changed; where there is none (macOS), fsync does the same work.
_flush_bytes = getattr(os, "fdatasync", os.fsync)


@runtime_checkable
class File(Protocol):
    """One open file."""

    def read(self, position: int, length: int) -> bytes:
        """Bytes from `position` on; fewer than `length` only at the end of the file."""

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Writes the buffers one after another from `position` on; how many bytes got there (a full disk: fewer)."""

    def flush(self) -> None:
        """Returns when every byte that was written before the call would survive a power cut."""

    def cut(self, size: int) -> None:
        """Forgets all bytes from `size` on."""

    def size(self) -> int: ...

    def fileno(self) -> int:
        """A descriptor for `sendfile`; valid as long as somebody holds this object."""


@runtime_checkable
class Files(Protocol):
    """A directory tree; paths are relative, with `/`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """With `create` an absent file is made, in a directory that must exist."""

    def names(self, directory: str) -> list[str]:
        """The names in it; none when there is no such directory."""

    def make_directory(self, path: str) -> None:
        """With its parents; no error when it is there."""

    def rename(self, source: str, target: str) -> None:
        """Replaces `target` if it is there: whoever looks sees the old one or the new one."""

    def delete(self, path: str) -> None:
        """A file or an empty directory; no error when it is gone already."""

    def flush_directory(self, path: str) -> None:
        """Returns when the names in `path`, as they are now, would survive a power cut."""


class DiskFile:
    """A file by its descriptor, which it owns."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    def __del__(self) -> None:
        os.close(self._descriptor)

    def read(self, position: int, length: int) -> bytes:
        try:
            data = os.pread(self._descriptor, length, position)
            while len(data) < length:  # the kernel may stop early for other reasons than the end of the file
                more = os.pread(self._descriptor, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as why:
            raise _failed("read", self._path, why) from why
        return data

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        try:
            if len(buffers) <= BUFFERS_PER_WRITE_MAX:
                return os.pwritev(self._descriptor, buffers, position)
            return self._write_many(buffers, position)
        except OSError as why:
            raise _failed("write", self._path, why) from why

    def _write_many(self, buffers: Sequence[Buffer], position: int) -> int:
        written = 0
        for first in range(0, len(buffers), BUFFERS_PER_WRITE_MAX):
            some = buffers[first : first + BUFFERS_PER_WRITE_MAX]
            count = os.pwritev(self._descriptor, some, position + written)
            written += count
            if count < sum(map(len, some)):
                break
        return written

    def flush(self) -> None:
        try:
            _flush_bytes(self._descriptor)
        except OSError as why:
            raise _failed("flush", self._path, why) from why

    def cut(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as why:
            raise _failed("cut", self._path, why) from why

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as why:
            raise _failed("measure", self._path, why) from why

    def fileno(self) -> int:
        return self._descriptor


class DiskFiles:
    """The real disk, below `root`."""

    def __init__(self, root: str | Path) -> None:
        self._root = os.fspath(root)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            file = DiskFile(os.open(self._place(path), flags, 0o600), path)
        except OSError as why:
            raise _failed("open", path, why) from why
        if is_among_the_last(file.fileno(), DESCRIPTORS_FOR_CLIENTS + DESCRIPTORS_FOR_FLUSHES):
            raise _failed("open", path, OSError(errno.EMFILE, "too many open files: raise `ulimit -n`"))
        return file

    def names(self, directory: str) -> list[str]:
        try:
            return [one.name for one in Path(self._place(directory)).iterdir()]
        except FileNotFoundError:
            return []
        except OSError as why:
            raise _failed("list", directory, why) from why

    def make_directory(self, path: str) -> None:
        try:
            Path(self._place(path)).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as why:
            raise _failed("make the directory", path, why) from why

    def rename(self, source: str, target: str) -> None:
        try:
            Path(self._place(source)).rename(self._place(target))
        except OSError as why:
            raise _failed("rename", source, why) from why

    def delete(self, path: str) -> None:
        place = Path(self._place(path))
        try:
            if place.is_dir():
                place.rmdir()
            else:
                place.unlink()
        except FileNotFoundError:
            return
        except OSError as why:
            raise _failed("delete", path, why) from why

    def flush_directory(self, path: str) -> None:
        try:
            descriptor = os.open(self._place(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as why:
            raise _failed("flush the directory", path, why) from why

    def _place(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def is_among_the_last(descriptor: int, kept_count: int) -> bool:
    """Whether it is one of the last descriptors of this process; the kernel always gives the lowest that is free."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit != resource.RLIM_INFINITY and descriptor >= limit - min(kept_count, limit // 2)


def _failed(what: str, path: str, why: OSError) -> StorageFailed:
    return StorageFailed(f"could not {what} {path or 'the data directory'} ({why.strerror}): look at the disk")
