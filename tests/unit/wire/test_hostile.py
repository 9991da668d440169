"""Bytes that nobody should send: only `ProtocolError` comes out, and memory stays within what arrived."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

from headwater.config import ARRAY_ITEMS_MAX
from headwater.errors import ProtocolError
from headwater.wire import fields
from headwater.wire.messages import consumer_protocol_subscription, fetch, metadata, offset_commit, produce, sync_group
from tests.unit.wire import kio_values
from tests.unit.wire.apis import Codec, codecs, data_codecs

ALL = [*codecs(), *data_codecs()]
MUTATIONS = 60
LENGTH_CLAIMS = (
    b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x7f\xff", b"\x00\x0f\x42\x40", b"\xc0\x84\x3d",
)  # fmt: skip


def valid(codec: Codec, rng: random.Random) -> bytes:
    """A message of this codec with every kind of value in it, as kio would send it."""
    if codec.head == "data":
        return kio_values.raw_of(kio_values.make(rng, kio_values.data_schema(_snake(codec.api), codec.version)))
    return kio_values.raw_of(kio_values.make(rng, kio_values.schema(codec.key, codec.head, codec.version)))


def _snake(name: str) -> str:
    return {"ConsumerProtocolSubscription": "consumer_protocol_subscription"}.get(name, "consumer_protocol_assignment")


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """One or more of: a flipped bit, a lying length, a cut, a piece twice, bytes too many."""
    out = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1)
        way = rng.randrange(5)
        if way == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            claim = rng.choice(LENGTH_CLAIMS)
            out[at : at + len(claim)] = claim
        elif way == 2:
            del out[at:]
        elif way == 3:
            out[at:at] = out[at : at + rng.randrange(20)]
        else:
            out += rng.randbytes(rng.randrange(1, 9))
    return bytes(out)


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_mutated_messages(codec: Codec):
    """A damaged message is read as another message, or refused as ProtocolError; nothing else happens."""
    rng = random.Random(zlib.crc32(str(codec).encode()))
    for _ in range(MUTATIONS):
        raw = mutated(rng, valid(codec, rng))
        with suppress(ProtocolError):
            codec.read(raw)


@settings(max_examples=400, deadline=None)
@given(codec=st.sampled_from(ALL), raw=st.binary(max_size=200))
def test_any_bytes(codec: Codec, raw: bytes):
    """Arbitrary bytes are a message or a ProtocolError."""
    with suppress(ProtocolError):
        codec.read(raw)


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_every_cut(codec: Codec):
    """A message that ends anywhere before its end is refused."""
    raw = valid(codec, random.Random(7))
    step = max(1, len(raw) // 150)
    for end in range(0, len(raw), step):
        with pytest.raises(ProtocolError):
            codec.read(raw[:end])


@pytest.mark.parametrize("codec", codecs(), ids=str)
def test_bytes_too_many(codec: Codec):
    """Bytes behind the last field are ignored in a request, as Kafka does (librdkafka sends some), not in an answer."""
    raw = valid(codec, random.Random(3))
    if codec.head == "request":
        assert codec.write(codec.read(raw + b"\0\0\0")) == codec.write(codec.read(raw))
    else:
        with pytest.raises(ProtocolError, match="follow"):
            codec.read(raw + b"\0")


@pytest.mark.parametrize("data", data_codecs(), ids=str)
def test_data_of_a_newer_version(data: Codec):
    """What a newer member appended to a group's data is passed over, as KIP-429 wants it."""
    raw = valid(data, random.Random(5))
    assert data.read(raw + b"more") == data.read(raw)


@pytest.mark.parametrize("codec", ALL, ids=str)
def test_versions_that_are_not_served(codec: Codec):
    """A version beyond the served ones is refused in both directions, not guessed."""
    for version in (-1, 99):
        with pytest.raises(ProtocolError, match="not served"):
            codec.decode(memoryview(b""), version)
        with pytest.raises(ProtocolError, match="not served"):
            codec.encode(None, version)


