"""What can be said of a batch by its header and its checksum."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from headwater import errors
from headwater.batch import HEADER_BYTES, BatchRecord, Codec, check, crc_ok, encode, parse, split, stamp
from headwater.config import TIMESTAMP_AHEAD_MAX_MS
from tests.unit.batch.batches import NOW_MS, SOME, changed

RAW = encode(SOME, producer_id=7, producer_epoch=1, base_sequence=40)


def judge(batch, bytes_max=1_000_000):
    check(batch, bytes_max=bytes_max, now_ms=NOW_MS)


def test_parse_reads_every_field():
    """A batch is read where it lies, wherever that is."""
    batch = parse(memoryview(b"before" + RAW + b"after"), 6)
    assert bytes(batch.view) == RAW
    assert (batch.length, batch.count, batch.base_offset, batch.epoch) == (len(RAW), 3, 0, -1)
    assert (batch.attributes, batch.codec, batch.last_offset_delta, batch.next_offset) == (0, 0, 2, 3)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW_MS, NOW_MS + 5)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (7, 1, 40, 42)
    assert not (batch.is_control or batch.is_transactional or batch.is_append_time)
    assert repr(batch) == f"Batch(3 records from offset 0, {len(RAW)} bytes)"


def test_attributes_are_bits():
    """Codec, time type, transaction and control lie in the attributes, as Kafka's format says."""
    batch = changed(RAW, attributes=0x3B)
    assert (batch.codec, batch.is_append_time, batch.is_transactional, batch.is_control) == (3, True, True, True)


def test_sequences_begin_again_at_zero():
    """Sequence numbers wrap at 2^31, as Kafka's clients count."""
    assert changed(RAW, base_sequence=2**31 - 2).last_sequence == 0


@pytest.mark.parametrize("end", [0, 1, 12, 17, HEADER_BYTES - 1, HEADER_BYTES, len(RAW) - 1])
def test_batches_that_were_cut(end: int):
    """A batch that ends early is corrupt, wherever it ends."""
    with pytest.raises(errors.CorruptBatch, match=r"cut|left"):
        parse(memoryview(RAW)[:end])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_lengths_that_lie(length: int):
    """A length that is negative, shorter than a header, or longer than what is there, is refused."""
    with pytest.raises(errors.CorruptBatch):
        changed(RAW, length=length)


def test_other_formats():
    """A writer's old format is refused as Kafka refuses it; in a log, and for a newer one, it is damage."""
    for magic in (1, 3):
        with pytest.raises(errors.CorruptBatch, match=f"format {magic}"):
            changed(RAW, magic=magic)
    with pytest.raises(errors.InvalidRecord, match="format 1"):
        split(memoryview(RAW[:16] + b"\1" + RAW[17:]))
    with pytest.raises(errors.CorruptBatch, match="format 3"):
        split(memoryview(RAW[:16] + b"\3" + RAW[17:]))
    short = memoryview(bytes(8) + (22).to_bytes(4, "big") + bytes(22))  # an empty message of format 0
    with pytest.raises(errors.InvalidRecord, match="format 0"):
        split(short)


def test_one_batch_for_a_partition():
    """The records of a request are one batch, unless more are allowed; none or a rest is refused."""
    assert [bytes(batch.view) for batch in split(memoryview(RAW))] == [RAW]
    for nothing in (None, memoryview(b"")):
        with pytest.raises(errors.InvalidRecord, match="no record batch"):
            split(nothing)
    with pytest.raises(errors.InvalidRecord, match="more than 1"):
        split(memoryview(RAW + RAW))
    assert len(split(memoryview(RAW + RAW), batches_max=2)) == 2
    with pytest.raises(errors.CorruptBatch):
        split(memoryview(RAW + RAW[:30]), batches_max=2)


def test_stamp_writes_in_place():
    """Offset and epoch are written into the bytes; payload and checksum stay as they were."""
    memory = bytearray(RAW)
    batch = parse(memoryview(memory))
    stamp(batch, 2**40, 3)
    again = parse(memoryview(memory))
    assert (again.base_offset, again.epoch, again.next_offset) == (2**40, 3, 2**40 + 3) == (
        batch.base_offset, batch.epoch, batch.next_offset,
    )  # fmt: skip
    assert crc_ok(again)
    assert memory[16:] == RAW[16:]


