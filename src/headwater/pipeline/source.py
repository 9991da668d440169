"""The streaming source of landing: it yields one row per *range of offsets*, and never a record.

Spark's own work (plan, retry, place on a core) is done on ranges; the task that gets one reads the records itself. One
query serves all streams of an app: `latestOffset` decides which are due, and `partitions` packs their ranges into a few
tasks, since a task costs a fifth of a second whatever it holds.

Offsets are `{stream: {partition: offset}}`, readable in Spark's progress as startOffset and endOffset. They are not what
landing goes by: a run starts from the tables' tokens, in a checkpoint directory of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from headwater.config import LAND_DUE_RECORDS, LAND_DUE_SECONDS, LAND_RANGE_RECORDS_MAX, LAND_TASKS_PER_CORE
from headwater.errors import InvalidOption, RecordsLost, StreamNotFound

if TYPE_CHECKING:
    from headwater.sdk.ranges import RangeAdmin

FORMAT = "headwater-ranges"
RANGES = "stream string, partition int, start long, end long"

Positions = dict[str, dict[str, int]]  # stream -> partition, as JSON has it -> offset


class Range(NamedTuple):
    """Offsets of one partition, half-open: what one row of this source says."""

    stream: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlan:
    """What the source is told at its start. Travels as JSON in the option `plan`."""

    client: Mapping[str, Any]
    stream_ids: Mapping[str, str]  # of the streams to land
    missing: list[str] = field(
        default_factory=list
    )  # streams that were deleted: one of them coming back ends the query, to plan anew
    positions: Positions = field(default_factory=dict)
    cores: int = 1

    def to_json(self) -> str:
        try:
            return json.dumps({name: getattr(self, name) for name in self.__slots__})
        except TypeError as error:
            raise InvalidOption(
                f"kafka={{...}}: {error}: options of a landing travel to Spark's processes: text, numbers, true and false"
            ) from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))


class RangeSource(DataSource):  # type: ignore[misc]  # untyped
    """`format("headwater-ranges")`, for landing alone."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return RANGES

    def streamReader(self, schema: Any) -> RangeReader:  # noqa: N802  Spark's name
        return RangeReader(SourcePlan.from_json(self.options["plan"]))


class RangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # untyped
    """Lives in the planner process of the query; a copy of it goes to each task, hence no connection before its use."""

    def __init__(self, plan: SourcePlan) -> None:
        self._plan = plan
        self._admin: RangeAdmin | None = None
        self._until: Positions | None = None  # where a run that drains will end
        self._due = Due()

    def initialOffset(self) -> Positions:  # noqa: N802
        return _in_order(self._plan.positions)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(LAND_RANGE_RECORDS_MAX)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._ends()

    def latestOffset(self, start: Positions, limit: ReadLimit) -> Positions:  # noqa: N802
        """Where the next batch ends; `start` itself when nothing is due."""
        most = None if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", LAND_RANGE_RECORDS_MAX)
        if self._until is not None:
            return _advanced(start, self._until, set(self._until), most)
        ends = self._ends()
        _nothing_lost(start, ends)
        return _advanced(start, ends, self._due.streams(start, ends, time.monotonic()), most)

    def partitions(self, start: Positions, end: Positions) -> Sequence[InputPartition]:
        ranges = [
            Range(stream, int(partition), start.get(stream, {}).get(partition, 0), offset)
            for stream, partitions in end.items()
            for partition, offset in partitions.items()
            if offset > start.get(stream, {}).get(partition, 0)
        ]
        return [InputPartition(packed) for packed in pack(ranges, self._plan.cores * LAND_TASKS_PER_CORE)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for one in partition.value:
            yield tuple(one)

    def _ends(self) -> Positions:
        """Where all partitions end now; an error when a stream is no longer the one that was planned."""
        from headwater.sdk.ranges import RangeAdmin

        if self._admin is None:
            self._admin = RangeAdmin(self._plan.client)
        facts = self._admin.streams([*self._plan.stream_ids, *self._plan.missing])
        for stream, stream_id in self._plan.stream_ids.items():
            if stream not in facts or facts[stream].stream_id != stream_id:
                raise StreamNotFound(f"the stream {stream} was deleted")
        for stream in self._plan.missing:
            if stream in facts:
                raise StreamNotFound(f"the stream {stream} was created again")
        places = [(stream, index) for stream in self._plan.stream_ids for index in range(facts[stream].partitions)]
        found: Positions = {}
        for (stream, partition), end in self._admin.ends(places).items():
            found.setdefault(stream, {})[str(partition)] = end
        return _in_order(found)


@dataclass(slots=True)
class Due:
    """Which streams go into the next batch: those with many new records, and those whose new ones have waited."""

    _since: dict[str, float] = field(default_factory=dict)  # stream -> when its first new record was seen

    def streams(self, start: Positions, ends: Positions, now: float) -> set[str]:
        due = set()
        for stream, partitions in ends.items():
            pending = sum(end - start.get(stream, {}).get(partition, 0) for partition, end in partitions.items())
            if pending == 0:
                self._since.pop(stream, None)
                continue
            since = self._since.setdefault(stream, now)
            if pending >= LAND_DUE_RECORDS or now - since >= LAND_DUE_SECONDS:
                due.add(stream)
                del self._since[stream]
        return due


def pack(ranges: Sequence[Range], bins: int) -> list[list[Range]]:
    """`ranges` in at most `bins` tasks of about the same number of records: the longest first, to the emptiest."""
    packed: list[list[Range]] = [[] for _ in range(min(bins, len(ranges)))]
    weights = [0] * len(packed)
    for one in sorted(ranges, key=lambda each: each.start - each.end):
        lightest = weights.index(min(weights))
        packed[lightest].append(one)
        weights[lightest] += one.end - one.start
    return packed


def _advanced(start: Positions, ends: Positions, due: set[str], most: int | None) -> Positions:
    """`start`, moved towards `ends` in the streams that are due, by at most `most` offsets a partition."""
    moved: Positions = {stream: dict(partitions) for stream, partitions in start.items()}
    for stream in due:
        for partition, end in ends[stream].items():
            at = start.get(stream, {}).get(partition, 0)
            if end > at:
                moved.setdefault(stream, {})[partition] = end if most is None else min(end, at + most)
    return _in_order(moved)


def _nothing_lost(start: Positions, ends: Positions) -> None:
    for stream, partitions in ends.items():
        for partition, end in partitions.items():
            if end < start.get(stream, {}).get(partition, 0):
                raise RecordsLost(f"{stream}/{partition} ends at offset {end}, before what was landed")


def _in_order(positions: Positions) -> Positions:
    """The one spelling of these positions: Spark compares offsets as text to see whether there is news."""
    return {
        stream: {partition: positions[stream][partition] for partition in sorted(positions[stream], key=int)}
        for stream in sorted(positions)
    }
