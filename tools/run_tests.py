"""Runs the tests room by room, says how long each room took, and ends with one line that counts.

    tools/run_tests.py                          what `make test` runs: everything but the long tests
    tools/run_tests.py crash                    kill -9 and power cuts, the long form
    tools/run_tests.py interop [--target kafka] real clients on our broker, or on a real Apache Kafka

A room that fails does not stop the next one: the whole picture is worth the minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHORT = ["-m", "not long"]
PARALLEL = ["-n", "2", "--dist", "loadfile"]
LONG_TIMEOUT = ["--timeout", "2400"]  # a long test is a loop of many kills


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Some test folders that run in one pytest process, and the minutes they may take."""

    name: str
    paths: tuple[str, ...]
    options: tuple[str, ...] = ()
    minutes: float


@dataclass(slots=True, kw_only=True)
class Outcome:
    room: Room
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0


def rooms(what: str) -> list[Room]:
    if what == "crash":
        loud = ("-s", *LONG_TIMEOUT)  # seeds and hits are printed
        return [
            Room(name="log and broker", paths=("tests/crash",), options=loud, minutes=20),
            Room(name="copies", paths=("tests/sdk",), options=("-m", "long", *loud), minutes=5),
            Room(name="Spark", paths=("tests/spark",), options=loud, minutes=20),
        ]
    if what == "interop":
        return [Room(name="interop", paths=("tests/interop", "tests/sdk"), options=tuple(LONG_TIMEOUT), minutes=20)]
    return [
        Room(
            name="pure and log",
            paths=("tests/unit", "tests/contract", "tests/golden"),
            options=(*SHORT, *PARALLEL),
            minutes=3,
        ),
        Room(
            name="broker and interop",
            paths=("tests/crash", "tests/interop", "tests/sdk"),
            options=(*SHORT, *PARALLEL),
            minutes=3,
        ),
        Room(name="Spark", paths=("tests/spark",), options=tuple(SHORT), minutes=4),
        Room(
            name="docs and mutants",
            paths=("tests/house", "tests/typing", "tests/mutants"),
            options=tuple(SHORT),
            minutes=2,
        ),
    ]


def run(room: Room, extra: list[str]) -> Outcome:
    print(f"== {room.name}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        paths = [path for path in room.paths if (ROOT / path).exists()]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *paths, *room.options, f"--junitxml={report}", "--durations=5", *extra],
            cwd=ROOT,
            check=False,
        )
        outcome = Outcome(room=room, seconds=time.monotonic() - begun)
        _count(outcome, report)
    if done.returncode and not outcome.failed:
        outcome.failed = 1  # pytest itself fell over: that is a failure too
    return outcome


def _count(outcome: Outcome, report: Path) -> None:
    if not report.exists():
        return
    for suite in ET.parse(report).getroot().iter("testsuite"):
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        outcome.failed += bad
        outcome.skipped += skipped
        outcome.passed += tests - bad - skipped


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="test", choices=["test", "crash", "interop"])
    parser.add_argument("--target", default="headwater", choices=["headwater", "kafka"])
    options, extra = parser.parse_known_args()
    os.environ["TARGET"] = options.target
    outcomes = [run(room, extra) for room in rooms(options.what)]
    print(f"\n{'room':20} {'minutes':>8} {'budget':>7} {'passed':>7} {'failed':>7} {'skipped':>8}")
    for one in outcomes:
        print(
            f"{one.room.name:20} {one.seconds / 60:8.1f} {one.room.minutes:7.1f}"
            f" {one.passed:7} {one.failed:7} {one.skipped:8}"
        )
    passed, failed, skipped = (sum(getattr(one, name) for one in outcomes) for name in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
