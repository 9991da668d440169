"""The one thread that writes meta.db: it gathers, answers what is durable, and survives its callers and a full disk."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError, StorageFailed
from headwater.meta.schema import connect
from headwater.meta.writer import Writer

Work = Callable[[sqlite3.Connection], object]


class Bench:
    """A writer over one table, a second connection that sees only what is durable, and a disk of limited size."""

    def __init__(self, path: Path) -> None:
        self.connection = connect(path)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("CREATE TABLE t (a PRIMARY KEY, b)")
        self.reading = connect(path)
        self.writer = Writer(self.connection, make_room=self.make_room)
        self.reserve_pages = 0

    def fill_the_disk(self, *, reserve_pages: int) -> None:
        """From here on the file may not grow, as on a full disk; the reserve gives back some pages, once."""
        (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
        self.connection.execute(f"PRAGMA max_page_count = {pages}")
        self.reserve_pages = reserve_pages

    def make_room(self) -> bool:
        if not self.reserve_pages:
            return False
        (pages,) = self.connection.execute("PRAGMA max_page_count").fetchone()
        self.connection.execute(f"PRAGMA max_page_count = {pages + self.reserve_pages}")
        self.reserve_pages = 0
        return True

    def durable(self) -> list[str]:
        return [a for (a,) in self.reading.execute("SELECT a FROM t ORDER BY a").fetchall()]

    def close(self) -> None:
        self.writer.close()
        self.reading.close()
        self.connection.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "t.db")
    yield made
    made.close()


def put(a: str, size: int = 1) -> Work:
    return lambda connection: connection.execute("INSERT INTO t VALUES (?, ?)", (a, "x" * size))


def test_nobody_is_answered_before_it_is_durable(bench: Bench) -> None:
    """At the moment of an answer another connection sees the transaction."""
    seen: list[list[str]] = []
    bench.writer.submit(put("a"), then=lambda _: seen.append(bench.durable())).result(5)
    assert seen == [["a"]]


def test_many_at_once_share_few_commits(bench: Bench) -> None:
    """What gathers while one transaction runs becomes one transaction."""
    held = threading.Event()
    first = bench.writer.submit(lambda _: held.wait(5))
    rest = [bench.writer.submit(put(f"{number:03}")) for number in range(500)]
    held.set()
    first.result(5)
    for future in rest:
        future.result(5)
    assert len(bench.durable()) == 500
    assert bench.writer.commit_count <= 3


def test_a_refusal_is_told_after_what_it_rests_on(bench: Bench) -> None:
    """Who is refused for a neighbour's change finds that change durable, and its `then` done."""
    held = threading.Event()
    seen: list[list[str]] = []
    bench.writer.submit(lambda _: held.wait(5))
    bench.writer.submit(put("a"), then=lambda _: seen.append(bench.durable()))
    refused = bench.writer.submit(put("a"))
    refused.add_done_callback(lambda _: seen.append(["refused"]))
    held.set()
    assert isinstance(refused.exception(5), StorageFailed)
    assert seen == [["a"], ["refused"]]


def test_a_request_that_fails_is_taken_back_alone(bench: Bench) -> None:
    """Its neighbours in the same transaction stay, and nothing of it does."""

    def half(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO t VALUES ('half', 1)")
        raise HeadwaterError("refused")

    held = threading.Event()
    bench.writer.submit(lambda _: held.wait(5))
    before, failing, after = (bench.writer.submit(one) for one in (put("a"), half, put("b")))
    twice = bench.writer.submit(put("a"))
    held.set()
    with pytest.raises(HeadwaterError, match="refused"):
        failing.result(5)
    with pytest.raises(StorageFailed, match="UNIQUE"):
        twice.result(5)
    for future in (before, after):
        future.result(5)
    assert bench.durable() == ["a", "b"]


def test_cancelling_forgets_the_wait_and_not_the_write(bench: Bench) -> None:
    """A caller that cancels cannot end the thread that everybody needs."""
    held = threading.Event()
    bench.writer.submit(lambda _: held.wait(5))
    future = bench.writer.submit(put("a"))
    assert not future.cancel()
    held.set()
    bench.writer.submit(put("b")).result(5)
    assert bench.durable() == ["a", "b"]


def test_a_callback_that_raises_hurts_only_its_own_answer(bench: Bench) -> None:
    """The writer goes on after what its callers do with an answer."""

    def trip(_: object) -> None:
        raise RuntimeError("tripped")

    with pytest.raises(RuntimeError, match="tripped"):
        bench.writer.submit(put("a"), then=trip).result(5)
    bench.writer.submit(put("b")).result(5)


def test_a_full_disk_refuses_the_writes_and_takes_the_deletes(bench: Bench) -> None:
    """One transaction meets a full disk: who grew is refused, who frees gets through, small ones run again."""
    bench.writer.submit(put("old", 20_000)).result(5)
    bench.fill_the_disk(reserve_pages=20)
    held = threading.Event()
    bench.writer.submit(lambda _: held.wait(5))
    small = bench.writer.submit(put("small"))
    large = bench.writer.submit(put("large", 1_000_000))
    frees = bench.writer.submit(put("frees", 40_000), frees_space=True)
    held.set()
    with pytest.raises(StorageFailed, match=r"full.*make room"):
        large.result(5)
    for future in (small, frees):
        future.result(5)
    assert bench.durable() == ["frees", "old", "small"]


def test_the_reserve_helps_once(bench: Bench) -> None:
    """When the reserve is used up, a delete is answered too, with the error; the thread goes on."""
    bench.fill_the_disk(reserve_pages=5)
    with pytest.raises(StorageFailed, match="full"):
        bench.writer.submit(put("too much", 1_000_000), frees_space=True).result(5)
    bench.writer.submit(put("a")).result(5)
    assert bench.durable() == ["a"]


def test_a_disk_that_fails_the_commit_fails_all_of_it(bench: Bench) -> None:
    """Trouble before or at the commit is everybody's, and the next transaction starts from scratch."""
    bench.writer.submit(lambda connection: connection.execute("COMMIT")).exception(5)
    bench.writer.submit(put("a")).result(5)
    assert bench.durable() == ["a"]


def test_closing_finishes_what_was_submitted(bench: Bench) -> None:
    """Requests that wait when close() is called are answered; later ones are refused."""
    futures = [bench.writer.submit(put(f"{number:03}")) for number in range(100)]
    bench.writer.close()
    assert all(future.done() and future.exception() is None for future in futures)
    with pytest.raises(StorageFailed, match="closed"):
        bench.writer.submit(put("late")).result(0)
