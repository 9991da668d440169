"""The nouns: what a stream, an offset, a record, a cursor is, for every room of the house.

Ranges are half-open everywhere: `start` belongs to them, `end` does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, NewType, TypeVar

from headwater.errors import InvalidStreamName

StreamName = NewType("StreamName", str)
StreamId = NewType("StreamId", bytes)  # 16 bytes, Kafka's topic id: names are used again, ids never
PartitionIndex = NewType("PartitionIndex", int)
Offset = NewType("Offset", int)
Epoch = NewType("Epoch", int)  # Kafka's leader epoch; ours is one per data directory, bumped at each unclean start
ProducerId = NewType("ProducerId", int)
GroupName = NewType("GroupName", str)

T = TypeVar("T")

STREAM_NAME_CHARS_MAX = 249  # Kafka's, so that every stream can be carried to a Kafka cluster
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def stream_name(text: str) -> StreamName:
    """`text` as a stream's name, or an error that says which rule it breaks."""
    if not isinstance(text, str):
        raise InvalidStreamName(
            f"a stream's name is a str, not {text!r:.200}: give it 1 to 249 characters of A-Za-z0-9._-"
        )
    if not text:
        raise InvalidStreamName("a stream's name is empty: give it 1 to 249 characters of A-Za-z0-9._-")
    if text in {".", ".."}:
        raise InvalidStreamName(f"a stream cannot be called {text!r}: choose another name")
    if len(text) > STREAM_NAME_CHARS_MAX:
        raise InvalidStreamName(
            f"the stream name {text[:20]!r}... has {len(text)} characters: {STREAM_NAME_CHARS_MAX} are allowed"
        )
    if not _NAME.fullmatch(text):
        raise InvalidStreamName(f"the stream name {text!r} has characters other than A-Za-z0-9._-: use only those")
    return StreamName(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets of one partition, half-open."""

    start: Offset
    end: Offset

    def __len__(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where a group stands in one partition: the next offset it will read."""

    offset: Offset
    epoch: Epoch = Epoch(-1)  # of the last record read; -1: not said
    metadata: str = ""
    committed_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a publisher gets for a record that was acknowledged."""

    partition: int
    offset: int
    timestamp: datetime


class Headers(Mapping[str, str | None]):
    """A record's headers: a mapping (the last of a name wins), and `raw`, the ordered list as it was sent."""

    __slots__ = ("_last", "raw")

    def __init__(self, raw: Sequence[tuple[str, bytes | None]] = ()) -> None:
        self.raw: list[tuple[str, bytes | None]] = list(raw)
        self._last = dict(self.raw)

    def __getitem__(self, name: str) -> str | None:
        value = self._last[name]
        return None if value is None else text_of(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def __repr__(self) -> str:
        return f"Headers({self.raw!r})"

    def __reduce__(self) -> tuple[type[Headers], tuple[list[tuple[str, bytes | None]]]]:
        return Headers, (self.raw,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Generic[T]):
    """One record as it was read: the value, and where and when it stands in its stream."""

    value: T
    key_bytes: bytes | None
    headers: Headers = field(default_factory=Headers)
    timestamp: datetime
    stream: str
    partition: int
    offset: int
    epoch: int = -1

    @property
    def key(self) -> str | None:
        """The key as text: UTF-8 with surrogateescape, so nothing is lost."""
        return None if self.key_bytes is None else text_of(self.key_bytes)


def text_of(raw: bytes) -> str:
    """Bytes of a key or header as text that turns back into the same bytes (`bytes_of`)."""
    return raw.decode("utf-8", "surrogateescape")


def bytes_of(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
