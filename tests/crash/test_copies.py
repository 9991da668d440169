"""Copies of one program, started at the same instant with no address: one broker among them, which ends with the last.

Each test runs once in the short form, with a linger of 1 s, and ten times in the long one.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.store import directory
from tests.crash.acked import partitions_of, say, seeded, until, values_of

PROGRAM = Path(__file__).with_name("copy_program.py")
LINGER_SECONDS = 1.0
END_SECONDS = 10.0  # of a broker without clients: its linger, a probe, and its stop on a busy machine
COPIES = 3
TIMES = [1, pytest.param(10, marks=pytest.mark.long)]


class Copy:
    """One copy of the program, in a process of its own."""

    def __init__(self, directory: Path, name: str) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
        self.name, self.acked = name, 0
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=directory, env={**environ, "HEADWATER_LINGER": str(LINGER_SECONDS)},
        )  # fmt: skip

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def hear(self, word: str) -> str:
        assert self.process.stdout is not None
        said, _, rest = self.process.stdout.readline().strip().partition(" ")
        assert said == word, (self.name, word, said, rest)
        return rest

    def publish(self, count: int) -> None:
        self.tell("publish", count)
        self.acked = int(self.hear("acked"))

    def close(self) -> None:
        self.tell("close")
        self.hear("closed")
        self._end()
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def _end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)


class Place:
    """A directory with copies in it, and what can be seen of their broker from outside."""

    def __init__(self, path: Path) -> None:
        self.path, self.data = path, path / ".headwater"
        self.copies: list[Copy] = []
        self.left: list[int] = []  # processes that a copy has forked

    def three(self) -> list[Copy]:
        """That have read their code, and wait for the word."""
        new = [Copy(self.path, str(len(self.copies) + number)) for number in range(COPIES)]
        self.copies += new
        return new

    def open(self, copies: list[Copy]) -> str:
        """All at the same instant; the address that all of them were given."""
        for one in copies:
            one.tell("open")
        addresses = {one.hear("open") for one in copies}
        assert len(addresses) == 1, addresses
        return addresses.pop()

    @property
    def broker(self) -> int:
        """Its pid. Those who lost the race for the directory are gone, or soon gone."""
        return int(until(lambda: directory.holder(self.data), "a broker holds the directory"))

    def brokers(self) -> list[int]:
        """Every process that was started for this data directory, by the machine's own list."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str(self.data).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def starts(self) -> int:
        """How many brokers ever answered here."""
        return sum(line.startswith("READY") for line in (self.data / "broker.log").read_text().splitlines())

    def records(self) -> bool:
        """Whether any record was written yet."""
        return any(path.stat().st_size for path in self.data.glob("streams/*/*/*.log"))

    def until_alone(self) -> int:
        """The one broker's pid, once it is the only one."""
        until(lambda: self.brokers() == [self.broker], f"one broker, not {self.brokers()}")
        return self.broker

    def ends_with(self, last: Copy) -> None:
        """The broker outlives the linger while `last` is there, and then goes, and leaves nothing behind."""
        broker = self.until_alone()
        stay_until = time.monotonic() + LINGER_SECONDS + 1
        while time.monotonic() < stay_until:
            last.publish(5)
        assert self.brokers() == [broker]
        last.close()
        until(lambda: not self.brokers(), "nobody is left", END_SECONDS)
        assert directory.holder(self.data) is None

    def judge(self) -> None:
        """Of every copy all that was acked is there once, in order; the log says that it is whole."""
        [values] = [values_of(partition) for partition in partitions_of(self.data, "copies")]
        records = [json.loads(value) for value in values]
        for one in self.copies:
            numbers = [record["number"] for record in records if record["who"] == one.name]
            assert numbers == list(range(len(numbers))), f"doubled, or out of order, of copy {one.name}"
            assert len(numbers) >= one.acked, f"lost {one.acked - len(numbers)} of copy {one.name}"


