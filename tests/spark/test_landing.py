"""Streams land in their tables exactly once, whatever happens to driver, stream and log meanwhile."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.sdk.ranges import RangeAdmin
from tests.spark.conftest import write_app
from tests.spark.ground import Driver, ServerProcess, Tables, Writer, orders
from tests.spark.steps import assert_cursors_follow, create, cursors, delete, land, set_cursors


def test_typed_streams_land_with_their_dead_letters(
    spark: Any, server: ServerProcess, writer: Writer, tmp_path: Path
) -> None:
    """Two streams land at once: valid records as columns, the others by their original bytes, cursors at the end."""
    create(server, "typed-one", "typed_two")
    writer.publish("typed-one", orders(0, 500))
    writer.publish("typed_two", orders(0, 300, mark="b"))
    app = write_app(tmp_path, "typed_two")
    app.write_text(
        app.read_text() + '\none = Stream[Order]("typed-one", destination=Table[Order]("typed_one"), partitions=2)\n'
    )
    outcome, _ = land(app, tmp_path, server)
    assert outcome.drained
    assert (outcome.records, outcome.dead_letters) == (
        {"typed_two": 270, "typed-one": 450},
        {"typed_two": 30, "typed-one": 50},
    )
    tables = Tables(tmp_path)
    tables.assert_equal("typed_one", writer.acked["typed-one"])
    tables.assert_equal("typed_two", writer.acked["typed_two"])
    ends = RangeAdmin(server.client()).ends([("typed-one", 0), ("typed-one", 1)])
    for table in ("typed_one", "typed_one_dead_letters"):
        assert cursors(server, table, "typed-one") == {index: end for (_, index), end in ends.items()}, table


def test_a_restart_lands_nothing_twice(
    spark: Any, server: ServerProcess, writer: Writer, app: Path, stream: str, tmp_path: Path
) -> None:
    """A second run finds nothing to do, and a third lands just what came in between."""
    create(server, stream)
    writer.publish(stream, orders(0, 200))
    land(app, tmp_path, server)
    files = sorted(tmp_path.rglob("*.parquet"))
    ends = cursors(server, stream, stream)
    set_cursors(server, stream, stream, dict.fromkeys(ends, 1))
    outcome, _ = land(app, tmp_path, server)
    assert (outcome.records[stream], outcome.dead_letters[stream]) == (0, 0)
    assert cursors(server, stream, stream) == ends  # a run that was killed before it told them is made good
    assert sorted(tmp_path.rglob("*.parquet")) == files
    writer.publish(stream, orders(200, 100))
    outcome, _ = land(app, tmp_path, server)
    assert (outcome.records[stream], outcome.dead_letters[stream]) == (90, 10)
    Tables(tmp_path).assert_equal(stream, writer.acked[stream])


def test_a_stream_created_again_lands_from_its_beginning(
    spark: Any, server: ServerProcess, writer: Writer, app: Path, stream: str, tmp_path: Path
) -> None:
    """Landed to its end, deleted, created again with more records than before: all of the new ones land too."""
    create(server, stream)
    writer.publish(stream, orders(0, 60, mark="old"))
    land(app, tmp_path, server)
    delete(server, stream)
    create(server, stream)
    writer.publish(stream, orders(0, 200, mark="new"))
    land(app, tmp_path, server)
    assert len({one.stream_id for one in writer.acked[stream]}) == 2
    Tables(tmp_path).assert_equal(stream, writer.acked[stream])


def test_a_running_landing_ends_with_its_batch(
    spark: Any, server: ServerProcess, writer: Writer, app: Path, stream: str, tmp_path: Path
) -> None:
    """A continuous run lands what comes, in several batches, and SIGTERM ends it with everything in order."""
    create(server, stream)
    driver = Driver(app, tmp_path, server.address, once=False)
    try:
        driver.until(lambda: "ready" in driver.said)
        for number in range(3):
            writer.publish(stream, orders(number * 100, 100))
            driver.until(partial(has_landed, driver, number + 1))
        driver.terminate()
        assert driver.wait() == 0, driver.said
    finally:
        driver.kill()
    Tables(tmp_path).assert_equal(stream, writer.acked[stream])


@pytest.mark.parametrize("failpoint", ["land-files-written:1", "land-between-tables:1"])
def test_a_killed_driver_loses_and_doubles_nothing(
    spark: Any, server: ServerProcess, writer: Writer, failpoint: str, tmp_path: Path
) -> None:
    """Killed with files and no commit, or between the commits of table and dead letters, the next run sets it right."""
    stream = "killed_" + failpoint.partition(":")[0].replace("-", "_")
    app = write_app(tmp_path, stream)
    create(server, stream)
    writer.publish(stream, orders(0, 300))
    driver = Driver(app, tmp_path, server.address, failpoint=failpoint)
    assert driver.wait() == -9, driver.said
    driver.kill()
    assert_cursors_follow(server, tmp_path, stream)
    writer.publish(stream, orders(300, 50))
    land(app, tmp_path, server)
    Tables(tmp_path).assert_equal(stream, writer.acked[stream])


def has_landed(driver: Driver, batches: int) -> bool:
    return driver.said.count("landed ") >= batches


@pytest.mark.only_headwater("the files of a Kafka's log are Kafka's business")
@pytest.mark.parametrize("again", [30, 400])
def test_what_replaces_a_lost_tail_lands(
    spark: Any, server: ServerProcess, writer: Writer, again: int, tmp_path: Path
) -> None:
    """The log's tail is cut behind the tokens and others are published in its place, fewer than before or more."""
    stream = f"cut_and_{again}"
    app = write_app(tmp_path, stream)
    create(server, stream)
    for number in range(5):
        writer.publish(stream, orders(number * 40, 40, mark="old"))
    land(app, tmp_path, server)
    before = RangeAdmin(server.client()).ends([(stream, 0), (stream, 1)])
    server.kill()
    server.cut(writer.stream_id_of(stream), 0)
    server.start()
    admin = RangeAdmin(server.client())
    cut_at = admin.ends([(stream, 0)])[stream, 0]
    assert 0 < cut_at < before[stream, 0]
    writer.publish(stream, orders(0, again, mark="new"))
    _, said = land(app, tmp_path, server)
    moved = [str(one) for one in said if one.kind == "moved"]
    assert len(moved) == 2, moved
    assert all(f"cut at offset {cut_at}" in one for one in moved)
    Tables(tmp_path).assert_equal(stream, writer.acked[stream])
    outcome, said = land(app, tmp_path, server)
    assert outcome.records[stream] == 0
    assert not [one for one in said if one.kind == "moved"]


def test_an_ordinary_restart_of_the_server_costs_nothing(
    spark: Any, server: ServerProcess, writer: Writer, app: Path, stream: str, tmp_path: Path
) -> None:
    """A killed server comes back with a new epoch: nothing moves, nothing lands again, and new records land."""
    create(server, stream)
    writer.publish(stream, orders(0, 100))
    land(app, tmp_path, server)
    server.kill()
    server.start()
    outcome, said = land(app, tmp_path, server)
    assert outcome.records[stream] == 0
    assert not [one for one in said if one.kind == "moved"]
    writer.publish(stream, orders(100, 100))
    land(app, tmp_path, server)
    Tables(tmp_path).assert_equal(stream, writer.acked[stream])
