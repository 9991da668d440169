"""Writes one range of one partition into Parquet files, a table each, a day each.

Every file carries Iceberg's field ids, so that a renamed column is still found, and is sorted as its range was read:
by partition and offset. It lies under a directory of the attempt that wrote it, `<table>/data/<attempt>/`: a directory
that no snapshot names was left by an attempt that failed. Files are flushed before `write_range` returns, for the commit
that names them must not outlive them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from headwater import config
from headwater.errors import LandingRefused
from headwater.lake.judge import Judge, Letter, Polled
from headwater.lake.rows import of_letters, of_values, timestamp_ms_of
from headwater.lake.tables import Target
from headwater.lake.token import Place

_DAY_MS = 86_400_000
_BOUNDS = ("lower_bounds", "upper_bounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One file that is on the disk and in no table yet: all that the commit must know of it, as JSON can carry it."""

    table: str
    path: str
    size_bytes: int
    records_count: int
    day: int | None  # days since 1970 where the table is split by day
    stream: str
    stream_id: str
    partition: int
    first_offset: int
    last_offset: int
    last_epoch: int
    statistics: dict[str, Any]

    @property
    def place(self) -> Place:
        return Place(stream=self.stream, stream_id=self.stream_id, partition=self.partition)

    def to_json(self) -> str:
        facts = asdict(self)
        for name in _BOUNDS:
            facts["statistics"][name] = {column: bound.hex() for column, bound in self.statistics[name].items()}
        return json.dumps(facts)

    @classmethod
    def from_json(cls, text: str) -> Self:
        facts = json.loads(text)
        statistics = facts["statistics"]
        for name, said in statistics.items():
            if isinstance(said, dict):  # JSON's keys are text, Iceberg's are field ids
                statistics[name] = {int(column): value for column, value in said.items()}
        for name in _BOUNDS:
            statistics[name] = {column: bytes.fromhex(bound) for column, bound in statistics[name].items()}
        return cls(**facts)


def write_range(
    targets: Sequence[Target],
    judge: Judge,
    place: Place,
    records: Iterable[Sequence[Polled]],
    trim: Mapping[str, int],
    attempt: str,
) -> list[Written]:
    """Judges the records of a range and writes them: the valid ones for the table, the others as dead letters.

    `records` are chunks in order of offset. `trim`: full table name -> the first offset which that table lacks; what
    lies before it is there already and is left out. `attempt` names a directory and must be new each time, for a task
    that is tried again as well. An error leaves no finished file behind that anybody would name.
    """
    table, dead = (next(one for one in targets if one.kind == kind) for kind in ("table", "dead_letters"))
    files = {one.table: _Files(one, place, attempt) for one in (table, dead)}
    first = min(trim.get(one.table, 0) for one in (table, dead))
    try:
        for chunk in _in_order(records, place):
            lacking = [one for one in chunk if one.offset >= first] if chunk[0].offset < first else chunk
            kept, values, letters = judge.judge(lacking)
            if kept:
                batch, kept, unfit = of_values(table, judge.columns, kept, values, place)
                files[table.table].add(batch, kept, trim.get(table.table, 0))
                letters = sorted([*letters, *unfit], key=_offset_of) if unfit else letters
            letters = [one for one in letters if one.record.offset >= trim.get(dead.table, 0)]
            if letters:
                files[dead.table].add(of_letters(dead, letters, place), [one.record for one in letters], 0)
        return [*files[table.table].close(), *files[dead.table].close()]
    except BaseException:
        for one in files.values():
            one.abandon()
        raise


def _in_order(records: Iterable[Sequence[Polled]], place: Place) -> Iterable[Sequence[Polled]]:
    last = -1
    for chunk in records:
        if not chunk:
            continue
        if chunk[0].offset <= last:
            raise LandingRefused(f"{place}: offset {chunk[0].offset} came after {last}: this is a defect: report it")
        last = chunk[-1].offset
        yield chunk


def _offset_of(letter: Letter) -> int:
    return letter.record.offset


