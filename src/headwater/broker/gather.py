"""What arrived in one turn of the loop is written and answered together.

The largest single lever of this broker (measured: 89k against 55k requests a second): all batches that reached a
partition in one turn become one `Partition.append`, which is one `writev`, and all answers to one client become one
write to its socket. Nobody waits for company: the turn ends when everything that the kernel had was read.

An answer that has to wait until its records are durable is given by the log's flusher, often from its own thread. It
is handed over to the loop here, many at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.batch import Batch, parse
from headwater.broker.connection import Connection, Reply
from headwater.config import GATHER_BYTES_MAX
from headwater.errors import WireError
from headwater.log import Appended, Partition

if TYPE_CHECKING:
    from headwater.broker.server import Broker
    from headwater.meta import Place


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


class Share:
    """One partition's part of a Produce request: a batch, and the place of its result in the answer."""

    __slots__ = ("batch", "next_offset", "pending", "result", "sync")

    def __init__(self, pending: Pending, batch: Batch, result: Any, *, sync: bool) -> None:
        self.pending, self.batch, self.result = pending, batch, result
        self.sync = sync  # answered when it is on disk
        self.next_offset = 0


class Gather:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turn: dict[Partition, list[Share]] = {}
        self._scheduled = False
        self._opening: dict[Place, list[Share]] = {}
        self._touched: dict[Connection, None] = {}  # a set that keeps the order: clients are answered as they came
        self._thread = threading.get_ident()
        self._durable: deque[tuple[list[Share], WireError | None]] = deque()
        self._called = False
        self._outstanding = 0  # groups of shares that wait to be durable
        self.turn_count = 0
        self.share_count = 0

    def make_way(self, buffer_is_used_again: bool) -> None:
        """Before each read: what is gathered lies in the memory that was read into, and must not be overwritten."""
        arena = self._broker.arena
        if self._turn and (buffer_is_used_again or arena.used_bytes > GATHER_BYTES_MAX):
            self.flush()
        if not self._turn:
            arena.reset()

    def add(self, place: Place, share: Share) -> None:
        """Has the share written at the end of this turn, or once its partition is open."""
        share.pending.left += 1
        if self._opening and place in self._opening:
            self._hold(place, share)
            return
        partition = self._broker.store.opened(place)
        if partition is None:
            self._opening[place] = []
            self._hold(place, share)
            self._broker.open_soon(place).add_done_callback(partial(self._opened, place))
            return
        shares = self._turn.get(partition)
        if shares is None:
            self._turn[partition] = [share]
        else:
            shares.append(share)
        if not self._scheduled:
            self._scheduled = True
            self._broker.loop.call_soon(self._end_of_turn)

    def done(self, pending: Pending) -> None:
        """One share has its result, or the request was taken up whole; the last of them answers."""
        pending.left -= 1
        if not pending.left and pending.reply is not None:
            connection = pending.connection
            if connection.open:
                pending.reply.prepare(pending.response)
                self._touched[connection] = None

    def flush_if_any(self) -> None:
        if self._turn:
            self.flush()

    def flush(self) -> None:
        """Writes what was gathered, and answers it."""
        turn, self._turn = self._turn, {}
        now_ms = time.time_ns() // 1_000_000
        self.turn_count += 1
        waits: list[tuple[Partition, list[Share]]] = []
        for partition, shares in turn.items():
            self.share_count += len(shares)
            written = self._append(partition, shares, now_ms)
            if written and written[0].sync:
                waits.append((partition, written))
            else:
                for share in written:
                    self.done(share.pending)
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
        if self._turn:
            self.flush()

    def _append(self, partition: Partition, shares: list[Share], now_ms: int) -> list[Share]:
        """The shares that were written; the others are refused."""
        results: list[Appended | WireError]
        try:
            results = partition.append([share.batch for share in shares], now_ms)
        except WireError as why:
            results = [why] * len(shares)
        written = []
        start = partition.start
        for share, result in zip(shares, results, strict=True):
            if isinstance(result, WireError):
                share.pending.refuse(share.result, result)
                self.done(share.pending)
            else:
                share.result.base_offset = result.base_offset
                share.result.log_start_offset = start
                share.next_offset = result.next_offset
                written.append(share)
        return written

    # --- durable, told from any thread -----------------------------------------------------------

    def _durable_now(self, shares: list[Share], why: WireError | None) -> None:
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
                    share.pending.refuse(share.result, why)
                self.done(share.pending)
        self.deliver()

    # --- partitions that are not open yet --------------------------------------------------------

    def _hold(self, place: Place, share: Share) -> None:
        """Keeps a copy: the memory it was received into is used again in the next turn."""
        share.batch = parse(memoryview(bytearray(share.batch.view)))
        self._opening[place].append(share)

    def _opened(self, place: Place, opened: Any) -> None:
        shares = self._opening.pop(place)
        partition, why = self._broker.result_of(opened)
        if partition is None:
            assert why is not None
            for share in shares:
                share.pending.refuse(share.result, why)
                self.done(share.pending)
            self.deliver()
            return
        self._turn.setdefault(partition, []).extend(shares)
        self.flush()
