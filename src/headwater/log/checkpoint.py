"""`<partition>.checkpoint`: what is known to be durable, and from where a start has to read the log again.

The file is a header and two slots, a sector apart, that are written in turn: a torn write spoils one, the other still
holds. A slot is written *after* the flush it speaks of and need not be flushed itself: whatever a power cut leaves of
the file, what it says was true. So the note costs one small write per flush, and no second flush.

    mark      recovery reads the log from here on; everything a sidecar could say up to here has been written
    durable   what lies below this offset was flushed: if it is bad, it has rotted; above it, it may just be torn

Only the closing of a partition flushes the file, and its creation: a log never outlives a checkpoint.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from zlib import crc32

from headwater.errors import StorageFailed
from headwater.log.files import File, Files
from headwater.log.layout import CHECKPOINT, HEADER_BYTES, Place, pack_header, unpack_header

SECTOR_BYTES = 512
_SLOT = struct.Struct(">QiIQQQQ")  # sequence, epoch, zero, mark: base, position, offset; durable offset; then CRC-32
_CRC = struct.Struct(">I")
SLOT_BYTES = _SLOT.size + _CRC.size
_SLOTS = (SECTOR_BYTES, 2 * SECTOR_BYTES)
EVERYTHING = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place between two batches."""

    base_offset: int  # of the segment
    position: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What a checkpoint says. Without one nothing is known, so everything must be taken for durable."""

    mark: Mark | None = None
    durable: int = EVERYTHING
    epoch: int = -1


class Checkpoint:
    """The file of one partition, open for writing."""

    __slots__ = ("_file", "_sequence")

    def __init__(self, file: File, sequence: int) -> None:
        self._file = file
        self._sequence = sequence

    @classmethod
    def create(cls, files: Files, place: Place, epoch: int, first_offset: int) -> Checkpoint:
        """Written before the first segment: a log whose checkpoint is empty never completed a flush."""
        file = files.open(place.checkpoint_path, create=True)
        file.cut(0)
        header = pack_header(CHECKPOINT, place, 0)
        checkpoint = cls(file, 0)
        if file.write([header], 0) < len(header):
            raise StorageFailed("could not write a checkpoint (no space left): make room on the disk")
        checkpoint.note(Mark(base_offset=first_offset, position=0, offset=first_offset), first_offset, epoch)
        return checkpoint

    @classmethod
    def load(cls, files: Files, place: Place) -> tuple[Checkpoint | None, Noted]:
        """The file, if there is one that can be written on, and what it says."""
        try:
            file = files.open(place.checkpoint_path)
            raw = file.read(0, 3 * SECTOR_BYTES)
        except StorageFailed:
            return None, Noted()
        if unpack_header(raw[:HEADER_BYTES], CHECKPOINT, place, 0, place.checkpoint_path) is None:
            return None, Noted(durable=_blank_or(raw[:HEADER_BYTES]))
        sequence, noted = -1, Noted(durable=_blank_or(raw[SECTOR_BYTES:]))
        for at in _SLOTS:
            found = _unpack(raw[at : at + SLOT_BYTES])
            if found is not None and found[0] > sequence:
                sequence, noted = found
        return cls(file, max(0, sequence + 1)), noted

    def note(self, mark: Mark, durable: int, epoch: int) -> None:
        body = _SLOT.pack(self._sequence, epoch, 0, mark.base_offset, mark.position, mark.offset, durable)
        if self._file.write([body + _CRC.pack(crc32(body))], _SLOTS[self._sequence % 2]) == SLOT_BYTES:
            self._sequence += 1

    def flush(self) -> None:
        self._file.flush()


def _blank_or(raw: bytes) -> int:
    """Blank was never flushed, and it is flushed before any log: then nothing of the log is durable. Else it rotted."""
    return EVERYTHING if raw.strip(b"\0") else 0


def _unpack(raw: bytes) -> tuple[int, Noted] | None:
    if len(raw) < SLOT_BYTES or _CRC.unpack_from(raw, _SLOT.size)[0] != crc32(raw[: _SLOT.size]):
        return None
    sequence, epoch, _, base_offset, position, offset, durable = _SLOT.unpack_from(raw)
    mark = Mark(base_offset=base_offset, position=position, offset=offset)
    return sequence, Noted(mark=mark, durable=durable, epoch=epoch)
