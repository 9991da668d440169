"""The 61 bytes before a batch's records, and everything that can be said of a batch by them alone.

    0 base offset i64 | 8 length i32 (of what follows it) | 12 epoch i32 | 16 magic i8 | 17 CRC32C u32 (of all from 21 on)
    21 attributes i16 | 23 last offset delta i32 | 27 base timestamp i64 | 35 max timestamp i64
    43 producer id i64 | 51 producer epoch i16 | 53 base sequence i32 | 57 record count i32 | 61 records

Kafka opens each batch that a client sends and counts its records. We don't: that would cost more than all the rest of a
Produce request. A payload that contradicts its header is found by whoever opens it (`decode`), as a named error.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from crc32c import crc32c

from headwater.config import TIMESTAMP_AHEAD_MAX_MS
from headwater.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    UnsupportedCompression,
)

HEADER_BYTES = 61
MAGIC = 2
HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_FROM = 21  # the checksum covers all from here on
_LENGTH_FROM = 12  # the length field counts from here on
_MAGIC_AT = 16
_EPOCH_AT = 12
_CODEC_MASK, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_TIME_END = 2**63
_SEQUENCE_END = 2**31  # sequence numbers begin again at 0 after 2^31 - 1

_pack_offset = struct.Struct(">q").pack_into
_pack_epoch = struct.Struct(">i").pack_into
_read_length = struct.Struct(">i").unpack_from


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS_END = len(Codec)


class Batch:
    """A batch's header, and `view`: exactly its bytes, where they lie. A plain class: one is made per request."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
        "epoch",
        "last_offset_delta",
        "length",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "view",
    )

    base_offset: int
    epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.length = len(view)
        (
            self.base_offset,
            _,
            self.epoch,
            _,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = HEADER.unpack_from(view)

    @property
    def codec(self) -> int:
        """A `Codec`, or 5 to 7, which nobody has defined."""
        return self.attributes & _CODEC_MASK

    @property
    def is_append_time(self) -> bool:
        """All its records have the time the broker wrote them: `max_timestamp`."""
        return bool(self.attributes & _APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_END

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    def __repr__(self) -> str:
        return f"Batch({self.count} records from offset {self.base_offset}, {self.length} bytes)"


def parse(view: memoryview, at: int = 0) -> Batch:
    """The batch that begins at `at`. Only `CorruptBatch` comes out; the checksum is `crc_ok`'s business."""
    left = len(view) - at
    if left < HEADER_BYTES:
        raise CorruptBatch(f"{left} bytes are left, a batch header has {HEADER_BYTES}: the batch was cut")
    length = _LENGTH_FROM + _read_length(view, at + 8)[0]
    if length < HEADER_BYTES:
        raise CorruptBatch(f"a batch says it has {length} bytes, its header alone has {HEADER_BYTES}")
    if length > left:
        raise CorruptBatch(f"a batch says it has {length} bytes, {left} are left: it was cut")
    if view[at + _MAGIC_AT] != MAGIC:
        raise CorruptBatch(f"a batch of format {view[at + _MAGIC_AT]}, where only {MAGIC} is stored")
    return Batch(view[at : at + length])


def split(records: memoryview | None, *, batches_max: int = 1) -> list[Batch]:
    """The batches back to back in `records`. As Kafka wants it, a Produce request has one for a partition, not more."""
    if not records:
        raise InvalidRecord("no record batch for this partition: a Produce request has one")
    batches: list[Batch] = []
    at, end = 0, len(records)
    while at < end:
        if len(batches) == batches_max:
            raise InvalidRecord(f"more than {batches_max} record batches for one partition")
        if end - at > _MAGIC_AT and records[at + _MAGIC_AT] < MAGIC:
            raise InvalidRecord(
                f"a batch of format {records[at + _MAGIC_AT]}: only {MAGIC} is served, which every client"
                " since Kafka 0.11 can send"
            )
        batch = parse(records, at)
        batches.append(batch)
        at += batch.length
    return batches


def crc_ok(batch: Batch) -> bool:
    return bool(crc32c(batch.view[CRC_FROM:]) == batch.crc)


def check(batch: Batch, *, bytes_max: int, now_ms: int) -> None:
    """Refuses what a client must not write, by the header and the checksum; says why.

    Codes are those of Kafka 4.3. It repairs two things that are refused here, since a repair needs a new checksum: a
    latest time that is not that of the records, and the broker's mark that it wrote the time.
    """
    if batch.length > bytes_max:
        raise RecordTooLarge(f"a batch of {batch.length} bytes: {bytes_max} are allowed")
    if not crc_ok(batch):
        raise CorruptBatch("a batch's checksum is not that of its bytes: they were damaged on the way")
    attributes = batch.attributes
    if attributes:
        _check_attributes(attributes)
    count = batch.count
    if count < 1 or batch.last_offset_delta != count - 1:
        raise InvalidRecord(f"a batch of {count} records whose last offset delta is {batch.last_offset_delta}")
    if batch.base_offset:
        raise InvalidRecord(f"a batch with base offset {batch.base_offset}: a writer sends 0, the log gives the offset")
    _check_timestamps(batch.base_timestamp, batch.max_timestamp, now_ms)
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise InvalidRecord(
            f"a batch of producer {batch.producer_id} with sequence {batch.base_sequence} and"
            f" producer epoch {batch.producer_epoch}: neither may be negative"
        )


def stamp(batch: Batch, base_offset: int, epoch: int) -> None:
    """Where the log puts the batch, written into its bytes. The payload and the checksum stay as they are."""
    _pack_offset(batch.view, 0, base_offset)
    _pack_epoch(batch.view, _EPOCH_AT, epoch)
    batch.base_offset, batch.epoch = base_offset, epoch


def _check_attributes(attributes: int) -> None:
    if attributes & _CONTROL:
        raise InvalidRecord("a control batch: clients are not allowed to write those")
    if attributes & _TRANSACTIONAL:
        raise InvalidRecord("a transactional batch: transactions are not served")
    if attributes & _APPEND_TIME:
        raise InvalidTimestamp("a batch that claims the time of its append: only a broker can say that")
    if attributes & _CODEC_MASK >= CODECS_END:
        raise UnsupportedCompression(f"codec {attributes & _CODEC_MASK} is unknown: 0 to {CODECS_END - 1} are served")


def _check_timestamps(base_timestamp: int, max_timestamp: int, now_ms: int) -> None:
    if max_timestamp < base_timestamp:
        raise InvalidTimestamp(
            f"a batch whose first record's time {base_timestamp} is later than its latest, {max_timestamp}"
        )
    if base_timestamp - now_ms < -_TIME_END:
        raise InvalidTimestamp(f"a batch with time {base_timestamp}: its distance from now has more than 64 bits")
    if max_timestamp - now_ms > TIMESTAMP_AHEAD_MAX_MS:
        raise InvalidTimestamp(
            f"a batch with time {max_timestamp} is more than {TIMESTAMP_AHEAD_MAX_MS} ms ahead of the clock ({now_ms})"
        )