@given(at=st.integers(21, len(RAW) - 1), bit=st.integers(0, 7))
def test_checksum_sees_every_bit(at: int, bit: int):
    """A flipped bit behind the checksum is found before anything else is believed."""
    memory = bytearray(RAW)
    memory[at] ^= 1 << bit
    batch = parse(memoryview(memory))
    assert not crc_ok(batch)
    with pytest.raises(errors.CorruptBatch, match="checksum"):
        judge(batch)


def test_what_a_client_may_write():
    """Every codec, an idempotent producer or none, and a time up to the allowed lead, are taken."""
    judge(parse(memoryview(RAW)))
    for codec in Codec:
        judge(changed(RAW, attributes=codec))
    judge(changed(RAW, producer_id=-1, producer_epoch=-1, base_sequence=-1))
    judge(changed(RAW, max_timestamp=NOW_MS + TIMESTAMP_AHEAD_MAX_MS))
    judge(changed(RAW, base_timestamp=-1, max_timestamp=-1))  # a client of another kind without times
    judge(changed(RAW, epoch=5))  # ours to write, so theirs does not matter
    judge(changed(RAW, base_timestamp=-7, max_timestamp=-5))  # Kafka takes times before 1970
    judge(parse(memoryview(encode([BatchRecord(0, NOW_MS, None, None)]))))


REFUSED = {
    "count 0": ({"count": 0}, errors.InvalidRecord),
    "count 0, no delta": ({"count": 0, "last_offset_delta": -1}, errors.InvalidRecord),
    "count negative": ({"count": -3}, errors.InvalidRecord),
    "fewer records than offsets": ({"last_offset_delta": 3}, errors.InvalidRecord),
    "more records than offsets": ({"count": 4}, errors.InvalidRecord),
    "negative delta": ({"last_offset_delta": -1}, errors.InvalidRecord),
    "control": ({"attributes": 0x30}, errors.InvalidRecord),
    "control without transaction": ({"attributes": 0x20}, errors.InvalidRecord),
    "transactional": ({"attributes": 0x10}, errors.InvalidRecord),
    "append time": ({"attributes": 0x08}, errors.InvalidTimestamp),
    "codec 5": ({"attributes": 5}, errors.UnsupportedCompression),
    "codec 7": ({"attributes": 7}, errors.UnsupportedCompression),
    "latest before first": ({"max_timestamp": NOW_MS - 1}, errors.InvalidTimestamp),
    "too far ahead": ({"max_timestamp": NOW_MS + TIMESTAMP_AHEAD_MAX_MS + 1}, errors.InvalidTimestamp),
    "producer without sequence": ({"base_sequence": -1}, errors.InvalidRecord),
    "producer without epoch": ({"producer_epoch": -1}, errors.InvalidRecord),
    "base offset": ({"base_offset": 7}, errors.InvalidRecord),
    "a time without end": ({"base_timestamp": -(2**63)}, errors.InvalidTimestamp),
    "checksum": ({"crc": 0}, errors.CorruptBatch),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_client_must_not_write(what: str):
    """Each contradiction in a header has an error of its own kind, with Kafka's code."""
    fields, error = REFUSED[what]
    with pytest.raises(error):
        judge(changed(RAW, **fields))


def test_batches_that_are_too_large():
    """The limit counts the whole batch, header included, as Kafka's max.message.bytes does."""
    batch = parse(memoryview(RAW))
    judge(batch, bytes_max=len(RAW))
    with pytest.raises(errors.RecordTooLarge, match=str(len(RAW))):
        judge(batch, bytes_max=len(RAW) - 1)


@given(raw=st.binary(max_size=150), at=st.integers(0, 20))
def test_any_bytes(raw: bytes, at: int):
    """Any bytes are a batch, or one of the named errors."""
    with suppress(errors.CorruptBatch):
        parse(memoryview(raw), at)
    with suppress(errors.CorruptBatch, errors.InvalidRecord):
        split(memoryview(raw))
