"""One thread that writes meta.db, and makes many requests durable with one sync.

A request is a function of the connection. Whatever has gathered while the last transaction was being synced runs as
one transaction: so a lone request waits for one sync, and a thousand at once wait for one or two. Nobody is answered
before the commit is on disk, and all in order. Each request has its own savepoint: one that fails is taken back alone;
its refusal may rest on a neighbour's change ("this stream exists"), so it is not told before that change holds.

A full disk can make SQLite take back the whole transaction in the middle. Then the request that met it is answered
with the error, and the others run again: requests are functions of the tables, so running twice is running once.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from headwater.config import META_REQUESTS_PER_COMMIT
from headwater.errors import HeadwaterError, StorageFailed

T = TypeVar("T")


@dataclass(slots=True, kw_only=True, eq=False)
class _Request(Generic[T]):
    work: Callable[[sqlite3.Connection], T]
    then: Callable[[T], None] | None
    frees_space: bool
    future: Future[T] = field(default_factory=Future)
    result: Any = None
    refusal: BaseException | None = None


class Writer:
    """Owns the writing connection; `submit` may be called from any thread."""

    def __init__(self, connection: sqlite3.Connection, *, make_room: Callable[[], bool]) -> None:
        self._connection = connection
        self._make_room = make_room
        self._waiting: queue.SimpleQueue[_Request[Any] | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self.commit_count = 0
        self._thread = threading.Thread(target=self._run, name="headwater-meta", daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        then: Callable[[T], None] | None = None,
        frees_space: bool = False,
    ) -> Future[T]:
        """Answers with `work`'s result once it is durable. `then` runs first, in the writer's thread.

        With `frees_space` a full disk is met by giving up the reserve, so that a delete gets through. Cancelling the
        future does nothing: a caller may forget its wait, not the write.
        """
        request = _Request(work=work, then=then, frees_space=frees_space)
        request.future.set_running_or_notify_cancel()
        with self._closing:
            if self._closed:
                request.future.set_exception(StorageFailed("meta.db is closed: the broker is stopping"))
            else:
                self._waiting.put(request)
        return request.future

    def close(self) -> None:
        """Finishes what was submitted, then ends the thread."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        open_for_more = True
        while open_for_more:
            batch: list[_Request[Any]] = []
            request = self._waiting.get()
            while request is not None:
                batch.append(request)
                if len(batch) == META_REQUESTS_PER_COMMIT or self._waiting.empty():
                    break
                request = self._waiting.get()
            open_for_more = request is not None
            while batch:
                batch = self._commit(batch)

    def _commit(self, batch: list[_Request[Any]]) -> list[_Request[Any]]:
        """Runs and answers `batch`; returns those that have to run again."""
        running: _Request[Any] | None = None
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for running in batch:
                self._connection.execute("SAVEPOINT one")
                self._run_one(running)
                self._connection.execute("RELEASE one")
            running = None
            self._connection.execute("COMMIT")
        except sqlite3.Error as why:
            self._roll_back()
            return self._survivors(batch, running, why)
        self.commit_count += 1
        for request in batch:
            _answer(request)
        return []

    def _run_one(self, request: _Request[Any]) -> None:
        """A request that fails by its own fault is taken back alone."""
        request.refusal = None
        try:
            request.result = request.work(self._connection)
        except sqlite3.OperationalError:
            raise  # the disk's trouble, not the request's
        except Exception as why:  # noqa: BLE001  whatever it was, it belongs to this request alone
            self._connection.execute("ROLLBACK TO one")
            request.refusal = _mapped(why)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # a disk that refuses even this: the next BEGIN says so to its callers
                self._connection.execute("ROLLBACK")

    def _survivors(
        self, batch: list[_Request[Any]], running: _Request[Any] | None, why: sqlite3.Error
    ) -> list[_Request[Any]]:
        """Answers whom the disk failed: the request that was running, or all of them at the commit.

        Nothing of the transaction is durable, so the others run again, and with them a delete that finds room.
        """
        again: list[_Request[Any]] = []
        for request in batch:
            blamed = running is None or request is running
            if not blamed or (request.frees_space and _is_full(why) and self._room(request)):
                again.append(request)
            else:
                request.future.set_exception(_mapped(why))
        return again

    def _room(self, request: _Request[Any]) -> bool:
        request.frees_space = False  # once: the reserve can be given up only once
        return self._make_room()


def _answer(request: _Request[Any]) -> None:
    if request.refusal is not None:
        request.future.set_exception(request.refusal)
        return
    try:
        if request.then is not None:
            request.then(request.result)
    except Exception as why:  # noqa: BLE001  the writer outlives what its callers do with an answer
        request.future.set_exception(why)
    else:
        request.future.set_result(request.result)


def _is_full(why: BaseException) -> bool:
    return isinstance(why, sqlite3.OperationalError) and why.sqlite_errorcode == sqlite3.SQLITE_FULL


def _mapped(why: BaseException) -> BaseException:
    if isinstance(why, HeadwaterError) or not isinstance(why, sqlite3.Error):
        return why
    return StorageFailed(f"meta.db could not be written ({why}): nothing was changed; make room on the disk and retry")
