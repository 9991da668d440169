"""A coordinator with a clock in the hand: tests join, sync and wait in single lines, and see each answer once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.errors import MemberIdRequired
from headwater.groups import Coordinator, Identity, Join, Joined, Limits, Protocol, Refused, Sync, Synced
from headwater.model import GroupName, StreamName

GROUP = GroupName("g")
LIMITS: dict[str, int] = {
    "session_timeout_min_ms": 1_000,
    "session_timeout_max_ms": 1_800_000,
    "rebalance_delay_ms": 0,
    "members_max": 100,
}


def protocol(name: str = "range", metadata: bytes = b"m", streams: Sequence[str] = ("s",)) -> Protocol:
    return Protocol(name=name, metadata=metadata, streams=frozenset(map(StreamName, streams)))


class Desk:
    def __init__(self, **limits: int) -> None:
        self.coordinator = Coordinator(Limits(**{**LIMITS, **limits}))
        self.now_ms = 1_000_000
        self.answers: dict[int, Any] = {}
        self._tokens = 0
        self._ids = 0

    def join(self, member_id: str = "", instance: str | None = None, *, group: str = GROUP, **said: Any) -> int:
        """A token; an absent member id makes a member that needs no id first, unless `id_required` is said."""
        self._ids += 1
        said = {
            "fresh_id": f"m{self._ids}", "protocol_type": "consumer", "protocols": (protocol(),),
            "session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "id_required": False, **said,
        }  # fmt: skip
        token = self._token()
        who = Identity(member_id=member_id, instance_id=instance)
        self.coordinator.join(Join(group=GroupName(group), who=who, **said), token, self.now_ms)
        self.collect()
        return token

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        group: str = GROUP,
        **said: Any,
    ) -> int:
        token = self._token()
        who = Identity(member_id=member_id, instance_id=instance)
        self.coordinator.sync(
            Sync(group=GroupName(group), who=who, generation=generation, assignments=assignments or {}, **said),
            token,
            self.now_ms,
        )
        self.collect()
        return token

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None, *, group: str = GROUP) -> None:
        who = Identity(member_id=member_id, instance_id=instance)
        try:
            self.coordinator.heartbeat(GroupName(group), who, generation, self.now_ms)
        finally:
            self.collect()

    def commit(self, member_id: str = "", generation: int = -1, instance: str | None = None) -> None:
        who = Identity(member_id=member_id, instance_id=instance)
        self.coordinator.check_commit(GROUP, who, generation, self.now_ms)
        self.collect()

    def leave(self, *members: str | tuple[str, str], group: str = GROUP) -> list[Any]:
        who = [
            Identity(member_id=one) if isinstance(one, str) else Identity(member_id=one[0], instance_id=one[1])
            for one in members
        ]
        outcomes = self.coordinator.leave(GroupName(group), who, self.now_ms)
        self.collect()
        return outcomes

    def pass_ms(self, ms: int) -> None:
        """Time passes, and the coordinator runs all the while."""
        end = self.now_ms + ms
        while self.now_ms < end:
            self.now_ms = min(end, self.now_ms + 400)
            self.coordinator.tick(self.now_ms)
        self.collect()

    def freeze_ms(self, ms: int) -> None:
        """Time passes while the coordinator does not run."""
        self.now_ms += ms
        self.coordinator.tick(self.now_ms)
        self.collect()

    def delete_stream(self, name: str) -> None:
        self.coordinator.stream_deleted(StreamName(name), self.now_ms)
        self.collect()

    def stop(self) -> None:
        self.coordinator.stop(self.now_ms)
        self.collect()

    def collect(self) -> None:
        for token, answer in self.coordinator.take_answers():
            assert isinstance(token, int)
            assert token not in self.answers, f"token {token} was answered twice"
            self.answers[token] = answer

    # --- what came of it -------------------------------------------------------------------------

    def waits(self, token: int) -> bool:
        return token not in self.answers

    def joined(self, token: int) -> Joined:
        answer = self.answers[token]
        assert isinstance(answer, Joined), answer
        return answer

    def synced(self, token: int) -> bytes:
        answer = self.answers[token]
        assert isinstance(answer, Synced), answer
        return answer.assignment

    def refused(self, token: int) -> type[Exception]:
        answer = self.answers[token]
        assert isinstance(answer, Refused), answer
        return type(answer.error)

    def promised(self, **said: Any) -> str:
        """A member id that was given out (KIP-394) and not yet used."""
        token = self.join(id_required=True, **said)
        assert self.refused(token) is MemberIdRequired
        promised: str = self.answers[token].member_id
        return promised

    # --- groups in a state -----------------------------------------------------------------------

    def completing(self, count: int = 1, instances: Sequence[str | None] = ()) -> list[str]:
        """A group of `count` members that have joined and not yet synced; the leader first."""
        names = list(instances) or [None] * count
        leader = self.joined(self.join(instance=names[0])).member_id
        tokens = [self.join(instance=name) for name in names[1:]]
        if tokens:  # they wait until the first has gathered anew
            tokens.insert(0, self.join(leader, names[0]))
            return [self.joined(token).member_id for token in tokens]
        return [leader]

    def stable(self, count: int = 1, instances: Sequence[str | None] = ()) -> list[str]:
        """A group of `count` members that have their parts: `part-0` is the leader's."""
        members = self.completing(count, instances)
        generation = self.generation
        parts = {name: f"part-{index}".encode() for index, name in enumerate(members)}
        names = list(instances) or [None] * count
        for index, name in enumerate(members):
            self.synced(self.sync(name, generation, parts if index == 0 else None, instance=names[index]))
        return members

    @property
    def generation(self) -> int:
        return max(one.generation for one in self.answers.values() if isinstance(one, Joined))

    def _token(self) -> int:
        self._tokens += 1
        return self._tokens
