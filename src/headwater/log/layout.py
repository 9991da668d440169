"""Where a partition's files lie, and the checksummed form of those that are ours alone.

    streams/<first 2 hex of the id>/<stream id, 32 hex>/
        <partition>-<base offset, 20 digits>.log         a Kafka segment, nothing of ours in it
        <partition>-<base offset, 20 digits>.index       where offsets and epochs begin     (a cache)
        <partition>-<base offset, 20 digits>.time        where times begin                  (a cache)
        <partition>-<base offset, 20 digits>.producers   what producers wrote last          (a cache)
        <partition>.checkpoint                           what is known to be durable, and where recovery begins

By id and never by name: a disk may not tell `A` from `a`, and names are used again while ids never are.

A sidecar is a header of 64 bytes and a body, both under CRC-32. A sidecar that is cut, flipped, of another stream or
absent is the same thing: no sidecar. Only one of a newer format is an error, since it may say what this version does
not understand. docs/internals/log_format.md draws the bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from zlib import crc32

from headwater.config import FORMAT_VERSION
from headwater.errors import FormatTooNew, StorageFailed
from headwater.log.files import Files
from headwater.model import PartitionIndex, StreamId

HEADER = struct.Struct(">4sHH16sIQQQII")  # and the CRC-32 of these 60 bytes
HEADER_BYTES = HEADER.size + 4
_CRC = struct.Struct(">I")

INDEX, TIME, PRODUCERS, CHECKPOINT = b"HWix", b"HWtm", b"HWps", b"HWck"


def stream_directory(stream_id: StreamId) -> str:
    name = stream_id.hex()
    return f"streams/{name[:2]}/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A partition of a stream, as its files know it."""

    stream_id: StreamId
    partition: PartitionIndex

    @property
    def directory(self) -> str:
        return stream_directory(self.stream_id)

    @property
    def directories(self) -> tuple[str, ...]:
        """Every directory in which a name has to be durable before this partition's files can be found again."""
        parent, _, _ = self.directory.rpartition("/")
        return self.directory, parent, "streams", ""

    def path(self, base_offset: int, suffix: str) -> str:
        return f"{self.directory}/{self.partition}-{base_offset:020d}.{suffix}"

    @property
    def checkpoint_path(self) -> str:
        return f"{self.directory}/{self.partition}.checkpoint"

    def names(self, files: Files) -> list[str]:
        """The names of all files of this partition."""
        mine = (f"{self.partition}-", f"{self.partition}.")
        return [name for name in files.names(self.directory) if name.startswith(mine)]

    def segments(self, files: Files) -> list[int]:
        """The base offsets of its segments, ascending."""
        bases = []
        for name in self.names(files):
            stem, _, suffix = name.partition(".")
            _, _, digits = stem.partition("-")
            if suffix == "log" and len(digits) == 20 and digits.isdigit():
                bases.append(int(digits))
        return sorted(bases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """A body, and up to where in the log it speaks: the next offset, and the position in the segment."""

    offset: int
    position: int
    body: bytes


def pack_header(
    magic: bytes, place: Place, base_offset: int, *, offset: int = 0, position: int = 0, body: bytes = b""
) -> bytes:
    head = HEADER.pack(
        magic, FORMAT_VERSION, 0, place.stream_id, place.partition, base_offset, offset, position, len(body), crc32(body)
    )  # fmt: skip
    return head + _CRC.pack(crc32(head))


def unpack_header(
    raw: bytes, magic: bytes, place: Place, base_offset: int, path: str
) -> tuple[int, int, int, int] | None:
    """(offset, position, body's length, body's checksum), or None when these bytes are no header of that file."""
    if len(raw) < HEADER_BYTES or _CRC.unpack_from(raw, HEADER.size)[0] != crc32(raw[: HEADER.size]):
        return None
    found, version, _, stream_id, partition, base, offset, position, length, checksum = HEADER.unpack_from(raw)
    if version > FORMAT_VERSION:
        raise FormatTooNew(
            f"{path} is of format {version}, this Headwater knows {FORMAT_VERSION}: upgrade it, or choose --data"
        )
    if (found, stream_id, partition, base) != (magic, place.stream_id, place.partition, base_offset):
        return None
    return offset, position, length, checksum


def write_sidecar(files: Files, path: str, header: bytes, body: bytes) -> None:
    """Replaces `path` in one step. Not flushed: what a power cut takes of it, its checksums show."""
    fresh = f"{path}.new"
    file = files.open(fresh, create=True)
    file.cut(0)
    if file.write([header, body], 0) < len(header) + len(body):
        files.delete(fresh)
        raise StorageFailed(f"could not write {path} (no space left): make room on the disk")
    files.rename(fresh, path)


def read_sidecar(files: Files, magic: bytes, place: Place, base_offset: int, suffix: str) -> Sidecar | None:
    path = place.path(base_offset, suffix)
    try:
        file = files.open(path)
        raw = file.read(0, file.size())
    except StorageFailed:
        return None  # absent, or as good as absent: the log itself says the same, slower
    fields = unpack_header(raw, magic, place, base_offset, path)
    if fields is None:
        return None
    offset, position, length, checksum = fields
    body = raw[HEADER_BYTES:]
    if len(body) != length or crc32(body) != checksum:
        return None
    return Sidecar(offset=offset, position=position, body=body)
