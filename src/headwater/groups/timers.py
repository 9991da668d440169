"""Time that is told: a clock that stands still while the coordinator does not run, and timers without a timer thread.

Heartbeats move a timer all the time and hardly any timer ever fires. So moving one later costs nothing: its entry in
the heap stays where it is, and is put back when it comes up too early. Moving one earlier adds an entry; the old one
is recognised as stale, and the heap is built anew when most of it is stale.
"""

from __future__ import annotations

import heapq

from headwater.config import STALL_MS
from headwater.groups.states import Event
from headwater.model import GroupName

_STALE_KEPT = 64  # entries; below this a heap is not worth building anew


class Clock:
    """Milliseconds that count only while somebody looks at least every `STALL_MS`.

    After SIGSTOP, or on a starved machine, all members' heartbeats lie unread in their sockets: the silence was ours.
    """

    def __init__(self) -> None:
        self._seen: int | None = None
        self._stalled_ms = 0

    def read(self, now_ms: int) -> int:
        if self._seen is not None and now_ms - self._seen > STALL_MS:
            self._stalled_ms += now_ms - self._seen
        self._seen = now_ms if self._seen is None else max(self._seen, now_ms)
        return self._seen - self._stalled_ms


class Timer:
    """One moment that may come; names its group and member, so that it keeps neither alive."""

    __slots__ = ("at", "event", "group", "member_id", "queued")

    def __init__(self, event: Event, group: GroupName, member_id: str = "") -> None:
        self.event, self.group, self.member_id = event, group, member_id
        self.at: int | None = None  # when it fires; None: it does not
        self.queued: int | None = None  # where its entry stands in the heap; other entries of it are stale


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._entries_made = 0  # orders entries of one moment: first armed, first fired
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, timer: Timer, at: int) -> None:
        if timer.at is None and timer.queued is not None:
            self._stale -= 1  # its entry counts again
        timer.at = at
        if timer.queued is None or at < timer.queued:
            self._stale += timer.queued is not None
            self._push(timer, at)

    def cancel(self, timer: Timer) -> None:
        if timer.at is not None:
            timer.at = None
            self._stale += 1
            if self._stale > _STALE_KEPT and self._stale * 2 > len(self._heap):
                self._rebuild()

    def next(self) -> int | None:
        """When to look again: never later than the first timer, sometimes earlier."""
        while self._heap and not _is_live(*self._heap[0]):
            self._pop()
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> Timer | None:
        """The next timer whose moment has come, disarmed; None when there is none (left)."""
        while self._heap and self._heap[0][0] <= now:
            timer = self._pop()
            if timer is None or timer.at is None:
                continue
            if timer.at <= now:
                timer.at = None
                return timer
            self._push(timer, timer.at)
        return None

    def _push(self, timer: Timer, at: int) -> None:
        self._entries_made += 1
        timer.queued = at
        heapq.heappush(self._heap, (at, self._entries_made, timer))

    def _pop(self) -> Timer | None:
        at, _, timer = heapq.heappop(self._heap)
        if timer.queued != at:
            self._stale -= 1
            return None
        timer.queued = None
        if timer.at is None:
            self._stale -= 1
        return timer

    def _rebuild(self) -> None:
        kept: dict[int, Timer] = {}
        for at, _, timer in self._heap:
            if _is_live(at, 0, timer):
                kept[id(timer)] = timer
            elif timer.at is None:
                timer.queued = None
        self._heap, self._stale = [], 0
        for timer in kept.values():
            assert timer.at is not None
            self._push(timer, timer.at)


def _is_live(at: int, _: int, timer: Timer) -> bool:
    return timer.queued == at and timer.at is not None
