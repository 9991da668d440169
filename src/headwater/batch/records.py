"""Records to a batch and back. For readers, tools and tests: the broker never opens a batch.

A record: length varint, attributes (unused), timestamp delta, offset delta, key and value each with a length (-1: null),
count of headers, each a name and a value. All of it zigzag varints, all of it hostile until its length was checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from headwater.batch.compression import packed, unpacked
from headwater.batch.header import CRC_FROM, HEADER, HEADER_BYTES, MAGIC, Batch, Codec
from headwater.batch.varint import read_varint, write_varint
from headwater.config import ARRAY_ITEMS_MAX, INFLATED_BYTES_MAX
from headwater.errors import CorruptBatch, RecordTooLarge
from headwater.model import bytes_of, text_of

RECORD_BYTES_MIN = 7  # seven varints of one byte
HEADER_ITEM_BYTES_MIN = 2


class BatchRecord(NamedTuple):
    """One record of a batch. A tuple, since thousands are made at once."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode(
    records: Iterable[BatchRecord],
    *,
    base_offset: int | None = None,
    epoch: int = -1,
    codec: int = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """A batch of `records`, in the order of their offsets. `base_offset`: as the first record says, unless given."""
    listed = list(records)
    if not listed:
        raise ValueError("a batch has at least one record")
    first = listed[0]
    payload = bytearray()
    for record in listed:
        body = _record_body(record, record.timestamp_ms - first.timestamp_ms, record.offset - first.offset)
        write_varint(payload, len(body))
        payload += body
    out = bytearray(HEADER_BYTES)
    out += packed(payload, codec)
    HEADER.pack_into(
        out, 0,
        first.offset if base_offset is None else base_offset,
        len(out) - 12,
        epoch,
        MAGIC,
        0,
        attributes | codec,
        listed[-1].offset - first.offset,
        first.timestamp_ms,
        max(record.timestamp_ms for record in listed),
        producer_id,
        producer_epoch,
        base_sequence,
        len(listed),
    )  # fmt: skip
    out[17:21] = crc32c(memoryview(out)[CRC_FROM:]).to_bytes(4, "big")
    return bytes(out)


def decode(batch: Batch, *, bytes_max: int = INFLATED_BYTES_MAX) -> list[BatchRecord]:
    """The records of a batch. What contradicts the header is `CorruptBatch`; the checksum is `crc_ok`'s business."""
    payload = unpacked(batch.view[HEADER_BYTES:], batch.codec, bytes_max=bytes_max)
    count = batch.count
    if count < 0 or count * RECORD_BYTES_MIN > len(payload):
        raise CorruptBatch(f"a batch says it has {count} records, in {len(payload)} bytes")
    if count > ARRAY_ITEMS_MAX:
        raise RecordTooLarge(f"a batch of {count} records: {ARRAY_ITEMS_MAX} can be opened at once")
    try:
        return _Reader(batch, bytes(payload)).records()
    except (IndexError, ValueError) as error:
        raise CorruptBatch(f"the records of a batch end too early, or are not records: {error}") from None


class _Reader:
    __slots__ = ("batch", "headers_left", "payload")

    def __init__(self, batch: Batch, payload: bytes) -> None:
        self.batch, self.payload = batch, payload
        self.headers_left = ARRAY_ITEMS_MAX  # over the whole batch: two bytes each on the wire, a hundred in memory

    def records(self) -> list[BatchRecord]:
        payload, end = self.payload, len(self.payload)
        found = []
        at, delta_min = 0, 0
        for _ in range(self.batch.count):
            size, at = read_varint(payload, at)
            if size < 0 or size > end - at:
                raise CorruptBatch(f"a record says it has {size} bytes, {end - at} are left")
            record = self.record(at, at + size, delta_min)
            delta_min = record.offset - self.batch.base_offset + 1
            found.append(record)
            at += size
        if at != end:
            raise CorruptBatch(f"{end - at} bytes follow the last of {self.batch.count} records")
        return found

    def record(self, at: int, end: int, delta_min: int) -> BatchRecord:
        batch, payload = self.batch, self.payload
        timestamp_delta, at = read_varint(payload, at + 1)
        delta, at = read_varint(payload, at)
        if not delta_min <= delta <= batch.last_offset_delta:
            raise CorruptBatch(
                f"a record with offset delta {delta}, where {delta_min} to {batch.last_offset_delta} can be"
            )
        timestamp = batch.max_timestamp if batch.is_append_time else batch.base_timestamp + timestamp_delta
        if timestamp > batch.max_timestamp:
            raise CorruptBatch(
                f"a record of time {timestamp}, later than the latest of its batch, {batch.max_timestamp}"
            )
        key, at = self.field(at, end)
        value, at = self.field(at, end)
        count, at = read_varint(payload, at)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if count:
            headers, at = self.headers(count, at, end)
        if at != end:
            raise CorruptBatch("a record's length is not that of its parts")
        return BatchRecord(batch.base_offset + delta, timestamp, key, value, headers)

    def field(self, at: int, end: int) -> tuple[bytes | None, int]:
        size, at = read_varint(self.payload, at)
        if size < 0:
            if size != -1:
                raise CorruptBatch(f"a key, value or header of {size} bytes")
            return None, at
        stop = at + size
        if stop > end:
            raise CorruptBatch(f"a key, value or header of {size} bytes, {end - at} are left in its record")
        return self.payload[at:stop], stop

    def headers(self, count: int, at: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
        if count < 0 or count * HEADER_ITEM_BYTES_MIN > end - at:
            raise CorruptBatch(f"a record says it has {count} headers, in {end - at} bytes")
        self.headers_left -= count
        if self.headers_left < 0:
            raise RecordTooLarge(f"a batch with more than {ARRAY_ITEMS_MAX} headers")
        found = []
        for _ in range(count):
            name, at = self.field(at, end)
            if name is None:
                raise CorruptBatch("a header without a name")
            value, at = self.field(at, end)
            found.append((text_of(name), value))
        return tuple(found), at


def _record_body(record: BatchRecord, timestamp_delta: int, offset_delta: int) -> bytearray:
    body = bytearray(1)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    for part in (record.key, record.value):
        _write_field(body, part)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_field(body, bytes_of(name))
        _write_field(body, value)
    return body


def _write_field(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # -1, zigzag
    else:
        write_varint(out, len(value))
        out += value