class _Files:
    """The files of one table: one per day, since a file belongs to one partition of the table.

    Publishers choose timestamps, and a backfill has one for every day of years. So batches are held as they come, and
    split by day only when there are enough of them for a row group: one file per day and group, not per day and chunk.
    """

    def __init__(self, target: Target, place: Place, attempt: str) -> None:
        self._target, self._place, self._attempt = target, place, attempt
        self._pending: list[pa.RecordBatch] = []
        self._marks: list[_Mark] = []  # of the records that are pending
        self._pending_bytes = 0
        self._open: dict[int | None, _File] = {}
        self._written: list[Written] = []
        self._paths: list[str] = []  # of all files begun

    def add(self, batch: pa.RecordBatch, records: Sequence[Polled], trim: int) -> None:
        """Adds a batch, of which `records` are the records, without those before offset `trim`."""
        skip = sum(1 for one in records if one.offset < trim) if records and records[0].offset < trim else 0
        batch, records = batch.slice(skip), records[skip:]
        if not records:
            return
        self._pending.append(batch)
        self._marks += [_Mark(self._day(one), one.offset, one.epoch) for one in records]
        self._pending_bytes += batch.nbytes
        if len(self._marks) >= config.LAND_GROUP_RECORDS or self._pending_bytes >= config.LAND_GROUP_BYTES:
            self._write_groups()

    def close(self) -> list[Written]:
        self._write_groups()
        for one in self._open.values():
            self._written.append(one.close())
        self._open = {}
        return self._written

    def abandon(self) -> None:
        """Gives the files up: what is on the disk already is named by nobody."""
        for one in self._open.values():
            one.abandon()
        for path in self._paths:
            with suppress(OSError):
                _file_io(tuple(sorted(self._target.io.items())), self._target.location).delete(path)

    def _day(self, record: Polled) -> int | None:
        return timestamp_ms_of(record) // _DAY_MS if self._target.by_day else None

    def _write_groups(self) -> None:
        """What is pending, as one row group for each day that is in it."""
        if not self._pending:
            return
        table, marks = pa.Table.from_batches(self._pending, self._target.arrow_schema), self._marks
        self._pending, self._marks, self._pending_bytes = [], [], 0
        days: dict[int | None, list[int]] = {}
        for at, mark in enumerate(marks):
            days.setdefault(mark.day, []).append(at)
        if len(days) > 1:  # each day's lines side by side, in their order
            table = table.combine_chunks().take(pa.array([at for places in days.values() for at in places]))
        first = 0
        for day, places in days.items():
            self._file(day, marks[places[0]].offset).write(table.slice(first, len(places)), marks[places[-1]])
            first += len(places)

    def _file(self, day: int | None, first_offset: int) -> _File:
        found = self._open.pop(day, None)
        if found is None:
            while len(self._open) >= config.LAND_DAYS_OPEN_MAX:
                oldest = next(iter(self._open))
                self._written.append(self._open.pop(oldest).close())
            name = f"{self._place.stream_id[:8]}-{self._place.partition}-{first_offset}-{len(self._paths)}.parquet"
            path = f"{self._target.location}/data/{self._attempt}/{name}"
            self._paths.append(path)
            found = _File(self._target, self._place, path, day, first_offset)
        self._open[day] = found  # the dictionary's order is that of use: the first is the one to close
        return found


class _Mark(NamedTuple):
    """What is remembered of a record that is pending; its values are in Arrow's hands."""

    day: int | None
    offset: int
    epoch: int


class _File:
    """One Parquet file under way. (Its writer holds a megabyte, closed or not: let go of it when it is closed.)"""

    def __init__(self, target: Target, place: Place, path: str, day: int | None, first_offset: int) -> None:
        self._target, self._place, self._path, self._day = target, place, path, day
        self._first_offset = first_offset
        self._last: _Mark | None = None
        self._output = _file_io(tuple(sorted(target.io.items())), target.location).new_output(path)
        self._stream = self._output.create()
        schema = target.arrow_schema
        self._writer = pq.ParquetWriter(
            self._stream,
            schema,
            compression="zstd",
            use_dictionary=[one.name for one in schema if one.name not in {"_offset", "_timestamp"}],
            column_encoding={"_offset": "DELTA_BINARY_PACKED", "_timestamp": "DELTA_BINARY_PACKED"},
            store_schema=False,  # Arrow's large types are ours, not the readers'
            sorting_columns=pq.SortingColumn.from_ordering(
                schema, [("_partition", "ascending"), ("_offset", "ascending")]
            ),
        )

    def write(self, table: pa.Table, last: _Mark) -> None:
        """Adds a row group, of which `last` is the last record."""
        self._writer.write_table(table, row_group_size=len(table))
        self._last = last

    def close(self) -> Written:
        self._writer.close()
        footer = self._writer.writer.metadata
        size_bytes = self._stream.tell()
        self._stream.close()
        assert self._last is not None  # a file is opened for a record
        return Written(
            table=self._target.table,
            path=self._path,
            size_bytes=size_bytes,
            records_count=footer.num_rows,
            day=self._day,
            stream=self._place.stream,
            stream_id=self._place.stream_id,
            partition=self._place.partition,
            first_offset=self._first_offset,
            last_offset=self._last.offset,
            last_epoch=self._last.epoch,
            statistics=_statistics(self._target, footer),
        )

    def abandon(self) -> None:
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._stream.close()


def _statistics(target: Target, footer: Any) -> dict[str, Any]:
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )

    facts = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(target.schema, {}),
        parquet_column_mapping=parquet_path_to_id_mapping(target.schema),
    )
    said: dict[str, Any] = facts.to_serialized_dict()
    said.pop("record_count")  # it stands beside
    return said


@lru_cache(maxsize=16)
def _file_io(properties: tuple[tuple[str, str], ...], location: str) -> Any:
    from pyiceberg.io import load_file_io

    return load_file_io(dict(properties), location)
