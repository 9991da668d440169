"""Who flushes, and when: one flush makes every write before it durable, so many acks share it.

A partition asks in one of two ways. `later`: it has unflushed bytes, and they may wait until a deadline; that is
`file_async`, 50 ms. `soon`: somebody waits for an ack; that is `file_sync`. While a flush runs, more waiters gather,
and all of them are answered by the next one: the slower the disk, the larger the groups.

The two have a thread each. A flush of a large backlog can take long, and an ack of another stream must not wait
behind it; but acks may share a thread, since each of their flushes has little to write.

A waiter that is alone does better to flush in its own thread: handing over costs 0.17 ms, the flush itself 0.11 ms
(measured). `Partition.when_durable(..., alone=True)` does that.
"""

from __future__ import annotations

import heapq
import sys
import threading
import time
from itertools import count
from queue import SimpleQueue
from typing import Protocol


class Flushable(Protocol):
    """What the flusher knows of a partition."""

    def flush(self) -> None:
        """Makes durable what is written; never raises: a failure is the partition's own."""

    def flush_due(self) -> float | None:
        """When its oldest unflushed byte has to be flushed (monotonic seconds); None when there is none."""


class Flusher:
    """One per data directory. `start` before the first write, `close` when every partition is closed."""

    def __init__(self) -> None:
        self._deadlines: list[tuple[float, int, Flushable, bool]] = []  # the flag: ask again for the next deadline
        self._order = count()
        self._changed = threading.Condition()
        self._closing = False
        self._urgent: SimpleQueue[Flushable | None] = SimpleQueue()
        self._threads = (
            threading.Thread(target=self._flush_in_time, name="headwater-flush", daemon=True),
            threading.Thread(target=self._flush_for_acks, name="headwater-ack", daemon=True),
        )

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends the threads; what is still unflushed is left to its partition's `close`."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._urgent.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def later(self, partition: Flushable, deadline: float) -> None:
        """Flushes it at `deadline`, and on as long as `flush_due` names another one."""
        self._put(partition, deadline, again=True)

    def now(self, partition: Flushable) -> None:
        """Flushes it once, as soon as this thread can: it has many unflushed records, but nobody waits for an ack."""
        self._put(partition, 0.0, again=False)

    def soon(self, partition: Flushable) -> None:
        """Flushes it once: somebody waits for an ack."""
        self._urgent.put(partition)

    def _put(self, partition: Flushable, deadline: float, *, again: bool) -> None:
        with self._changed:
            first = not self._deadlines or deadline < self._deadlines[0][0]
            heapq.heappush(self._deadlines, (deadline, next(self._order), partition, again))
            if first:
                self._changed.notify()

    def _flush_for_acks(self) -> None:
        while (partition := self._urgent.get()) is not None:
            _flush(partition)

    def _flush_in_time(self) -> None:
        while (found := self._next_due()) is not None:
            partition, again = found
            due = partition.flush_due() if again else 0.0
            if due is not None and due <= time.monotonic():
                _flush(partition)
                due = partition.flush_due() if again else None
            if due is not None:  # an ack's flush came in between, and then new bytes
                self.later(partition, due)

    def _next_due(self) -> tuple[Flushable, bool] | None:
        with self._changed:
            while not self._closing:
                now = time.monotonic()
                if self._deadlines and self._deadlines[0][0] <= now:
                    return heapq.heappop(self._deadlines)[2:]
                self._changed.wait(self._deadlines[0][0] - now if self._deadlines else None)
            return None


def _flush(partition: Flushable) -> None:
    """A bug of one partition, or of who waits for it, is reported as any thread's is, and ends nobody else's acks."""
    try:
        partition.flush()
    except Exception:  # noqa: BLE001  whatever it was, the other partitions need this thread
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
