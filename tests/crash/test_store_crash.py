"""kill -9 while a stream is deleted, while a start goes on with that, and while a start recovers: nothing stays half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from headwater.batch import decode, parse
from headwater.config import Settings
from headwater.log import Partition
from headwater.meta import StreamEntry
from headwater.model import Offset, PartitionIndex
from headwater.store import Store
from tests.crash.store_program import GROUP, NOW_MS, SEGMENT_BYTES, append, place_of, wait_until_freed

KILLED = -signal.SIGKILL


def run(data: Path, step: str, failpoint: str = "") -> int:
    environ = {**os.environ, "HEADWATER_FAILPOINT": failpoint}
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.store_program", str(data), step],
        env=environ, check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode in {0, KILLED}, done.stderr
    return done.returncode


@contextmanager
def opened(data: Path) -> Iterator[Store]:
    store = Store.open(Settings(data=str(data), segment_bytes=SEGMENT_BYTES))
    try:
        yield store
    finally:
        store.close()


def values(partition: Partition) -> list[bytes]:
    found: list[bytes] = []
    offset = partition.start
    while offset < partition.end:
        for piece in partition.read(offset, 1 << 20, upto=partition.end):
            view, at = memoryview(piece.bytes()), 0
            while at < len(view):
                batch = parse(view, at)
                found += [record.value or b"" for record in decode(batch)]
                at += batch.length
                offset = Offset(batch.next_offset)
    return found


def check_that_gone_is_gone(data: Path, gone: StreamEntry) -> None:
    """No row, no file, no cursor; its name starts fresh; and the neighbour is whole."""
    with opened(data) as store:
        wait_until_freed(store)
        assert [one.name for one in store.streams()] == ["keep"]
        assert list((data / "streams").glob(f"*/{gone.id.hex()}*")) == []
        keep = store.streams()[0]
        assert {place: cursor.offset for place, cursor in store.cursors(GROUP).items()} == {
            place_of(keep, index): 2 for index in range(2)
        }
        for index in range(2):
            partition = store.partition(place_of(keep, index))
            assert values(partition) == [f"keep-{index}-{number}".encode() for number in range(3)]
            assert partition.check() == []
        again = store.create("gone", 2, {}, NOW_MS).result(10)
        partition = store.partition(place_of(again, 0))
        assert (again.id == gone.id, partition.start, partition.end) == (False, 0, 0)
        append(partition, b"new")
        assert values(partition) == [b"new"]


def prepared(data: Path) -> StreamEntry:
    assert run(data, "prepare") == 0
    with opened(data) as store:
        gone = store.stream("gone")
        assert gone is not None
        return gone


@pytest.mark.parametrize("failpoint", ["mid-delete:1", "mid-delete:2", "between-log-and-meta:1"])
def test_a_delete_that_was_killed_is_finished_at_the_next_start(tmp_path: Path, failpoint: str) -> None:
    """Killed after a partition's files or between the files and the row, a delete leaves nothing half-done."""
    gone = prepared(tmp_path)
    assert run(tmp_path, "delete", failpoint) == KILLED
    check_that_gone_is_gone(tmp_path, gone)


def test_a_start_that_is_killed_while_it_finishes_a_delete_may_be_repeated(tmp_path: Path) -> None:
    """Killed after each single file, start after start, the delete comes to its end."""
    gone = prepared(tmp_path)
    assert run(tmp_path, "delete", "mid-delete:1") == KILLED
    kills = 0
    while run(tmp_path, "open", "mid-delete:1") == KILLED:
        kills += 1
        assert kills < 50
    assert kills >= 2
    assert run(tmp_path, "open", "between-log-and-meta:1") == 0
    check_that_gone_is_gone(tmp_path, gone)


def test_a_delete_killed_before_its_row_goes_is_found_once_more(tmp_path: Path) -> None:
    """The row outlives the files, so a kill between them, again and again, leaves no file without a row."""
    gone = prepared(tmp_path)
    assert run(tmp_path, "delete", "between-log-and-meta:1") == KILLED
    assert run(tmp_path, "open", "between-log-and-meta:1") == KILLED
    check_that_gone_is_gone(tmp_path, gone)