LIES = {
    "2^31-1 topics": (produce, 3, b"\xff\xff" + b"\0\1" + bytes(4) + b"\x7f\xff\xff\xff"),
    "2^32-2 topics, compact": (produce, 9, b"\0" + b"\0\1" + bytes(4) + b"\xff\xff\xff\xff\x0f"),
    "2^31-1 bytes of records": (
        produce, 3, b"\xff\xff\0\1" + bytes(4) + b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\0\x7f\xff\xff\xff",
    ),
    "2^32-1 tags": (produce, 9, b"\0\0\1" + bytes(4) + b"\1\xff\xff\xff\xff\x0f"),
    "a tag of 2^32-1 bytes": (produce, 9, b"\0\0\1" + bytes(4) + b"\1\1\0\xff\xff\xff\xff\x0f"),
    "2^31-1 topics to read": (fetch, 4, bytes(17) + b"\x7f\xff\xff\xff"),
    "2^31-1 partitions to forget": (fetch, 7, bytes(25) + b"\0\0\0\0\0\0\0\1\0\1a\x7f\xff\xff\xff"),
    "2^31-1 names": (metadata, 4, b"\x7f\xff\xff\xff"),
    "2^31-1 assignments": (sync_group, 0, b"\0\1g" + bytes(4) + b"\0\1m\x7f\xff\xff\xff"),
    "2^31-1 streams": (consumer_protocol_subscription, 0, b"\x7f\xff\xff\xff"),
    "a varint without end": (produce, 9, b"\xff" * 64),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_lengths_that_lie(lie: str):
    """A claimed length is held against the bytes that are left before anything is allocated for it."""
    made, version, raw = LIES[lie]
    decode = made.decode_request if hasattr(made, "decode_request") else made.decode
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(memoryview(raw), version)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_many_small_items():
    """Items of all arrays together are limited: a frame of empty ones must not become a thousand times its size."""
    partitions = ARRAY_ITEMS_MAX // 2
    topic = b"\0\1t" + partitions.to_bytes(4, "big") + bytes(4 + 8 + 4 + 2) * partitions
    body = b"\0\1g" + bytes(4) + b"\0\0" + (3).to_bytes(4, "big") + topic * 3
    with pytest.raises(ProtocolError, match="items"):
        offset_commit.decode_request(memoryview(body), 6)


def test_many_small_tags():
    """Tagged fields count as items too, wherever they stand: each takes time, however little it says."""
    number = ARRAY_ITEMS_MAX + 1
    claim = bytes((number & 127 | 128, number >> 7 & 127 | 128, number >> 14))
    with pytest.raises(ProtocolError, match="tagged"):
        produce.decode_request(memoryview(b"\0\0\1" + bytes(4) + b"\1" + claim + b"\5\0" * number), 9)


def test_strings_that_are_not_text():
    """A string that is not UTF-8 is refused, in either form."""
    with pytest.raises(ProtocolError, match="UTF-8"):
        metadata.decode_request(memoryview(b"\0\0\0\1\0\2\xff\xfe\0"), 4)
    with pytest.raises(ProtocolError, match="UTF-8"):
        metadata.decode_request(memoryview(b"\2\3\xff\xfe\0\0\0\0\0\0"), 9)


def test_null_where_none_may_be():
    """A null string or array is refused where Kafka's definition allows none."""
    with pytest.raises(ProtocolError, match="null"):
        metadata.decode_request(memoryview(b"\0\0\0\1\xff\xff\0"), 4)
    with pytest.raises(ProtocolError, match="null"):
        produce.decode_request(memoryview(b"\xff\xff\0\1" + bytes(4) + b"\xff\xff\xff\xff"), 3)


def test_a_tagged_field_of_another_length():
    """A known tagged field that is longer than its value is refused."""
    request = fetch.encode_request(fetch.Request(cluster_id="abc"), 12)
    raw = b"".join(request)  # type: ignore[arg-type]
    at = raw.index(b"\4abc")
    fetch.decode_request(memoryview(raw), 12)
    with pytest.raises(ProtocolError, match="tagged field"):
        fetch.decode_request(memoryview(raw[: at - 1] + b"\5\4abc!" + raw[at + 4 :]), 12)


def test_varints_that_are_too_long():
    """A length of more than five bytes is refused, even if it says 0."""
    assert fields.uvarint(memoryview(b"\x80\x80\x80\x80\0"), 0) == (0, 5)
    with pytest.raises(ProtocolError, match="five bytes"):
        fields.uvarint(memoryview(b"\x80\x80\x80\x80\x80\0"), 0)


def test_strings_too_long_to_read():
    """A string longer than Kafka's strings are is refused in the compact form too, whose length could say more."""
    longest = bytearray()
    fields.put_compact_string(longest, "x" * 32_767)
    assert len(fields.compact_string(memoryview(longest), 0)[0]) == 32_767
    longer = bytearray()
    fields.put_compact_blob(longer, b"x" * 32_768)
    with pytest.raises(ProtocolError, match="32768"):
        fields.compact_string(memoryview(longer), 0)


def test_strings_too_long_to_send():
    """A string that its length field cannot hold is our mistake, and named."""
    for put in (fields.put_string, fields.put_compact_string):
        with pytest.raises(ProtocolError, match="cannot be sent"):
            put(bytearray(), "x" * 32_768)
