"""What the lake's tests land: models, records as the range reader gives them, one landing from end to end."""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from headwater.lake import (
    Advance,
    Judge,
    Landed,
    Place,
    Written,
    commit,
    ensure_targets,
    landed,
    open_catalog,
    write_range,
)
from headwater.sdk.declare import Key, Stream, Table

STREAM_ID = "0123456789abcdef" * 2
NOON_MS = 1_790_000_000_000  # some day in 2026
DAY_MS = 86_400_000


class Polled(NamedTuple):
    offset: int
    value: bytes | None
    epoch: int = 0
    timestamp_ms: int = NOON_MS
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    sku: str
    count: int = Field(ge=1)
    price: float | None = None
    tags: list[str] = []
    colour: Colour = Colour.RED


class Order(BaseModel):
    """One field of every kind that is native, and every kind that is JSON text."""

    id: Key[str]
    count: int
    total: float
    paid: bool
    placed: datetime
    due: date | None = None
    blob: bytes = b""
    colour: Colour = Colour.BLUE
    country: Literal["DE", "FR"] = "DE"
    note: str | None = None
    lines: list[Line] = []
    first: Line | None = None
    numbers: list[int | None] = []
    data: dict[str, Any] = {}
    more: list[Line] | None = None


class Small(BaseModel):
    id: Key[str]
    n: int = Field(default=0, ge=0)


def small(name: str = "orders", table: str = "orders") -> Any:
    return Stream[Small](name, destination=Table[Small](table))


def place(partition: int = 0, stream: str = "orders", stream_id: str = STREAM_ID) -> Place:
    return Place(stream=stream, stream_id=stream_id, partition=partition)


def records(start: int, end: int, *, bad: Iterable[int] = (), **facts: Any) -> list[Polled]:
    """Records of `Small`, whose id is their offset; those of `bad` do not validate."""
    spoiled = set(bad)
    return [
        Polled(at, b"{}" if at in spoiled else json.dumps({"id": str(at), "n": at}).encode(), **facts)
        for at in range(start, end)
    ]


@dataclass
class Lake:
    """One stream and its tables in a directory of their own."""

    directory: Path
    stream: Any

    def __post_init__(self) -> None:
        self.catalog = open_catalog({}, self.directory)
        self.table, self.dead = ensure_targets(self.catalog, self.stream)
        self.judge = Judge(self.stream.model)

    def write(self, batch: Sequence[Any], where: Place | None = None, trim: dict[str, int] | None = None) -> Any:
        written = write_range(
            (self.table, self.dead), self.judge, where or place(), [batch], trim or {}, uuid.uuid4().hex
        )
        return [Written.from_json(one.to_json()) for one in written]  # as it travels through an engine

    def land(self, batch: Sequence[Any], where: Place | None = None, end: int | None = None) -> list[Written]:
        """A whole landing of one range: both tables, trimmed and committed."""
        where = where or place()
        seen = {one.table: self.token(one, where) for one in (self.table, self.dead)}
        written: list[Written] = self.write(batch, where, {name: one.end if one else 0 for name, one in seen.items()})
        to = Landed(end=batch[-1].offset + 1 if end is None else end, epoch=batch[-1].epoch)
        for one in (self.table, self.dead):
            before = seen[one.table]
            if before is None or before.end < to.end:  # else the other table was behind, and this one has it all
                commit(self.catalog, one, written, {where: Advance(seen=before, to=to)})
        return written

    def token(self, target: Any, where: Place | None = None) -> Landed | None:
        where = where or place()
        return landed(self.catalog, target, where.stream_id).get(where.partition)

    def lines(self, target: Any) -> list[dict[str, Any]]:
        """What the table holds, by partition and offset."""
        found = self.catalog.load_table(target.table).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda one: (one["_stream_id"], one["_partition"], one["_epoch"], one["_offset"]))