@pytest.fixture
def new_place(tmp_path: Path) -> Iterator[Callable[[], Place]]:
    places: list[Place] = []

    def make() -> Place:
        path = tmp_path / str(len(places))
        path.mkdir()
        places.append(Place(path))
        return places[-1]

    yield make
    for place in places:
        for one in place.copies:
            one.kill()
        for pid in place.left + place.brokers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def every(times: int, new_place: Callable[[], Place]) -> Iterator[tuple[Place, random.Random]]:
    """Each time in a new directory; what was acked is looked for at its end."""
    moments = seeded()
    for number in range(times):
        place = new_place()
        yield place, moments
        place.judge()
        say(f"{number + 1} of {times}: {sum(one.acked for one in place.copies)} acked, {place.starts()} starts")


@pytest.mark.parametrize("times", TIMES)
def test_three_copies_have_one_broker_which_ends_with_the_last(new_place, times: int) -> None:
    """Whoever of them started it, and whoever of them leaves first."""
    for place, moments in every(times, new_place):
        copies = place.three()
        place.open(copies)
        moments.shuffle(copies)
        for one in copies:
            one.publish(20)
        for one in copies[:-1]:
            one.close()
        place.ends_with(copies[-1])
        assert place.starts() == 1


@pytest.mark.parametrize("times", TIMES)
def test_a_killed_program_does_not_hurt_the_others(new_place, times: int) -> None:
    """Not even the one whose child the broker is; and the broker does not wait for the dead."""
    for place, _ in every(times, new_place):
        copies = place.three()
        place.open(copies)
        parent = int(Path(f"/proc/{place.until_alone()}/stat").read_text().rpartition(")")[2].split()[1])
        [victim] = [one for one in copies if one.process.pid == parent]
        others = [one for one in copies if one is not victim]
        for one in copies:
            one.tell("publish", 200)
        victim.kill()
        for one in others:
            one.acked = int(one.hear("acked"))
        others[0].kill()
        place.ends_with(others[1])
        assert place.starts() == 1


@pytest.mark.parametrize("times", TIMES)
def test_a_program_that_forks_does_not_keep_the_broker(new_place, times: int) -> None:
    """Its child has no part in the lock, nor in the connections, however long it lives."""
    for place, _ in every(times, new_place):
        copies = place.three()
        place.open(copies)
        for one in copies:
            one.publish(20)
            one.tell("fork")
            place.left.append(int(one.hear("forked")))
        for one in copies[:-1]:
            one.publish(20)
            one.close()
        place.ends_with(copies[-1])
        assert place.starts() == 1
        assert [pid for pid in place.left if not Path(f"/proc/{pid}").exists()] == []


@pytest.mark.parametrize("times", TIMES)
def test_a_killed_broker_comes_back_under_its_address(new_place, times: int) -> None:
    """Under writes, which go on by themselves; one program or the other starts it again, and only one."""
    for place, moments in every(times, new_place):
        copies = place.three()
        address = place.open(copies)
        first = place.until_alone()
        for one in copies:
            one.tell("publish", 800)
        until(place.records, "records are on their way")
        with contextlib.suppress(subprocess.TimeoutExpired):
            copies[0].process.wait(moments.uniform(0, 0.3))
        os.kill(first, signal.SIGKILL)
        for one in copies:
            one.acked = int(one.hear("acked"))
        assert place.until_alone() != first
        assert str(directory.address(place.data)) == address
        assert place.starts() == 2
        for one in copies[:-1]:
            one.close()
        place.ends_with(copies[-1])


@pytest.mark.parametrize("times", TIMES)
def test_who_comes_while_the_broker_closes_is_served(new_place, times: int) -> None:
    """By the old one or by a new one, and all by the same; the port stays."""
    for place, moments in every(times, new_place):
        first, second = place.three(), place.three()
        address = place.open(first)
        for one in first:
            one.publish(20)
            one.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            second[0].process.wait(LINGER_SECONDS + moments.uniform(-0.1, 0.9))
        assert place.open(second) == address
        for one in second:
            one.publish(20)
        for one in second[:-1]:
            one.close()
        place.ends_with(second[-1])
        assert place.starts() in {1, 2}
