"""Records to a batch and back, against two implementations of others, and against payloads that lie."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kio.records.readers import read_batch

from headwater import errors
from headwater.batch import HEADER_BYTES, Batch, BatchRecord, Codec, crc_ok, decode, encode, parse
from headwater.batch.varint import read_varint, write_varint
from headwater.config import ARRAY_ITEMS_MAX, GZIP_MEMBERS_MAX
from headwater.model import bytes_of
from tests.unit.batch.batches import NOW_MS, SOME, changed, records, with_payload

CODECS = [Codec.NONE, Codec.GZIP]


def batch_of(raw: bytes) -> Batch:
    return parse(memoryview(bytearray(raw)))


@given(listed=records(), codec=st.sampled_from(CODECS))
def test_there_and_back(listed: list[BatchRecord], codec: Codec):
    """What was encoded is decoded, record for record, and the header says how many and up to when."""
    batch = batch_of(encode(listed, codec=codec))
    assert crc_ok(batch)
    assert decode(batch) == listed
    assert batch.count == len(listed)
    assert batch.max_timestamp == max(record.timestamp_ms for record in listed)


@given(listed=records(offset_max=0), codec=st.sampled_from(CODECS))
def test_kafka_python_reads_ours(listed: list[BatchRecord], codec: Codec):
    """kafka-python finds the checksum right and the records the same."""
    theirs = DefaultRecordBatch(
        bytearray(encode(listed, codec=codec, producer_id=5, producer_epoch=2, base_sequence=9))
    )
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (5, 2, 9)
    read = [BatchRecord(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in theirs]
    assert read == listed


@given(listed=records(offset_max=0), codec=st.sampled_from(CODECS))
def test_we_read_kafka_python(listed: list[BatchRecord], codec: Codec):
    """Batches made by kafka-python are decoded to the records they were made of."""
    builder = DefaultRecordBatchBuilder(2, codec, False, 5, 2, 9, 1 << 30)
    for record in listed:
        builder.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = batch_of(bytes(builder.build()))
    assert crc_ok(batch)
    assert decode(batch) == listed
    if codec == Codec.NONE:
        assert bytes(batch.view)[HEADER_BYTES:] == encode(listed)[HEADER_BYTES:]


@given(listed=records())
def test_kio_reads_ours(listed: list[BatchRecord]):
    """kio reads the same records, and the same header."""
    raw = encode(listed, epoch=4)
    theirs, size = read_batch(raw, 0)
    assert size == len(raw)
    assert (theirs.base_offset, theirs.partition_leader_epoch) == (listed[0].offset, 4)
    assert [(one.key, one.value, one.offset) for one in theirs.records] == [
        (record.key, record.value, record.offset) for record in listed
    ]
    assert [[(header.key, header.value) for header in one.headers] for one in theirs.records] == [
        [(bytes_of(name), value) for name, value in record.headers] for record in listed
    ]  # fmt: skip


@given(value=st.integers(-(2**63), 2**63 - 1), behind=st.binary(max_size=3))
def test_varints(value: int, behind: bytes):
    """A varint of any 64-bit number is read as it was written, and ends where it ends."""
    out = bytearray()
    write_varint(out, value)
    assert len(out) <= 10
    assert read_varint(bytes(out) + behind, 0) == (value, len(out))


@pytest.mark.parametrize("raw", [b"\x80" * 10 + b"\0", b"\xff" * 9 + b"\2"])
def test_varints_that_are_too_long(raw: bytes):
    """A varint of more than ten bytes, or 64 bits, is refused."""
    with pytest.raises(ValueError, match="more than"):
        read_varint(raw, 0)


def test_append_time():
    """When the broker wrote the time, every record has that of the batch."""
    batch = changed(encode(SOME), attributes=0x08, max_timestamp=NOW_MS + 99)
    assert {record.timestamp_ms for record in decode(batch)} == {NOW_MS + 99}


def test_offsets_with_gaps():
    """A batch that Kafka has compacted keeps its offsets: they only rise."""
    kept = [SOME[0], SOME[2]]
    batch = batch_of(encode(kept))
    assert (batch.count, batch.last_offset_delta) == (2, 2)
    assert decode(batch) == kept


def test_headers_that_are_not_text():
    """A header's name of any bytes is kept, and turns back into the same bytes."""
    record = BatchRecord(0, NOW_MS, None, None, (("\udcff\udc80x", b"1"),))
    assert decode(batch_of(encode([record]))) == [record]


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD, 5])
def test_codecs_that_are_not_opened(codec: int):
    """A codec that is stored but cannot be opened here is named."""
    name = Codec(codec).name.lower() if codec < 5 else "5"
    with pytest.raises(errors.UnsupportedCompression, match=name):
        decode(changed(encode(SOME), attributes=codec))
    with pytest.raises(errors.UnsupportedCompression, match=name):
        encode(SOME, codec=codec)


def test_no_records():
    """A batch of nothing cannot be made."""
    with pytest.raises(ValueError, match="at least one"):
        encode([])


