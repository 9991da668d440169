"""What a member holds: its partitions with their positions, and the records read ahead of the program.

Two threads meet here: the member's own, which fills and takes away, and the program's loop, which takes and marks done.
A lock guards the queue; the numbers of a `Hold` have one writer each.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import Message

from headwater.config import SDK_READ_AHEAD_BYTES, SDK_READ_AHEAD_RECORDS


class Hold:
    """One partition in this member's hands, from one assignment to the next that takes it away.

    `given`: the offset after the last record that the program was given. `done`: the offset up to which it is done.
    `committed`: what the server knows of that. `fetched`: the next offset to fetch, -1 for the log's beginning.
    """

    __slots__ = ("alive", "committed", "done", "done_epoch", "fetched", "given", "partition", "stream", "why")

    def __init__(self, stream: str, partition: int) -> None:
        self.stream, self.partition = stream, partition
        self.given = self.done = self.committed = self.fetched = -1
        self.done_epoch = -1
        self.alive = True
        self.why = ""  # it is no longer alive

    def mark_done(self, offset: int, epoch: int) -> None:
        if self.alive and offset > self.done:
            self.done_epoch, self.done = epoch, offset

    def end(self, why: str) -> None:
        self.alive, self.why = False, why


class Taken(NamedTuple):
    """A record on its way to the program, and the hold it came under."""

    hold: Hold
    message: Message

    def mark_done(self) -> None:
        epoch = self.message.leader_epoch()
        self.hold.mark_done((self.message.offset() or 0) + 1, -1 if epoch is None else epoch)


class ReadAhead:
    """Records that were read and not yet asked for, bounded by count and by bytes of values."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: deque[Taken] = deque()
        self._bytes = 0
        self.room = threading.Event()
        self.room.set()
        self.idle = threading.Event()  # the program has nothing in hand; cleared with the taking, so that none slips by
        self.idle.set()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def full(self) -> bool:
        return len(self._records) >= SDK_READ_AHEAD_RECORDS or self._bytes >= SDK_READ_AHEAD_BYTES

    def fill(self, records: Iterable[Taken]) -> None:
        with self._lock:
            for taken in records:
                self._records.append(taken)
                self._bytes += _size(taken)
            if self.full:
                self.room.clear()

    def take(self) -> Taken | None:
        """The next record of a partition that is still ours; it counts as given."""
        with self._lock:
            while self._records:
                taken = self._records.popleft()
                self._bytes -= _size(taken)
                if not self.full:
                    self.room.set()
                if taken.hold.alive:
                    taken.hold.given = (taken.message.offset() or 0) + 1
                    self.idle.clear()
                    return taken
        return None

    def drop(self) -> None:
        """What was read ahead is forgotten; it is read again by whoever holds its partition next."""
        with self._lock:
            self._records.clear()
            self._bytes = 0
            self.room.set()


def _size(taken: Taken) -> int:
    return len(taken.message)
