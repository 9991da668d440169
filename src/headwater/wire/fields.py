"""How Kafka writes its field types: what the generated codecs are made of.

Reading: each function takes the bytes and where to read, and returns the value and where it ends. A length is compared
with the bytes that are left, and a count of items with `ARRAY_ITEMS_MAX` as well, before anything is made of it. What
reads beyond the end raises `IndexError` or `struct.error`; the codecs' outermost function turns those of `READ_ERRORS`
into `ProtocolError`, so that nothing pays for a `try` twice.

"compact" is KIP-482's form (flexible versions): lengths are unsigned varints plus one, 0 is null.
Writing appends to one `bytearray`. What is too long for its field is a mistake of ours, and still a `ProtocolError`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from headwater.config import ARRAY_ITEMS_MAX
from headwater.errors import ProtocolError

Struct = struct.Struct
READ_ERRORS = (IndexError, struct.error, UnicodeDecodeError)
NO_ID = bytes(16)  # Kafka's zero UUID: no topic id
EMPTY: Any = ()  # the default of a list in the generated classes: each instance gets one of its own
TAG_BYTES_MIN = 2  # a tag, and a length of 0
TEXT_BYTES_MAX = 32_767  # of every string, in either form


class Gap(Protocol):
    """Bytes that are not in memory: the broker sends them from their file. Takes the place of records."""

    @property
    def length(self) -> int: ...


Part: TypeAlias = bytes | bytearray | memoryview | Gap
Records: TypeAlias = Part | Sequence[Part] | None


class Message:
    """What the generated classes share. Equal when all fields are; not to be hashed, since fields may be set."""

    __slots__: tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(_alike(getattr(self, name), getattr(other, name)) for name in self.__slots__)

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{self.__class__.__name__}({said})"


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)


# --- what is wrong -------------------------------------------------------------------------------


def not_served(name: str, version: int) -> ProtocolError:
    return ProtocolError(f"{name} version {version} is not served")


def broken(name: str, error: Exception) -> ProtocolError:
    if isinstance(error, UnicodeDecodeError):
        return ProtocolError(f"{name}: a string is not UTF-8")
    return ProtocolError(f"{name}: ends before its fields do")


def trailing(name: str, extra: int) -> ProtocolError:
    return ProtocolError(f"{name}: {extra} bytes follow its last field")


def _too_long(what: str, size: int, left: int) -> ProtocolError:
    return ProtocolError(f"{what} of {size} bytes, where {left} are left")


# --- reading -------------------------------------------------------------------------------------

_short = Struct(">h").unpack_from
_int = Struct(">i").unpack_from


def uvarint(view: memoryview, at: int) -> tuple[int, int]:
    byte = view[at]
    at += 1
    if byte < 128:
        return byte, at
    value, shift = byte & 127, 7
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 28:
            raise ProtocolError("a varint of more than five bytes")


def nullable_string(view: memoryview, at: int) -> tuple[str | None, int]:
    size: int = _short(view, at)[0]
    at += 2
    if size < 0:
        return None, at
    end = at + size
    if end > len(view):
        raise _too_long("a string", size, len(view) - at)
    return str(view[at:end], "utf-8"), end


def string(view: memoryview, at: int) -> tuple[str, int]:
    value, at = nullable_string(view, at)
    if value is None:
        raise ProtocolError("null, where a string must be")
    return value, at


def compact_nullable_string(view: memoryview, at: int) -> tuple[str | None, int]:
    size = view[at]
    at += 1
    if size > 127:
        size, at = uvarint(view, at - 1)
    if not size:
        return None, at
    end = at + size - 1
    if end > len(view) or size > TEXT_BYTES_MAX + 1:
        raise _too_long("a string", size - 1, len(view) - at)
    return str(view[at:end], "utf-8"), end


def compact_string(view: memoryview, at: int) -> tuple[str, int]:
    value, at = compact_nullable_string(view, at)
    if value is None:
        raise ProtocolError("null, where a string must be")
    return value, at


def nullable_records(view: memoryview, at: int) -> tuple[memoryview | None, int]:
    size: int = _int(view, at)[0]
    at += 4
    if size < 0:
        return None, at
    end = at + size
    if end > len(view):
        raise _too_long("a field", size, len(view) - at)
    return view[at:end], end


def compact_nullable_records(view: memoryview, at: int) -> tuple[memoryview | None, int]:
    size, at = uvarint(view, at)
    if not size:
        return None, at
    end = at + size - 1
    if end > len(view):
        raise _too_long("a field", size - 1, len(view) - at)
    return view[at:end], end


def nullable_bytes(view: memoryview, at: int) -> tuple[bytes | None, int]:
    """A copy: it is kept for longer than its frame."""
    value, at = nullable_records(view, at)
    return (None if value is None else bytes(value)), at


def blob(view: memoryview, at: int) -> tuple[bytes, int]:
    value, at = nullable_records(view, at)
    if value is None:
        raise ProtocolError("null, where bytes must be")
    return bytes(value), at


def compact_nullable_bytes(view: memoryview, at: int) -> tuple[bytes | None, int]:
    value, at = compact_nullable_records(view, at)
    return (None if value is None else bytes(value)), at


def compact_blob(view: memoryview, at: int) -> tuple[bytes, int]:
    value, at = compact_nullable_records(view, at)
    if value is None:
        raise ProtocolError("null, where bytes must be")
    return bytes(value), at


def _counted(count: int, left: int, item_bytes: int, budget: list[int]) -> None:
    if count * item_bytes > left:
        raise ProtocolError(f"{count} items or tagged fields, in {left} bytes")
    budget[0] -= count
    if budget[0] < 0:
        raise ProtocolError(f"more than {ARRAY_ITEMS_MAX} items and tagged fields in one message")


def nullable_count(view: memoryview, at: int, item_bytes: int, budget: list[int]) -> tuple[int, int]:
    """How many items follow, -1 for null. `budget` holds what the whole message may still have (arrays nest)."""
    count: int = _int(view, at)[0]
    at += 4
    if count < 0:
        return -1, at
    _counted(count, len(view) - at, item_bytes, budget)
    return count, at


def count(view: memoryview, at: int, item_bytes: int, budget: list[int]) -> tuple[int, int]:
    number, at = nullable_count(view, at, item_bytes, budget)
    if number < 0:
        raise ProtocolError("null, where an array must be")
    return number, at


def compact_nullable_count(view: memoryview, at: int, item_bytes: int, budget: list[int]) -> tuple[int, int]:
    raw, at = uvarint(view, at)
    if raw > 1:
        _counted(raw - 1, len(view) - at, item_bytes, budget)
    return raw - 1, at


def compact_count(view: memoryview, at: int, item_bytes: int, budget: list[int]) -> tuple[int, int]:
    number, at = compact_nullable_count(view, at, item_bytes, budget)
    if number < 0:
        raise ProtocolError("null, where an array must be")
    return number, at


def fixed_items(view: memoryview, at: int, code: str, number: int) -> list[Any]:
    """`number` items of a fixed size, already counted against the bytes that are left."""
    if number == 1:  # partition lists mostly have one
        return list(struct.unpack_from(f">{code}", view, at))
    return list(struct.unpack_from(f">{code * number if len(code) > 1 else f'{number}{code}'}", view, at))


def tag_header(view: memoryview, at: int) -> tuple[int, int, int]:
    """Of one tagged field: its tag, where its value begins and where it ends."""
    tag, at = uvarint(view, at)
    size, at = uvarint(view, at)
    if size > len(view) - at:
        raise _too_long("a tagged field", size, len(view) - at)
    return tag, at, at + size


def tag_ends(at: int, end: int) -> None:
    if at != end:
        raise ProtocolError("a tagged field whose length is not that of its value")


def tag_count(view: memoryview, at: int, budget: list[int]) -> tuple[int, int]:
    """How many tagged fields follow. They count as items: fifty million empty ones would hold a broker up for long."""
    number, at = uvarint(view, at)
    _counted(number, len(view) - at, TAG_BYTES_MIN, budget)
    return number, at


def skip_tags(view: memoryview, at: int, budget: list[int]) -> int:
    number, at = tag_count(view, at, budget)
    for _ in range(number):
        _, _, at = tag_header(view, at)
    return at


# --- writing -------------------------------------------------------------------------------------

_pack_short = Struct(">h").pack
_pack_int = Struct(">i").pack


def put_uvarint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _text(value: str) -> bytes:
    raw = value.encode()
    if len(raw) > TEXT_BYTES_MAX:
        raise ProtocolError(f"a string of {len(raw)} bytes cannot be sent: {TEXT_BYTES_MAX} are allowed")
    return raw


def put_string(out: bytearray, value: str) -> None:
    raw = _text(value)
    out += _pack_short(len(raw))
    out += raw


def put_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        put_string(out, value)


def put_compact_string(out: bytearray, value: str) -> None:
    raw = _text(value)
    put_uvarint(out, len(raw) + 1)
    out += raw


def put_compact_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        put_compact_string(out, value)


def put_blob(out: bytearray, value: bytes) -> None:
    out += _pack_int(len(value))
    out += value


def put_nullable_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        put_blob(out, value)


def put_compact_blob(out: bytearray, value: bytes) -> None:
    put_uvarint(out, len(value) + 1)
    out += value


def put_compact_nullable_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0)
    else:
        put_compact_blob(out, value)


def put_count(out: bytearray, items: Sequence[Any]) -> None:
    out += _pack_int(len(items))


def put_nullable_count(out: bytearray, items: Sequence[Any] | None) -> None:
    out += _pack_int(-1 if items is None else len(items))


def put_compact_count(out: bytearray, items: Sequence[Any]) -> None:
    put_uvarint(out, len(items) + 1)


def put_compact_nullable_count(out: bytearray, items: Sequence[Any] | None) -> None:
    put_uvarint(out, 0 if items is None else len(items) + 1)


def put_fixed_items(out: bytearray, code: str, items: Sequence[Any]) -> None:
    out += struct.pack(f">{code * len(items) if len(code) > 1 else f'{len(items)}{code}'}", *items)


def put_tags(out: bytearray, tags: Sequence[tuple[int, bytearray]]) -> None:
    """Tagged fields in ascending order of their tags, as KIP-482 wants them."""
    put_uvarint(out, len(tags))
    for tag, value in tags:
        put_uvarint(out, tag)
        put_uvarint(out, len(value))
        out += value


def records_bytes(records: Records) -> int:
    """How many bytes they are, wherever they lie; -1 for null."""
    if records is None:
        return -1
    if isinstance(records, list | tuple):
        return sum(map(part_bytes, records))
    return part_bytes(records)  # type: ignore[arg-type]


def part_bytes(part: Part) -> int:
    return len(part) if isinstance(part, bytes | bytearray | memoryview) else part.length


def put_nullable_records(parts: list[Part], out: bytearray, records: Records) -> bytearray:
    """The length into `out`, the records beside it, uncopied. Returns what is to be written on."""
    size = records_bytes(records)
    out += _pack_int(size)
    return _beside(parts, out, records) if size > 0 else out


def put_compact_nullable_records(parts: list[Part], out: bytearray, records: Records) -> bytearray:
    size = records_bytes(records)
    put_uvarint(out, size + 1)
    return _beside(parts, out, records) if size > 0 else out


def _beside(parts: list[Part], out: bytearray, records: Records) -> bytearray:
    parts.append(out)
    if isinstance(records, list | tuple):
        parts.extend(records)
    else:
        parts.append(records)  # type: ignore[arg-type]
    return bytearray()
