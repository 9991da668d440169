"""The broker: one process, one event loop, one listening socket, and everything the connections share.

Who owns what: the broker owns its connections and one task, which holds the group of all handlers' tasks; nothing runs
after `stop` has returned. The store belongs to whoever opened it, and is closed by them, after the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from headwater.broker.connection import Connection
from headwater.broker.dispatch import Dispatch
from headwater.broker.gather import Gather
from headwater.broker.group_shell import GroupShell
from headwater.broker.limits import Arena, Budget
from headwater.broker.listener import Listener
from headwater.broker.waiting import Waiting
from headwater.config import MAPPED_BYTES_MIN, OPEN_THREADS, SWEEP_SECONDS, Settings
from headwater.errors import (
    FencedLeaderEpoch,
    PeerError,
    ProtocolError,
    StorageFailed,
    UnknownLeaderEpoch,
    UnknownStream,
    WireError,
)
from headwater.log import Partition
from headwater.meta import Place, StreamEntry
from headwater.model import PartitionIndex, StreamId
from headwater.store import Store

NODE_ID = 1
T = TypeVar("T")
REST_SECONDS = 10.0  # a connection's large buffer is kept for so long without use
log = logging.getLogger("headwater.broker")


class Broker:
    """`start`, then `stop`, on the same loop; once each."""

    loop: asyncio.AbstractEventLoop
    tasks: asyncio.TaskGroup
    gather: Gather
    advertised: tuple[str, int]

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store, self.settings = store, settings
        self.arena = Arena()
        self.budget = Budget(settings.buffered_bytes_max)
        self.budget_of_small = Budget(settings.buffered_bytes_max // 4)  # beside it: see budget_for
        self.connections: set[Connection] = set()
        self.dawdlers: set[Connection] = set()  # those with a request that has begun and not arrived
        self.waiting = Waiting(self)
        self.groups = GroupShell(store, settings)
        self.dispatch = Dispatch(self)
        self.take_up = self.dispatch.take_up
        self.fragments: dict[tuple[StreamId, int], tuple[StreamEntry, bytes]] = {}  # see handlers/metadata.py
        self.draining = False
        self.now = time.monotonic()  # as of the last sweep: near enough for idle times
        self.active_at = self.now  # when somebody was connected last
        self._listener = Listener(self, settings)
        self._openers = ThreadPoolExecutor(OPEN_THREADS, thread_name_prefix="headwater-open")
        self._opening: dict[Place, asyncio.Future[Partition]] = {}
        self._thread = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._run_task: asyncio.Task[None] | None = None
        self.keep: object = None  # what has to live until the process ends

    async def start(self) -> tuple[str, int]:
        """Listens and answers; returns host and port that were bound. CannotListen when that cannot be."""
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        host, port = self._listener.bind()
        self.advertised = self._listener.advertised()
        self.gather = Gather(self)
        self._stopped = asyncio.Event()
        running = asyncio.Event()
        self._run_task = self.loop.create_task(self._run(running))
        await running.wait()
        self._sweep()
        self._listener.open()
        return host, port

    async def stop(self, *, drain_seconds: float | None = None) -> None:
        """Takes no more requests, answers those in hand, within `drain_seconds`; then closes every connection.

        Cancelling it ends the wait for answers, and closes the connections at once.
        """
        self._listener.close()
        self.draining = True
        limit = self.settings.drain_seconds if drain_seconds is None else drain_seconds
        deadline = time.monotonic() + limit
        try:
            self.groups.stop()
            self.waiting.look_at_all()
            while self._close_the_idle() and time.monotonic() < deadline:  # noqa: ASYNC110  answers leave in many ways
                await asyncio.sleep(0.005)
        finally:
            for connection in list(self.connections):
                connection.close(None)
            if self._sweeper is not None:
                self._sweeper.cancel()
            self._stopped.set()
            if self._run_task is not None:
                await self._run_task
            self._openers.shutdown(wait=False, cancel_futures=True)

    async def _run(self, running: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as self.tasks:
            running.set()
            await self._stopped.wait()

    # --- connections -----------------------------------------------------------------------------

    def welcome(self, sock: socket.socket, peer: str) -> None:
        self.active_at = time.monotonic()
        self.connections.add(Connection(self, sock, peer))

    def gone(self, connection: Connection, why: Exception | None) -> None:
        self.connections.discard(connection)
        self.dawdlers.discard(connection)
        self.active_at = time.monotonic()
        if isinstance(why, PeerError):
            log.info("closed the connection of %s: %s", connection.peer, why)  # not a line per stray packet

    def _sweep(self) -> None:
        """Looks over the connections: who dawdles or idles is closed, who rests gives memory back."""
        now = self.now = time.monotonic()
        contended = self.budget.waiting_count or self.budget_of_small.waiting_count
        for connection in list(self.dawdlers):
            if not connection.partial_since:
                self.dawdlers.discard(connection)
            elif connection.dawdles(now) or (contended and connection.hoards(now)):
                connection.close(ProtocolError("a request came too slowly"))
        for connection in list(self.connections):
            quiet = now - connection.active_at
            if quiet < 3 * SWEEP_SECONDS and connection.was_reset():
                connection.close(None)
            if quiet > REST_SECONDS:
                connection.rest()
                if quiet * 1000 > self.settings.idle_ms and not connection.awaits_answer:
                    connection.close(None)
        self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def budget_for(self, count: int) -> Budget:
        """Requests of a usual size have room of their own: who announces large ones does not stand in their way."""
        return self.budget if count > MAPPED_BYTES_MIN else self.budget_of_small

    def _close_the_idle(self) -> bool:
        """Whether some are left that still wait for an answer."""
        for connection in list(self.connections):
            if not connection.busy:
                connection.close(None)
        return bool(self.connections)

    def call_from_thread(self, then: Callable[[], None]) -> None:
        """Has `then` called on the loop's thread, from any thread; not at all when the loop has ended."""
        if threading.get_ident() == self._thread:
            self.loop.call_soon(then)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear of it
            self.loop.call_soon_threadsafe(then)

    # --- partitions ------------------------------------------------------------------------------

    def place(self, row: StreamEntry, index: int) -> Place:
        if not 0 <= index < row.partitions:
            raise UnknownStream(f"the stream {row.name!r} has {row.partitions} partitions, none is {index}")
        return (row.id, PartitionIndex(index))

    async def partition(self, row: StreamEntry | None, index: int) -> Partition:
        """The partition, open. Opening may recover it, which takes seconds after a crash: that happens beside the loop.

        Cancelling forgets the wait, not the recovery.
        """
        if row is None:
            raise UnknownStream("there is no such stream: create it")
        place = self.place(row, index)
        opened = self.opened(place)
        if opened is not None:
            return opened
        future = self.open_soon(place)
        await asyncio.wait([future])
        partition, why = self.result_of(future)
        if partition is None:
            assert why is not None
            raise why
        return partition

    def opened(self, place: Place) -> Partition | None:
        """The partition if it is open, and those who wait for that have been told: what they hold comes first."""
        return None if place in self._opening else self.store.opened(place)

    def open_soon(self, place: Place) -> asyncio.Future[Partition]:
        future = self._opening.get(place)
        if future is None:
            future = self._opening[place] = self.loop.run_in_executor(self._openers, self.store.partition, place)
            future.add_done_callback(lambda _: self._opening.pop(place, None))
        return future

    def result_of(self, opened: asyncio.Future[Partition]) -> tuple[Partition | None, WireError | None]:
        """What became of an opening: the partition, or why not."""
        try:
            return opened.result(), None
        except WireError as why:
            return None, why
        except Exception as why:
            log.exception("a partition could not be opened")
            return None, StorageFailed(f"the partition could not be opened ({why})")

    # --- streams ---------------------------------------------------------------------------------

    async def durable(self, future: Future[T]) -> T:
        """The store's answer. Cancelling forgets the answer, not what was begun."""
        return await asyncio.shield(asyncio.wrap_future(future))

    async def delete_stream(self, entry: StreamEntry) -> None:
        """Deletes it and wakes who waits for it. Cancelling forgets the answer, not the delete."""
        await self.durable(self.store.delete(entry.id))

    def check_epoch(self, epoch: int) -> None:
        """The leader epoch that a client believes in; -1 says nothing."""
        ours = self.store.epoch
        if epoch >= 0 and epoch != ours:
            if epoch < ours:
                raise FencedLeaderEpoch(f"leader epoch {epoch} is over, it is {ours} now")
            raise UnknownLeaderEpoch(f"leader epoch {epoch} has not begun, it is {ours} now")

    def statistics(self) -> dict[str, Any]:
        return {
            "connections": len(self.connections),
            "requests": self.dispatch.request_count,
            "turns": self.gather.turn_count,
            "shares": self.gather.share_count,
            "buffered_bytes": self.budget.taken + self.budget_of_small.taken,
            "waiting_for_room": self.budget.waiting_count + self.budget_of_small.waiting_count,
            "waiting_polls": self.waiting.waiting_count,
        }
