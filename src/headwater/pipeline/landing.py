"""Landing: ranges of offsets become files in tasks, and files become one commit per table on the driver.

`foreachBatch` hands the driver a frame of ranges. `ranges.mapInArrow(land)` sends them to tasks: each reads its records
with librdkafka, judges them, writes Parquet files and returns one row per range, which names the files. Then the driver
commits, table by table, each under the table's own token. No record ever crosses between Python and Java, and all side
effects are in a stage of their own, as in Spark's own sinks: a task that runs twice writes two sets of files, and only
the rows of the attempt that won reach the driver.

Where landing stands is what the tables say (their tokens), never the checkpoint. After a kill two tables of a stream may
be one commit apart, so a range is *trimmed* for each table to what its token lacks, never skipped as a whole.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import uuid4

import cloudpickle
import pyarrow as pa

from headwater import errors, failpoints
from headwater.config import RANGE_STALL_SECONDS
from headwater.errors import HeadwaterError, StreamNotFound
from headwater.lake import Advance, Judge, Landed, Place, Target, Written, commit, write_range
from headwater.model import Cursor, Epoch, Offset
from headwater.pipeline.source import Range
from headwater.sdk.ranges import Polled, RangeAdmin, read_range

ROWS = "stream string, partition int, start long, end long, epoch int, files string, error string"
_ROWS = pa.schema(
    [
        ("stream", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("epoch", pa.int32()),
        ("files", pa.string()),
        ("error", pa.string()),
    ]
)


@dataclass(slots=True, kw_only=True)
class StreamLanding:
    """One stream and the tables it lands in, with the token of each: what the driver keeps while it runs."""

    name: str
    stream_id: str
    targets: tuple[Target, ...]
    model: Any
    tokens: dict[str, dict[int, Landed]]  # table -> partition -> token, as the table has it
    starts: dict[int, Landed] = field(default_factory=dict)  # where a partition without a token begins

    def place(self, partition: int) -> Place:
        return Place(stream=self.name, stream_id=self.stream_id, partition=partition)

    def stands(self, table: str, partition: int) -> Landed:
        """Where landing goes on for one table."""
        return self.tokens[table].get(partition) or self.starts.get(partition) or Landed(end=0, epoch=-1)

    def position(self, partition: int) -> Landed:
        """Where the next range begins: at the table that is furthest behind."""
        return min((self.stands(one.table, partition) for one in self.targets), key=lambda stands: stands.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a task is told, for all streams of a batch. Travels inside of the function that Spark pickles."""

    client: Mapping[str, Any]
    judges: Mapping[str, bytes]  # stream -> (targets, model), by cloudpickle: the model may be of the app's own file
    stream_ids: Mapping[str, str]
    trims: Mapping[str, Mapping[int, Mapping[str, int]]]  # stream -> partition -> table -> the first offset it lacks
    epochs: Mapping[str, Mapping[int, int]]  # stream -> partition -> epoch of the last record before the range
    attempt: str
    path: str  # the app's directory, for modules that lie beside it
    stall_seconds: float = RANGE_STALL_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedRange:
    """What a task did with one range."""

    range: Range
    epoch: int  # of its last record; -1 when it held none
    files: tuple[Written, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLanded:
    """What one batch brought to one stream's tables."""

    stream: str
    records: int  # in the table itself
    dead_letters: int


class Lander:
    """The driver's side of a landing query: `foreachBatch` calls it with each batch of ranges."""

    def __init__(
        self,
        client: Mapping[str, Any],
        catalog: Any,
        streams: Iterable[StreamLanding],
        *,
        run: str,
        path: str,
        landed: Callable[[BatchLanded], None],
    ) -> None:
        self.failure: BaseException | None = None  # what ended the query, as it was raised
        self._stopping = False
        self._in_hand = threading.Lock()  # held while a batch is landed
        self._client, self._catalog, self._run, self._path, self._landed = client, catalog, run, path, landed
        self._streams = {one.name: one for one in streams}
        self._admin = RangeAdmin(client)
        self._judges = {one.name: cloudpickle.dumps((one.targets, one.model)) for one in self._streams.values()}

    def __call__(self, ranges: Any, batch: int) -> None:
        with self._in_hand:
            if self._stopping:
                return  # the checkpoint will call it done; nobody reads that checkpoint again
            try:
                self._land(ranges, batch)
            except BaseException as error:
                self.failure = error
                raise

    def finish(self) -> None:
        """Returns when the batch in hand has landed; from then on the query can be stopped, for nothing else begins.

        The lock is free again before that: Spark's `stop` waits for a batch that waits for the lock.
        """
        self._stopping = True
        with self._in_hand:
            pass

    def _land(self, ranges: Any, batch: int) -> None:
        work = self._work(f"{self._run}-{batch}")
        rows = ranges.mapInArrow(_in_tasks(work), ROWS).collect()
        failpoints.reach("land-files-written")
        done = [landed_range(row) for row in rows]
        by_stream: dict[str, list[LandedRange]] = {}
        for one in done:
            by_stream.setdefault(one.range.stream, []).append(one)
        self._same_streams(list(by_stream))
        committed: list[str] = []
        try:
            for name, ranges_done in by_stream.items():
                self._commit(self._streams[name], ranges_done)
                committed.append(name)
            failpoints.reach("land-before-cursors")
            for name, ranges_done in by_stream.items():
                self._tell_cursors(self._streams[name], {one.range.partition for one in ranges_done})
        finally:  # what is in the tables has landed, also when another table or the cursors failed
            for name in committed:
                self._landed(_summed(self._streams[name], by_stream[name]))

    def _work(self, attempt: str) -> Work:
        partitions = {one.name: _partitions(one) for one in self._streams.values()}
        return Work(
            client=self._client,
            judges=self._judges,
            stream_ids={one.name: one.stream_id for one in self._streams.values()},
            trims={
                name: {
                    index: {target.table: self._streams[name].stands(target.table, index).end for target in one.targets}
                    for index in partitions[name]
                }
                for name, one in self._streams.items()
            },
            epochs={
                name: {index: one.position(index).epoch for index in partitions[name]}
                for name, one in self._streams.items()
            },
            attempt=attempt,
            path=self._path,
        )

    def _same_streams(self, names: list[str]) -> None:
        """A stream that was deleted while its records were read may have been read after it was created again."""
        facts = self._admin.streams(names)
        for name in names:
            if name not in facts or facts[name].stream_id != self._streams[name].stream_id:
                raise StreamNotFound(f"the stream {name} was deleted while it was landed")

    def _commit(self, stream: StreamLanding, done: list[LandedRange]) -> None:
        """One commit per table. A kill between two of them is what trimming is for."""
        for number, target in enumerate(stream.targets):
            if number:
                failpoints.reach("land-between-tables")
            advances = advances_of(stream, target.table, done)
            if not advances:
                continue
            files = [file for one in done for file in one.files]
            commit(self._catalog, target, files, advances)
            for place, advance in advances.items():
                stream.tokens[target.table][place.partition] = advance.to

    def tell_all_cursors(self) -> None:
        """At start: a run that was killed before it told them may have left nothing more to land."""
        for stream in self._streams.values():
            self._tell_cursors(stream, _partitions(stream))

    def _tell_cursors(self, stream: StreamLanding, partitions: set[int]) -> None:
        for target in stream.targets:
            cursors = {
                index: Cursor(offset=Offset(token.end), epoch=Epoch(token.epoch))
                for index, token in stream.tokens[target.table].items()
                if index in partitions
            }
            if cursors:
                self._admin.commit_cursors(f"headwater.table.{target.table}", stream.name, stream.stream_id, cursors)


def _in_tasks(work: Work) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def land(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield pa.RecordBatch.from_pylist([land_range(work, Range(**row))], schema=_ROWS)

    return land


def land_range(work: Work, one: Range) -> dict[str, Any]:
    """What a task does with one range: the row that the driver gets for it.

    Errors of ours go to the driver as they are, since Spark's retries help none of them; others fail the task, and Spark
    tries it again.
    """
    row: dict[str, Any] = {**one._asdict(), "epoch": -1, "files": "[]", "error": None}
    try:
        targets, judge = _unpickled(work.judges[one.stream], work.path)
        trim = work.trims[one.stream].get(one.partition) or dict.fromkeys((each.table for each in targets), 0)
        epoch = work.epochs[one.stream].get(one.partition, -1)
        place = Place(stream=one.stream, stream_id=work.stream_ids[one.stream], partition=one.partition)
        watched = _Watched(
            read_range(
                work.client, one.stream, one.partition, one.start, one.end, epoch, stall_seconds=work.stall_seconds
            )
        )
        files = write_range(targets, judge, place, watched, trim, f"{work.attempt}-{uuid4().hex[:8]}")
    except HeadwaterError as error:
        return {**row, "error": json.dumps([type(error).__name__, str(error)])}
    written = json.dumps([file.to_json() for file in files])
    return {**row, "epoch": watched.epoch, "files": written}


class _Watched:
    """Records on their way to the files; remembers the last epoch."""

    def __init__(self, records: Iterator[list[Polled]]) -> None:
        self._records, self.epoch = records, -1

    def __iter__(self) -> Iterator[list[Polled]]:
        for polled in self._records:
            self.epoch = polled[-1].epoch
            yield polled


@lru_cache(maxsize=64)
def _unpickled(judge: bytes, path: str) -> tuple[tuple[Target, ...], Judge]:
    """Once per stream and worker: a model that is unpickled is compiled anew."""
    if path not in sys.path:
        sys.path.insert(0, path)
    targets, model = cloudpickle.loads(judge)
    return targets, Judge(model)


def landed_range(row: Any) -> LandedRange:
    if row["error"] is not None:
        kind, said = json.loads(row["error"])
        raise getattr(errors, kind)(said)
    return LandedRange(
        range=Range(row["stream"], row["partition"], row["start"], row["end"]),
        epoch=row["epoch"],
        files=tuple(Written.from_json(file) for file in json.loads(row["files"])),
    )


def advances_of(stream: StreamLanding, table: str, done: list[LandedRange]) -> dict[Place, Advance]:
    """How the table's tokens move. A range that ends before its token (the other table was behind) moves nothing."""
    advances = {}
    for one in done:
        seen = stream.tokens[table].get(one.range.partition)
        stands = stream.stands(table, one.range.partition)
        if one.range.end > stands.end:
            to = Landed(end=one.range.end, epoch=one.epoch if one.epoch >= 0 else stands.epoch)
            advances[stream.place(one.range.partition)] = Advance(seen=seen, to=to)
    return advances


def _partitions(stream: StreamLanding) -> set[int]:
    return {*stream.starts, *(index for tokens in stream.tokens.values() for index in tokens)}


def _summed(stream: StreamLanding, done: list[LandedRange]) -> BatchLanded:
    counts = dict.fromkeys(("table", "dead_letters"), 0)
    kinds = {target.table: target.kind for target in stream.targets}
    for one in done:
        for file in one.files:
            counts[kinds[file.table]] += file.records_count
    return BatchLanded(stream=stream.name, records=counts["table"], dead_letters=counts["dead_letters"])