def test_a_start_that_is_killed_while_it_recovers_may_be_repeated(tmp_path: Path) -> None:
    """A torn tail, and kills at each step of cutting it: in the end all acked records are there, in order."""
    assert run(tmp_path, "prepare") == 0
    count = acked_until_killed(tmp_path, seed=1)
    log = max((tmp_path / "streams").glob("*/*/0-*.log"), key=lambda path: path.stat().st_size)
    with log.open("ab") as file:
        file.write(b"torn" * 100)
    program = (
        "import sys; from tests.crash.store_program import *\n"
        "store = Store.open(Settings(data=sys.argv[1], segment_bytes=SEGMENT_BYTES))\n"
        "store.partition(place_of(store.stream('keep'), 0)); store.close()"
    )
    for step in (1, 2):
        environ = {**os.environ, "HEADWATER_FAILPOINT": f"mid-recovery:{step}"}
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=environ, check=False, timeout=60)
        assert done.returncode in {0, KILLED}
        assert done.returncode == KILLED or step > 1
    check_acked(tmp_path, count)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_acked_is_there_after_a_kill_at_any_moment(tmp_path: Path, seed: int) -> None:
    """A process killed while it appends loses nothing that it acked; its cursors are where they were."""
    assert run(tmp_path, "prepare") == 0
    count = acked_until_killed(tmp_path, seed=seed)
    check_acked(tmp_path, count)


def acked_until_killed(data: Path, *, seed: int) -> int:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.store_program", str(data), "write"], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    stop_at, count = Random(seed).randrange(200, 3000), 0
    for line in child.stdout:
        count = int(line.split()[1]) + 1
        if count == stop_at:
            child.kill()
    child.wait()
    child.stdout.close()
    assert count >= stop_at
    return count


def check_acked(data: Path, count: int) -> None:
    with opened(data) as store:
        keep = store.stream("keep")
        assert keep is not None
        partition = store.partition(place_of(keep, 0))
        found = values(partition)[3:]
        assert [int(one.split()[0]) for one in found] == list(range(len(found)))
        assert len(found) >= count
        assert partition.check() == []
        assert store.cursors(GROUP)[place_of(keep, 0)].offset == 2


@dataclass(slots=True)
class Said:
    """What a killed process said that it did, or was about to do."""

    created: set[str] = field(default_factory=set)
    deleting: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    appended: dict[tuple[str, int], int] = field(default_factory=dict)
    committing: dict[tuple[str, int], int] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)

    def note(self, line: str) -> None:
        what, stream, *numbers = line.split()
        if numbers:
            getattr(self, what)[stream, int(numbers[0])] = int(numbers[1])
        else:
            getattr(self, what).add(stream)


@pytest.mark.parametrize("rounds", [4, pytest.param(100, marks=pytest.mark.long)])
def test_whatever_was_answered_holds_after_a_kill_at_any_moment(tmp_path: Path, rounds: int) -> None:
    """Creates, deletes, appends and commits at random, killed and started again and again: no answer is taken back."""
    said, seed = Said(), int.from_bytes(os.urandom(4))
    print("seed", seed)  # noqa: T201
    random = Random(seed)
    for _ in range(rounds):
        churn_until_killed(tmp_path, said, lines=random.randrange(1, 600))
        with opened(tmp_path) as store:
            wait_until_freed(store)
            check_said(store, said, tmp_path)


def churn_until_killed(data: Path, said: Said, *, lines: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.store_program", str(data), "churn"], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for number, line in enumerate(child.stdout):
        if line.endswith("\n"):
            said.note(line)
        if number == lines:
            child.kill()
    assert child.wait() == KILLED
    child.stdout.close()


def check_said(store: Store, said: Said, data: Path) -> None:
    living = {entry.id.hex(): entry for entry in store.streams()}
    assert said.created - said.deleting <= living.keys()
    assert not said.deleted & living.keys()
    assert {path.name for path in (data / "streams").glob("*/*")} <= living.keys()
    cursors = {(place[0].hex(), place[1]): cursor.offset for place, cursor in store.cursors(GROUP).items()}
    assert {stream for stream, _ in cursors} <= living.keys()
    for stream, entry in living.items():
        for index in range(2):
            place = (stream, PartitionIndex(index))
            partition = store.partition(place_of(entry, index))
            assert values(partition) == [b"%d" % offset for offset in range(partition.end)]
            assert partition.end >= said.appended.get(place, 0)
            assert partition.check() == []
            assert cursors.get(place, 0) in {said.committed.get(place, 0), said.committing.get(place, 0)}
