"""What the driver of a landing keeps: where each table stands, how tokens move, what a failure says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headwater.errors import ConnectionFailed, LandingFailed, RecordsLost, StreamNotFound
from headwater.lake import Advance, Landed, ensure_targets, landed, open_catalog
from headwater.pipeline.app import in_one_line
from headwater.pipeline.landing import (
    BatchLanded,
    LandedRange,
    Lander,
    StreamLanding,
    Work,
    advances_of,
    land_range,
    landed_range,
)
from headwater.pipeline.source import Range
from headwater.sdk.declare import Stream, Table

TABLE, LETTERS = "headwater.orders", "headwater.orders_dead_letters"


class Order(BaseModel):
    id: str


@pytest.fixture
def landing(tmp_path: Path) -> StreamLanding:
    stream = Stream[Order]("orders", destination=Table[Order]("orders"))
    return StreamLanding(
        name="orders",
        stream_id="ab" * 16,
        targets=ensure_targets(open_catalog({}, tmp_path), stream),
        model=Order,
        tokens={TABLE: {0: Landed(end=100, epoch=3)}, LETTERS: {0: Landed(end=40, epoch=2)}},
        starts={0: Landed(end=0, epoch=-1), 1: Landed(end=7, epoch=-1)},
    )


def done(partition: int, start: int, end: int, epoch: int) -> LandedRange:
    return LandedRange(range=Range("orders", partition, start, end), epoch=epoch, files=())


class Tasks:
    """What `foreachBatch` gives: its tasks have read their ranges, and found nothing to write."""

    def __init__(self, *ranges: Range) -> None:
        self._rows = [{**one._asdict(), "epoch": 3, "files": "[]", "error": None} for one in ranges]

    def mapInArrow(self, land: Any, schema: str) -> Tasks:  # noqa: N802  Spark's name
        return self

    def collect(self) -> list[dict[str, Any]]:
        return self._rows


class WithoutCursors(Lander):
    """The server goes away between the tables' commits and the cursors."""

    def _same_streams(self, names: list[str]) -> None:
        pass

    def _tell_cursors(self, stream: StreamLanding, partitions: set[int]) -> None:
        raise ConnectionFailed("away")


def test_what_is_in_the_tables_is_said_though_the_cursors_fail(landing: StreamLanding, tmp_path: Path) -> None:
    """The tokens have moved, so nothing will land these again: whoever counts what landed must hear of it now."""
    said: list[BatchLanded] = []
    client, catalog = {"bootstrap.servers": "127.0.0.1:1"}, open_catalog({}, tmp_path)
    landing.tokens = {table: {} for table in landing.tokens}
    lander = WithoutCursors(client, catalog, [landing], run="r", path=".", landed=said.append)
    with pytest.raises(ConnectionFailed):
        lander(Tasks(Range("orders", 0, 0, 5)), 0)
    assert landed(catalog, landing.targets[0], landing.stream_id) == {0: Landed(end=5, epoch=3)}
    assert [one.stream for one in said] == ["orders"]


def test_a_range_begins_where_the_table_furthest_behind_stands(landing: StreamLanding) -> None:
    """After a kill between two commits the table of dead letters lacks what the other has."""
    assert landing.position(0) == Landed(end=40, epoch=2)


def test_a_partition_without_a_token_begins_where_the_log_does(landing: StreamLanding) -> None:
    """Retention may have taken a beginning that nobody landed."""
    assert landing.position(1).end == 7
    assert landing.position(5).end == 0


def test_each_token_moves_from_what_it_was(landing: StreamLanding) -> None:
    """One range, two tables that stand apart: both tokens end at its end."""
    ranges = [done(0, 40, 160, 4)]
    assert advances_of(landing, TABLE, ranges) == {
        landing.place(0): Advance(seen=Landed(end=100, epoch=3), to=Landed(end=160, epoch=4))
    }
    assert advances_of(landing, LETTERS, ranges) == {
        landing.place(0): Advance(seen=Landed(end=40, epoch=2), to=Landed(end=160, epoch=4))
    }


def test_a_range_that_ends_before_a_token_moves_it_nowhere(landing: StreamLanding) -> None:
    """The table that is ahead waits until the other has caught up: a token never goes back by landing."""
    ranges = [done(0, 40, 90, 2)]
    assert advances_of(landing, TABLE, ranges) == {}
    assert len(advances_of(landing, LETTERS, ranges)) == 1


def test_a_range_without_records_keeps_the_epoch(landing: StreamLanding) -> None:
    """Gaps move the end and say nothing about the epoch; a first token of gaps alone has none."""
    found = advances_of(landing, TABLE, [done(0, 100, 120, -1), done(1, 7, 9, -1)])
    assert found[landing.place(0)].to == Landed(end=120, epoch=3)
    assert found[landing.place(1)] == Advance(seen=None, to=Landed(end=9, epoch=-1))


def test_an_error_of_ours_in_a_task_reaches_the_driver_as_itself(landing: StreamLanding) -> None:
    """The row of a range that failed carries the error; Spark's retries would help none of them."""
    import cloudpickle

    work = Work(
        client={"bootstrap.servers": "127.0.0.1:1"},
        judges={"orders": cloudpickle.dumps((landing.targets, Order))},
        stream_ids={"orders": landing.stream_id},
        trims={"orders": {}},
        epochs={"orders": {}},
        attempt="test",
        path="",
        stall_seconds=0.1,
    )
    row = land_range(work, Range("orders", 0, 0, 5))
    with pytest.raises(ConnectionFailed):
        landed_range(row)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (RecordsLost("gone"), RecordsLost, "gone"),
        (
            RuntimeError(
                "[STREAM_FAILED] Traceback (most recent call last):\n  File x\nheadwater.errors.StreamNotFound: "
                "the stream a was deleted\n SQLSTATE: 38000\n\tat org.apache.spark.X(Y.scala:1)"
            ),
            StreamNotFound,
            "the stream a was deleted",
        ),
        (
            RuntimeError("Job aborted\nTraceback:\n  File x\nOSError: [Errno 28] No space left on device\n\tat java.X"),
            LandingFailed,
            "No space left on device",
        ),
        (RuntimeError("something\n\tat java.lang.Thread.run(Thread.java:1)"), LandingFailed, "stopped: something "),
    ],
)
def test_what_ended_a_query_is_said_in_one_line(error: BaseException, kind: type[Any], said: str) -> None:
    """No Java in it, and our own errors as themselves, also from the planner process and from tasks."""
    found = in_one_line(error)
    assert isinstance(found, kind)
    assert said in str(found)
    assert "\n" not in str(found)
    assert "java" not in str(found)
