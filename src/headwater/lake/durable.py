"""Local files that are on the disk before anybody names them.

A commit is durable in SQLite; it must not survive a power cut that its files did not. pyiceberg writes manifests and
metadata without flushing them, so the catalog is given this FileIO: a local file is flushed when it is closed, and so
are the directories that lead to it. Object stores are durable by themselves and pass through.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class DurableFileIO(PyArrowFileIO):  # type: ignore[misc]
    """pyiceberg's own FileIO, with local writes flushed. Set as `py-io-impl` in the catalog's properties."""

    def new_output(self, location: str) -> Any:
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _LocalFile(location=location, path=path, fs=self.fs_by_scheme("file", ""))


class _LocalFile(PyArrowFile):  # type: ignore[misc]
    def create(self, overwrite: bool = False) -> Any:
        make_directories(Path(self._path).parent)
        return _FlushedStream(super().create(overwrite=overwrite), Path(self._path))

    def to_input_file(self) -> Any:
        return self


class _FlushedStream:
    """A stream of pyarrow whose `close` returns when the bytes, and the name, are on the disk."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream, self._path = stream, path

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def write(self, data: Any) -> int:
        return int(self._stream.write(data))

    def tell(self) -> int:
        return int(self._stream.tell())

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        if self._stream.closed:
            return
        self._stream.close()
        flush_path(self._path)
        flush_path(self._path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def make_directories(path: Path) -> None:
    """Like `mkdir -p`, with the name of each new directory flushed into its parent."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        flush_path(one.parent)


def flush_path(path: Path) -> None:
    """Makes a file's bytes, or a directory's names, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
