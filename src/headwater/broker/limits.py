"""What all connections share: memory for requests and answers, held within a limit, and given in order of asking.

A large frame asks before it is read. Who was granted its bytes can finish, so those who wait are always served in the
end; a sender that was granted and does not send is closed (`connection.py`), which returns what it held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headwater.config import ARENA_BYTES, RECEIVE_BYTES


class Budget:
    """Bytes of requests half read and of answers unsent, over all connections."""

    __slots__ = ("_waiting", "bytes_max", "taken")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def take(self, count: int, then: Callable[[], None]) -> bool:
        """Whether `count` bytes are yours now; if not, `then` is called once they are."""
        if not self._waiting and self._fits(count):
            self.taken += count
            return True
        self._waiting.append((count, then))
        return False

    def give(self, count: int) -> None:
        """Returns bytes.

        A negative count is of bytes that exist already, such as an answer that its client does not take: those are
        counted at once, and others wait for them.
        """
        self.taken -= count
        while self._waiting and self._fits(self._waiting[0][0]):
            granted, then = self._waiting.popleft()
            self.taken += granted
            then()

    def forget(self, then: Callable[[], None]) -> None:
        """Who asked is gone."""
        self._waiting = deque(one for one in self._waiting if one[1] != then)

    def _fits(self, count: int) -> bool:
        """One that is larger than everything is let in alone, else it would wait for ever."""
        return self.taken + count <= self.bytes_max or self.taken == 0

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)


class Arena:
    """Memory that small requests are received into, whoever sends them, and that is used again after each turn.

    So an idle connection holds no buffer at all, and what arrives in one turn of the loop lies close together.
    """

    __slots__ = ("_at", "_chunk", "used_bytes")

    def __init__(self) -> None:
        self._chunk = memoryview(bytearray(ARENA_BYTES))
        self._at = 0
        self.used_bytes = 0  # in this turn, over all chunks

    def room(self) -> memoryview:
        """At least `RECEIVE_BYTES` that nobody else looks at; `took` says how many were used."""
        if ARENA_BYTES - self._at < RECEIVE_BYTES:
            self._chunk = memoryview(bytearray(ARENA_BYTES))  # the old one lives as long as somebody's view of it
            self._at = 0
        return self._chunk[self._at : self._at + RECEIVE_BYTES]

    def took(self, count: int) -> None:
        self._at += count
        self.used_bytes += count

    def reset(self) -> None:
        """The turn is over: nobody looks at what was received in it."""
        self._at = self.used_bytes = 0