CONTRADICTIONS: dict[str, dict[str, int]] = {
    "more records than payload": {"count": 4, "last_offset_delta": 3},
    "fewer records than payload": {"count": 2, "last_offset_delta": 1},
    "far more records": {"count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
    "negative count": {"count": -1},
    "offsets beyond the last": {"last_offset_delta": 1},
    "a later record than the latest": {"max_timestamp": NOW_MS + 4},
    "gzip that is none": {"attributes": Codec.GZIP},
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_payloads_that_contradict_their_header(what: str):
    """A header that says other than its payload is corrupt, with a right checksum too."""
    batch = changed(encode(SOME), **CONTRADICTIONS[what])
    assert crc_ok(batch)
    with pytest.raises(errors.CorruptBatch):
        decode(batch)


def field(*values: int) -> bytes:
    out = bytearray()
    for value in values:
        write_varint(out, value)
    return bytes(out)


LIES = {
    "record length 2^31": field(2**31),
    "record length negative": field(-5) + bytes(10),
    "record longer than its parts": field(9) + b"\0" + field(0, 0, -1, -1, 0) + bytes(3),
    "key of 2^40": field(15) + b"\0" + field(0, 0, 2**40) + bytes(7),
    "key of -2": field(6) + b"\0" + field(0, 0, -2, -1, 0) + b"",
    "value past the record": field(7) + b"\0" + field(0, 0, -1, 5, 0) + bytes(20),
    "headers 2^31": field(11) + b"\0" + field(0, 0, -1, -1, 2**31),
    "headers negative": field(6) + b"\0" + field(0, 0, -1, -1, -1),
    "header without a name": field(8) + b"\0" + field(0, 0, -1, -1, 1, -1, -1),
    "offset delta negative": field(6) + b"\0" + field(0, -1, -1, -1, 0),
    "ends in a varint": field(6) + b"\0\0\0\1\1\x80",
    "varint without end": b"\xff" * 30,
}


@pytest.mark.parametrize("what", LIES)
def test_payloads_that_lie(what: str):
    """Every length in a record is held against what is left; nothing is allocated for a lie."""
    batch = with_payload(LIES[what], count=1, last_offset_delta=0)
    tracemalloc.start()
    try:
        with pytest.raises(errors.CorruptBatch):
            decode(batch)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_bomb_stops_at_its_limit():
    """A gzip payload inflates to the limit and not further, in one member or in many."""
    whole = gzip.compress(bytes(40_000_000))
    for payload in (whole, gzip.compress(bytes(3_000_000)) * 20):
        tracemalloc.start()
        try:
            with pytest.raises(errors.RecordTooLarge, match="inflates"):
                decode(with_payload(payload, attributes=Codec.GZIP), bytes_max=4_000_000)
            assert tracemalloc.get_traced_memory()[1] < 16_000_000
        finally:
            tracemalloc.stop()


def test_members_without_end():
    """Gzip members are limited in number too: many small ones cost more time than their bytes are worth."""
    payload = gzip.compress(b"") * (GZIP_MEMBERS_MAX + 1)
    with pytest.raises(errors.CorruptBatch, match="members"):
        decode(with_payload(payload, attributes=Codec.GZIP))


def test_gzip_in_several_members():
    """A payload packed in two members is one payload, as Java's reader sees it."""
    plain = encode(SOME)[HEADER_BYTES:]
    payload = gzip.compress(plain[:10]) + gzip.compress(plain[10:])
    batch = with_payload(payload, attributes=Codec.GZIP, count=3, last_offset_delta=2, max_timestamp=NOW_MS + 5)
    assert decode(batch) == SOME


def test_gzip_that_was_cut():
    """A gzip payload that ends early is corrupt."""
    whole = gzip.compress(encode(SOME)[HEADER_BYTES:])
    for end in (0, 5, len(whole) // 2, len(whole) - 1):
        fields = {"count": 3, "last_offset_delta": 2, "max_timestamp": NOW_MS + 5}
        with pytest.raises(errors.CorruptBatch, match=r"too early|3 records, in 0"):
            decode(with_payload(whole[:end], attributes=Codec.GZIP, **fields))


def test_limits_of_items():
    """More records, or headers, than can be opened at once is an error of its own, before they are made."""
    one = field(6) + b"\0" + field(0, 0, -1, -1, 0)
    many = with_payload(one * (ARRAY_ITEMS_MAX + 1), count=ARRAY_ITEMS_MAX + 1, last_offset_delta=ARRAY_ITEMS_MAX)
    with pytest.raises(errors.RecordTooLarge, match="records"):
        decode(many)
    body = b"\0" + field(0, 0, -1, -1, ARRAY_ITEMS_MAX + 1) + b"\0\1" * (ARRAY_ITEMS_MAX + 1)
    with pytest.raises(errors.RecordTooLarge, match="headers"):
        decode(with_payload(field(len(body)) + body))


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), codec=st.sampled_from(CODECS))
def test_mutated_payloads(seed: int, codec: Codec):
    """Damaged payloads under a right checksum are other records, or a named error."""
    rng = random.Random(seed)
    raw = bytearray(encode(SOME, codec=codec))
    for _ in range(rng.randrange(1, 4)):
        raw[rng.randrange(HEADER_BYTES, len(raw))] = rng.randrange(256)
    with suppress(errors.CorruptBatch, errors.RecordTooLarge):
        decode(changed(bytes(raw)))


@given(payload=st.binary(max_size=100), codec=st.sampled_from(CODECS), count=st.integers(0, 5))
def test_any_payload(payload: bytes, codec: Codec, count: int):
    """Any bytes for a payload are records, or a named error."""
    raw = payload if codec == Codec.NONE else zlib.compress(payload, wbits=31)
    with suppress(errors.CorruptBatch):
        decode(with_payload(raw, attributes=codec, count=count, last_offset_delta=max(count - 1, 0)))
