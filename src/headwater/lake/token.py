"""The token: how far a table has landed each partition of each stream, written in the table itself.

`headwater.landed.<stream id>.<partition>` = `<end>:<epoch>` stands in the table's properties and in the summary of its
newest snapshot of ours, both set by the commit that brings the files. The properties alone are not enough: somebody who
rolls the table back takes records away and leaves the properties. So the two are compared each time, and where they
disagree landing stops: only a person knows whether those records were meant to go.

The id is there because names are used again after a delete, the epoch because offsets are used again after a power cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from headwater.errors import LandingRefused
from headwater.lake.catalog import load_table

if TYPE_CHECKING:
    from headwater.lake.tables import Target

PREFIX = "headwater.landed."


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One partition of one stream. `stream_id`: 32 hex digits, as in the column `_stream_id`."""

    stream: str
    stream_id: str
    partition: int

    @property
    def property_name(self) -> str:
        return f"{PREFIX}{self.stream_id}.{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """What a token says: records up to `end` (half-open) are in the table; `epoch` is that of the last of them."""

    end: int
    epoch: int

    @classmethod
    def parse(cls, text: str) -> Self:
        end, _, epoch = text.partition(":")
        return cls(end=int(end), epoch=int(epoch))

    def __str__(self) -> str:
        return f"{self.end}:{self.epoch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """One step of a token: from what the driver saw (None: there was none) to what it will be."""

    seen: Landed | None
    to: Landed


def landed(catalog: Any, target: Target, stream_id: str) -> dict[int, Landed]:
    """Partition -> token, as the table says now. Raises LandingRefused where the table contradicts itself."""
    prefix = f"{PREFIX}{stream_id}."
    return {
        int(name.removeprefix(prefix)): Landed.parse(text)
        for name, text in tokens_of(load_table(catalog, target.table)).items()
        if name.startswith(prefix)
    }


def tokens_of(table: Any) -> dict[str, str]:
    """All tokens of a table, by property name, after holding its properties against its own history."""
    said = tokens_in(table.properties)
    history = tokens_of_history(table)
    if history is not None and history != said:
        raise LandingRefused(_contradiction(table, said, history))
    return said


def tokens_of_history(table: Any) -> dict[str, str] | None:
    """What the newest snapshot of ours in the current line says; None: that part of the history has expired.

    Snapshots of others (a compaction, a delete) carry no token and are passed over.
    """
    snapshot = table.current_snapshot()
    while snapshot is not None:
        found = tokens_in(snapshot.summary.additional_properties if snapshot.summary else {})
        if found:
            return found
        parent_id = snapshot.parent_snapshot_id
        parent = None if parent_id is None else table.snapshot_by_id(parent_id)
        if parent is None and (snapshot.sequence_number or 0) > 1:
            return None  # it had a parent once; pyiceberg forgets the name of one that expired
        snapshot = parent
    return {}


def tokens_in(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in properties.items() if name.startswith(PREFIX)}


def _contradiction(table: Any, said: Mapping[str, str], history: Mapping[str, str]) -> str:
    name = ".".join(table.name())
    lines = [
        f"  {one.removeprefix(PREFIX)}: properties say {said.get(one, 'nothing')}, "
        f"the current snapshot says {history.get(one, 'nothing')}"
        for one in sorted(set(said) | set(history))
        if said.get(one) != history.get(one)
    ]
    return "\n".join(
        [
            f"table {name} was rolled back, or its properties were changed by hand:",
            *lines[:10],
            "Choose, then start again:",
            f'  headwater.lake.settle(catalog, "{name}", keep="history")     lands again what the snapshot lacks',
            f'  headwater.lake.settle(catalog, "{name}", keep="properties")  what was taken away stays away',
        ]
    )
