"""A range of a segment's file, to be sent as it is."""

from __future__ import annotations

from headwater.log.files import File


class Slice:
    """Whole batches in a file. Holding it holds the file open, even when the segment is deleted meanwhile."""

    __slots__ = ("_file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self._file, self.position, self.length = file, position, length

    def fileno(self) -> int:
        return self._file.fileno()

    def bytes(self) -> bytes:
        """A copy, for those who cannot `sendfile`."""
        return self._file.read(self.position, self.length)

    def __repr__(self) -> str:
        return f"Slice(position={self.position}, length={self.length})"
