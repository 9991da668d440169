"""What all groups share: the time, the timers, the answers that are ready, and the count of what is used."""

from __future__ import annotations

from collections.abc import KeysView
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.config import GROUP_BYTES_MAX, GROUP_MEMBERS_TOTAL_MAX, GROUPS_IN_MEMORY_MAX
from headwater.errors import GroupFull, WireError
from headwater.groups.answers import Answer, Refused, Token
from headwater.groups.timers import Clock, Timers
from headwater.model import GroupName, StreamName

if TYPE_CHECKING:
    from headwater.groups.group import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the operator may set comes from Settings; the rest only tests make smaller."""

    session_timeout_min_ms: int
    session_timeout_max_ms: int
    rebalance_delay_ms: int
    members_max: int
    members_total_max: int = GROUP_MEMBERS_TOTAL_MAX
    groups_max: int = GROUPS_IN_MEMORY_MAX
    bytes_max: int = GROUP_BYTES_MAX


class Ledger:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.timers = Timers()
        self.clock = Clock()
        self.now = 0  # of the call in hand, by our own clock
        self.answers: list[tuple[Token, Answer]] = []
        self.member_count = 0
        self.promise_count = 0
        self.used_bytes = 0
        self._readers: dict[StreamName, dict[GroupName, int]] = {}  # how many members of which group read a stream

    def answer(self, token: Token, answer: Answer) -> None:
        self.answers.append((token, answer))

    def refuse(self, token: Token, error: WireError) -> None:
        self.answers.append((token, Refused(error=error)))

    def check_room(self, *, members: int = 0, size_bytes: int = 0) -> None:
        """Raises when that much more would be too much for one broker's memory."""
        if self.member_count + self.promise_count + members > self.limits.members_total_max:
            raise GroupFull(
                f"this broker holds {self.limits.members_total_max} group members, the most it keeps: end some first"
            )
        if size_bytes > 0 and self.used_bytes + size_bytes > self.limits.bytes_max:
            raise GroupFull(
                f"the subscriptions and assignments of all groups would pass {self.limits.bytes_max} bytes: "
                "subscribe to fewer streams, or end some members first"
            )

    def add(self, group: GroupName, member: Member) -> None:
        self.member_count += 1
        self.used_bytes += member.cost_bytes
        for stream in member.streams:
            counts = self._readers.setdefault(stream, {})
            counts[group] = counts.get(group, 0) + 1

    def drop(self, group: GroupName, member: Member) -> None:
        self.member_count -= 1
        self.used_bytes -= member.cost_bytes
        for stream in member.streams:
            counts = self._readers[stream]
            counts[group] -= 1
            if counts[group] == 0:
                del counts[group]
                if not counts:
                    del self._readers[stream]

    def assign(self, member: Member, assignment: bytes) -> None:
        self.used_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def readers(self, stream: StreamName) -> list[GroupName]:
        return list(self._readers.get(stream, ()))

    def streams_read(self) -> KeysView[StreamName]:
        return self._readers.keys()

    def is_idle(self) -> bool:
        """Whether nothing is held for anybody: what is left after all have gone."""
        return not (self.member_count or self.promise_count or self.used_bytes or self._readers or self.answers)
