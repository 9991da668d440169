"""Walking a segment's batches by their own lengths and checksums: what recovery, verification and `check` rest on."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from headwater.batch import HEADER_BYTES, Batch, crc_ok, parse
from headwater.config import READ_CHUNK_BYTES
from headwater.errors import CorruptBatch
from headwater.log.files import File

_HEAD = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_LENGTH = struct.Struct(">8xi")
_LENGTH_FROM = 12  # the length field counts what follows it
# From the magic byte on: 2, any checksum, attributes of which only the low seven bits are defined.
_MAGIC_AND_ATTRIBUTES = re.compile(rb"\x02(?=[\x00-\xff]{4}\x00[\x00-\x7f])")
_MAGIC_AT = 16
HEAD_BYTES = _HEAD.size


class Bad(Exception):
    """The first place in a segment where no right batch lies. The log's own: never leaves this room."""

    def __init__(self, position: int, offset: int, why: str) -> None:
        super().__init__(why)
        self.position, self.offset, self.why = position, offset, why


class Head(NamedTuple):
    """As much of a batch as it takes to step over it."""

    position: int
    base_offset: int
    next_offset: int
    length: int


def walk(file: File, position: int, end: int, offset: int) -> Iterator[tuple[int, Batch]]:
    """Each batch in [position, end), checked: its checksum, and that it follows at `offset`. Raises `Bad` otherwise."""
    chunk, chunk_at = memoryview(b""), position
    while position < end:
        at = position - chunk_at
        length = _length_at(chunk, at)
        if length is None or at + length > len(chunk):
            wanted = max(READ_CHUNK_BYTES, min(length or 0, end - position))
            chunk, chunk_at, at = memoryview(file.read(position, min(wanted, end - position))), position, 0
            length = _length_at(chunk, 0)
            if length is not None and len(chunk) < length <= end - position:
                chunk = memoryview(file.read(position, length))
        try:
            batch = parse(chunk, at)
        except CorruptBatch as why:
            raise Bad(position, offset, str(why)) from None
        if not crc_ok(batch):
            raise Bad(position, offset, "a batch does not match its checksum")
        if batch.base_offset != offset or batch.last_offset_delta < 0:
            raise Bad(position, offset, f"a batch begins at offset {batch.base_offset}, {offset} had to follow")
        yield position, batch
        position += batch.length
        offset = batch.next_offset


def heads(file: File, position: int, end: int) -> Iterator[Head]:
    """Steps over batches that are known to be right, reading little more than their headers."""
    chunk, chunk_at = b"", position
    while position < end:
        at = position - chunk_at
        if at + HEAD_BYTES > len(chunk):
            chunk, chunk_at, at = file.read(position, min(4096, end - position)), position, 0
            if len(chunk) < HEAD_BYTES:
                raise Bad(position, -1, "a batch header was cut")
        base_offset, length, last_offset_delta = _HEAD.unpack_from(chunk, at)
        length += _LENGTH_FROM
        if length < HEADER_BYTES:
            raise Bad(position, -1, "a batch has a negative length")
        yield Head(position, base_offset, base_offset + last_offset_delta + 1, length)
        position += length


def lies_after(file: File, position: int, end: int, offset: int) -> bool:
    """Whether a right batch of an offset from `offset` on lies anywhere in [position, end).

    After a bad place lengths lead nowhere, so every place that looks like the middle of a header is tried. The chunks
    overlap by a header, so that none is missed between two.
    """
    while position < end:
        length = min(READ_CHUNK_BYTES, end - position)
        chunk = file.read(position, length)
        for found in _MAGIC_AND_ATTRIBUTES.finditer(chunk):
            if _is_batch(file, position + found.start() - _MAGIC_AT, end, offset):
                return True
        if length < READ_CHUNK_BYTES:
            return False
        position += length - HEADER_BYTES
    return False


def _is_batch(file: File, position: int, end: int, offset: int) -> bool:
    if position < 0:
        return False
    header = file.read(position, HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return False
    base_offset, length, last_offset_delta = _HEAD.unpack_from(header)
    length += _LENGTH_FROM
    if base_offset < offset or last_offset_delta < 0 or not HEADER_BYTES <= length <= end - position:
        return False
    try:
        return crc_ok(parse(memoryview(file.read(position, length))))
    except CorruptBatch:
        return False


def _length_at(chunk: memoryview, at: int) -> int | None:
    if at + _LENGTH.size > len(chunk):
        return None
    return int(_LENGTH.unpack_from(chunk, at)[0]) + _LENGTH_FROM
