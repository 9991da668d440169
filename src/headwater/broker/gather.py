"""What arrived in one turn of the loop is written and answered together.

The largest single lever of this broker (measured: 89k against 55k requests a second): all batches that reached a
partition in one turn become one `Partition.append`, which is one `writev`, and all answers to one client become one
write to its socket. Nobody waits for company: the turn ends when everything that the kernel had was read.

An answer that has to wait until its records are durable is given by the log's flusher, often from its own thread. It
is handed over to the loop here, many at once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from headwater.batch import Batch, parse
from headwater.broker.connection import Connection, Reply
from headwater.config import GATHER_BYTES_MAX
from headwater.errors import StorageFailed, WireError
from headwater.log import Appended, Partition

if TYPE_CHECKING:
    from headwater.broker.server import Broker
    from headwater.meta import Place

log = logging.getLogger("headwater.broker")


class Turned(Protocol):
    """A batch that takes part in a turn. `touched` collects whose answers are ready."""

    batch: Batch
    sync: bool  # answered when it is on disk
    next_offset: int

    def wrote(self, result: Appended, start: int) -> None: ...
    def finish(self, touched: dict[Connection, None]) -> None: ...
    def refuse(self, why: WireError, touched: dict[Connection, None]) -> None: ...
    def keep(self) -> None:
        """Keeps a copy: the memory it was received into is used again in the next turn."""


class Pending:
    """One Produce request whose shares are on their way. `reply` is None when the client wants no answer (acks=0)."""

    __slots__ = ("connection", "left", "reply", "response")

    def __init__(self, connection: Connection, reply: Reply | None, response: Any) -> None:
        self.connection, self.reply, self.response = connection, reply, response
        self.left = 1  # shares without a result, and one for the request itself until it is taken up whole

    def refuse(self, result: Any, why: WireError) -> None:
        result.error_code = why.code
        result.error_message = str(why)
        result.base_offset = -1
        if self.reply is None:
            self.connection.close(why)  # as Kafka does: the end of the connection is the only way to say it

    def done(self, touched: dict[Connection, None]) -> None:
        """One share has its result, or the request was taken up whole; the last of them answers."""
        self.left -= 1
        if not self.left and self.reply is not None and self.connection.open:
            self.reply.prepare(self.response)
            touched[self.connection] = None


class Share:
    """One partition's part of a Produce request: a batch, and the place of its result in the answer."""

    __slots__ = ("batch", "next_offset", "pending", "result", "sync")

    def __init__(self, pending: Pending, batch: Batch, result: Any, *, sync: bool) -> None:
        self.pending, self.batch, self.result, self.sync = pending, batch, result, sync
        self.next_offset = 0
        pending.left += 1

    def wrote(self, result: Appended, start: int) -> None:
        self.result.base_offset = result.base_offset
        self.result.log_start_offset = start
        self.next_offset = result.next_offset

    def finish(self, touched: dict[Connection, None]) -> None:
        self.pending.done(touched)

    def refuse(self, why: WireError, touched: dict[Connection, None]) -> None:
        self.pending.refuse(self.result, why)
        self.pending.done(touched)

    def keep(self) -> None:
        self.batch = parse(memoryview(bytearray(self.batch.view)))


