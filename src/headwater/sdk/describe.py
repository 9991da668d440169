"""What `describe()` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition: offsets are half-open, `start` belongs to it and `end` does not."""

    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDescription:
    """A stream as its server knows it."""

    name: str
    id: str  # 32 hex digits; another one after delete and create
    partitions: tuple[PartitionDescription, ...]
    replication_factor: int
    persistence: str
    configs: Mapping[str, str]  # topic configs that differ from the server's defaults
    all_configs: Mapping[str, str] = field(repr=False)
    created: datetime | None  # None where the server does not say (Kafka)
    updated: datetime | None

    @property
    def record_count(self) -> int:
        """Offsets between start and end over all partitions; compaction and transactions leave gaps in them."""
        return sum(partition.end - partition.start for partition in self.partitions)
