"""A record on its way out, for `publish_many`. `Record` only comes from reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeAlias

from typing_extensions import TypeVar

T = TypeVar("T")

HeadersLike: TypeAlias = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


@dataclass(frozen=True)
class Outgoing(Generic[T]):
    """A value with what else `publish` takes: `Outgoing(Order(id="124"), key="order_124")`."""

    value: T
    key: str | bytes | None = None
    headers: HeadersLike | None = None
    timestamp: datetime | None = None
