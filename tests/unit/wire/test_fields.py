"""Each kind of field by itself, against kio's: also those that no served message has, so that a new API is one line."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from kio.serial import readers, writers

from headwater.errors import ProtocolError
from headwater.wire import fields

TEXT = st.text(max_size=300)
BYTES = st.binary(max_size=300)
KINDS: dict[str, tuple[Any, Callable[..., None], Callable[..., Any], Any, Any]] = {
    "string": (TEXT, fields.put_string, fields.string, writers.write_legacy_string, readers.read_legacy_string),
    "nullable_string": (
        TEXT | st.none(), fields.put_nullable_string, fields.nullable_string,
        writers.write_nullable_legacy_string, readers.read_nullable_legacy_string,
    ),
    "compact_string": (
        TEXT, fields.put_compact_string, fields.compact_string,
        writers.write_compact_string, readers.read_compact_string,
    ),
    "compact_nullable_string": (
        TEXT | st.none(), fields.put_compact_nullable_string, fields.compact_nullable_string,
        writers.write_nullable_compact_string, readers.read_compact_string_nullable,
    ),
    "bytes": (BYTES, fields.put_blob, fields.blob, writers.write_legacy_bytes, readers.read_legacy_bytes),
    "nullable_bytes": (
        BYTES | st.none(), fields.put_nullable_bytes, fields.nullable_bytes,
        writers.write_nullable_legacy_bytes, readers.read_nullable_legacy_bytes,
    ),
    "compact_bytes": (
        BYTES, fields.put_compact_blob, fields.compact_blob,
        writers.write_compact_string, readers.read_compact_string_as_bytes,
    ),
    "compact_nullable_bytes": (
        BYTES | st.none(), fields.put_compact_nullable_bytes, fields.compact_nullable_bytes,
        writers.write_nullable_compact_string, readers.read_compact_string_as_bytes_nullable,
    ),
    "uvarint": (
        st.integers(0, 2**32 - 1), fields.put_uvarint, fields.uvarint,
        writers.write_unsigned_varint, readers.read_unsigned_varint,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_fields_as_kio_writes_them(kind: str, data: st.DataObject):
    """A field is written as kio writes it, and read back by both, wherever it stands."""
    values, put, read, their_write, their_read = KINDS[kind]
    value = data.draw(values)
    before, behind = data.draw(st.binary(max_size=3)), data.draw(st.binary(max_size=3))
    out, theirs = bytearray(), io.BytesIO()
    put(out, value)
    their_write(theirs, value)
    assert out == theirs.getvalue()
    assert read(memoryview(before + out + behind), len(before)) == (value, len(before) + len(out))
    assert their_read(bytes(out), 0)[0] == value


@pytest.mark.parametrize("kind", KINDS)
@given(raw=st.binary(max_size=12))
@example(raw=b"\0")
@example(raw=b"\xff" * 8)
def test_fields_of_any_bytes(kind: str, raw: bytes):
    """Whatever the bytes: a value within them, or an error that the codecs map to ProtocolError."""
    try:
        _, at = KINDS[kind][2](memoryview(raw), 0)
    except (ProtocolError, *fields.READ_ERRORS):
        return
    assert 0 < at <= len(raw)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("nullable", [False, True])
@given(number=st.integers(0, 300))
def test_counts(compact: bool, nullable: bool, number: int):
    """A count is written as kio writes it, and read if as many items can follow; null only where it may be."""
    name = f"{'compact_' * compact}{'nullable_' * nullable}count"
    put, read = getattr(fields, f"put_{name}"), getattr(fields, name)
    out, theirs = bytearray(), io.BytesIO()
    put(out, [0] * number)
    write = writers.write_compact_array_length if compact else writers.write_legacy_array_length
    write(theirs, number)
    assert out == theirs.getvalue()
    assert read(memoryview(out + bytes(2 * number)), 0, 2, [1000]) == (number, len(out))
    if number:
        with pytest.raises(ProtocolError, match="items"):
            read(memoryview(out + bytes(2 * number - 1)), 0, 2, [1000])
        with pytest.raises(ProtocolError, match="more than"):
            read(memoryview(out + bytes(2 * number)), 0, 2, [number - 1])
    null = memoryview(b"\0" if compact else b"\xff\xff\xff\xff")
    if nullable:
        assert read(null, 0, 2, [1000])[0] == -1
    else:
        with pytest.raises(ProtocolError, match="null"):
            read(null, 0, 2, [1000])


def test_tagged_fields():
    """Tagged fields are written as kio writes them: tag, length, value."""
    out = bytearray()
    fields.put_tags(out, [(0, bytearray(b"abc")), (300, bytearray(200))])
    theirs = io.BytesIO()
    writers.write_unsigned_varint(theirs, 2)
    writers.write_tagged_field(theirs, 0, lambda buffer, value: buffer.write(value), b"abc")
    writers.write_tagged_field(theirs, 300, lambda buffer, value: buffer.write(value), bytes(200))
    assert out == theirs.getvalue()
    assert fields.skip_tags(memoryview(out), 0, [10]) == len(out)


@given(items=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20))
def test_fixed_items(items: list[int]):
    """Numbers and ids in arrays are read as they were written."""
    out = bytearray()
    fields.put_fixed_items(out, "i", items)
    assert fields.fixed_items(memoryview(b"x" + out), 1, "i", len(items)) == items
    ids = [number.to_bytes(16, "big", signed=True) for number in items]
    out = bytearray()
    fields.put_fixed_items(out, "16s", ids)
    assert fields.fixed_items(memoryview(out), 0, "16s", len(ids)) == ids
