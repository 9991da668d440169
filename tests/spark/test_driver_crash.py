"""The driver and its Java are killed again and again while records come in: nothing is lost, nothing doubled."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import write_app
from tests.spark.ground import START_SECONDS, Driver, ServerProcess, Tables, Writer, orders
from tests.spark.steps import assert_cursors_follow, create, land

FAILPOINTS = ("land-files-written", "land-between-tables", "land-before-cursors")
HITS_EACH = 2
RANDOM_KILLS = 6
STREAM = "killed_again_and_again"


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_a_driver_killed_a_dozen_times_loses_and_doubles_nothing(
    spark: Any, server: ServerProcess, writer: Writer, tmp_path: Path
) -> None:
    """At each failpoint twice, at random six times, the server once in between; then the tables are the log."""
    seed = int(os.environ.get("HEADWATER_SEED", time.time_ns() % 1_000_000))
    dice = random.Random(seed)
    _tell(f"\nseed {seed} (HEADWATER_SEED)")
    app = write_app(tmp_path, STREAM)
    create(server, STREAM)
    kills = [f"{name}:{dice.randint(1, 3)}" for name in FAILPOINTS for _ in range(HITS_EACH)]
    kills += ["random"] * RANDOM_KILLS
    dice.shuffle(kills)
    hits: dict[str, int] = {}
    with _records_come_in(writer):
        for number, kill in enumerate(kills):
            if number == len(kills) // 2:
                server.kill()
                server.start()
            where = _killed(app, tmp_path, server, kill, dice)
            hits[where] = hits.get(where, 0) + 1
            _tell(f"kill {number + 1}: {where}, {len(writer.acked.get(STREAM, []))} records acknowledged so far")
            assert_cursors_follow(server, tmp_path, STREAM)
    _tell("hits: " + ", ".join(f"{name} {count}" for name, count in sorted(hits.items())))
    assert all(hits.get(name, 0) >= HITS_EACH for name in FAILPOINTS)
    land(app, tmp_path, server)
    Tables(tmp_path).assert_equal(STREAM, writer.acked[STREAM])


def _tell(line: str) -> None:
    print(line, flush=True)  # noqa: T201  seeds and hits are what whoever runs this wants to read


def _killed(app: Path, data: Path, server: ServerProcess, kill: str, dice: random.Random) -> str:
    """Runs a driver until it is killed; says where that was."""
    name = kill.partition(":")[0]
    driver = Driver(app, data, server.address, once=False, failpoint="" if kill == "random" else kill)
    if name != "random":
        assert driver.wait(2 * START_SECONDS) == -9, driver.said
        driver.kill()
        return name
    seconds = dice.uniform(0, 8)
    if dice.random() < 0.7:  # else while Spark starts
        driver.until(lambda: "landed " in driver.said)
        seconds = dice.uniform(0, 3)
    moment = time.monotonic() + seconds
    driver.until(lambda: time.monotonic() > moment)
    driver.kill()
    return "random, landing" if "landed " in driver.said else "random, before the first commit"


@contextmanager
def _records_come_in(writer: Writer) -> Iterator[None]:
    """Some hundred records every moment, until the end of the block."""
    done = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        number = 0
        while not done.wait(0.5):
            try:
                writer.publish(STREAM, orders(number, 200))
            except BaseException as error:
                failed.append(error)
                raise
            number += 200

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(START_SECONDS)
    assert not failed, failed