class Gather:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.turn: dict[Partition, list[Turned]] = {}
        self._scheduled = False
        self._opening: dict[Place, list[Turned]] = {}
        self._touched: dict[Connection, None] = {}  # a set that keeps the order: clients are answered as they came
        self._thread = threading.get_ident()
        self._durable: deque[tuple[list[Turned], WireError | None]] = deque()
        self._called = False
        self._outstanding = 0  # groups of shares that wait to be durable
        self.turn_count = 0
        self.share_count = 0

    def make_way(self, *, buffer_is_used_again: bool) -> None:
        """Before a read: what is gathered lies in the memory that was read into, and must not be overwritten."""
        arena = self._broker.arena
        if buffer_is_used_again or arena.used_bytes > GATHER_BYTES_MAX:
            self.flush()
            arena.reset()

    def add(self, place: Place, share: Turned) -> None:
        """Has the share written at the end of this turn, or once its partition is open."""
        if self._opening and place in self._opening:
            self._hold(place, share)
            return
        partition = self._broker.store.opened(place)
        if partition is None:
            self._opening[place] = []
            self._hold(place, share)
            self._broker.open_soon(place).add_done_callback(partial(self._opened, place))
            return
        shares = self.turn.get(partition)
        if shares is None:
            self.turn[partition] = [share]
        else:
            shares.append(share)
        if not self._scheduled:
            self._scheduled = True
            self._broker.loop.call_soon(self._end_of_turn)

    def taken_up(self, pending: Pending) -> None:
        """All its shares have been added; if none is left to wait for, it is answered."""
        pending.done(self._touched)
        if not pending.left:
            self.deliver()

    def flush_if_any(self) -> None:
        if self.turn:
            self.flush()

    def flush(self) -> None:
        """Writes what was gathered, and answers it."""
        turn, self.turn = self.turn, {}
        self.turn_count += 1
        waits: list[tuple[Partition, list[Turned]]] = []
        for partition, shares in turn.items():
            self.share_count += len(shares)
            written = self._append(partition, shares)
            if written and written[0].sync:
                waits.append((partition, written))
            else:
                touched = self._touched
                for share in written:
                    share.finish(touched)
        alone = len(waits) == 1 and len(waits[0][1]) == 1 and not self._outstanding
        self._outstanding += len(waits)
        for partition, written in waits:
            last = max(share.next_offset for share in written)
            partition.when_durable(last, partial(self._durable_now, written), alone=alone)
        self.deliver()

    def deliver(self) -> None:
        while self._touched:
            touched, self._touched = self._touched, {}
            for connection in touched:
                connection.deliver()

    def _end_of_turn(self) -> None:
        self._scheduled = False
        if self.turn:
            self.flush()

    def _append(self, partition: Partition, shares: list[Turned]) -> list[Turned]:
        """The shares that were written; the others are refused."""
        results: list[Appended | WireError]
        try:
            results = partition.append([share.batch for share in shares])
        except WireError as why:
            results = [why] * len(shares)
        except Exception:  # a bug: the writers must not wait for ever, nor believe that they have written
            log.exception("an append failed")
            results = [StorageFailed("the append failed; the broker's log says why")] * len(shares)
        written: list[Turned] = []
        start = partition.start
        for share, result in zip(shares, results, strict=True):
            if isinstance(result, WireError):
                share.refuse(result, self._touched)
            else:
                share.wrote(result, start)
                written.append(share)
        return written

    # --- durable, told from any thread -----------------------------------------------------------

    def _durable_now(self, shares: list[Turned], why: WireError | None) -> None:
        self._durable.append((shares, why))
        if threading.get_ident() == self._thread:
            self._answer_durable()
        elif not self._called:
            self._called = True
            self._broker.call_from_thread(self._answer_durable)

    def _answer_durable(self) -> None:
        self._called = False
        while self._durable:
            shares, why = self._durable.popleft()
            self._outstanding -= 1
            for share in shares:
                if why is not None:
                    share.refuse(why, self._touched)
                else:
                    share.finish(self._touched)
        self.deliver()

    # --- partitions that are not open yet --------------------------------------------------------

    def _hold(self, place: Place, share: Turned) -> None:
        share.keep()
        self._opening[place].append(share)

    def _opened(self, place: Place, opened: Any) -> None:
        shares = self._opening.pop(place)
        partition, why = self._broker.result_of(opened)
        if partition is None:
            assert why is not None
            for share in shares:
                share.refuse(why, self._touched)
            self.deliver()
            return
        self.turn.setdefault(partition, []).extend(shares)
        self.flush()
