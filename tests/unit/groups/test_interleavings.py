"""Members that join, sync, leave, fall silent and come back in any order: what must hold does (hypothesis)."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from headwater.errors import WireError
from headwater.groups import Joined, Refused, State, Synced
from tests.unit.groups.desk import GROUP, Desk, protocol

GROUPS = st.sampled_from([GROUP, "h"])
INSTANCES = st.sampled_from([None, None, None, "a", "b"])
STREAMS = st.sampled_from(["s", "t"])
SESSIONS = st.sampled_from([3_000, 20_000])
MS = st.sampled_from([1, 500, 1_000, 3_000, 20_000])


class Member:
    """A client: what it was last told, and the request it waits for (a client has one at a time)."""

    def __init__(self, group: str, instance: str | None, stream: str) -> None:
        self.group, self.instance, self.stream = group, instance, stream
        self.member_id, self.generation, self.leads = "", -1, False
        self.roster: list[str] = []
        self.token: int | None = None


class Interleavings(RuleBasedStateMachine):
    members = Bundle("members")

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(members_max=6, bytes_max=3_000, session_timeout_min_ms=1)
        self.everybody: list[Member] = []
        self.parts: dict[tuple[str, int], dict[str, bytes]] = {}  # what a leader shared out, by group and generation
        self.shared_out = 0
        self.asked: set[int] = set()

    @rule(target=members, group=GROUPS, instance=INSTANCES, stream=STREAMS)
    def arrive(self, group: str, instance: str | None, stream: str) -> Member:
        member = Member(group, instance, stream)
        self.everybody.append(member)
        return member

    @rule(member=members, required=st.booleans(), name=st.sampled_from(["range", "sticky"]), ms=SESSIONS)
    def join(self, member: Member, required: bool, name: str, ms: int) -> None:
        protocols = (protocol(name, name.encode(), (member.stream,)), protocol("both", b"x", (member.stream,)))
        self._asks(
            member,
            self.desk.join(
                member.member_id, member.instance, group=member.group, id_required=required, protocols=protocols,
                session_timeout_ms=ms, rebalance_timeout_ms=ms,
            ),
        )  # fmt: skip

    @rule(member=members, size=st.integers(0, 60))
    def sync(self, member: Member, size: int) -> None:
        parts: dict[str, bytes] = {}
        if member.leads:
            self.shared_out += 1
            parts = {name: f"{self.shared_out}:{name}".encode() + b"." * size for name in member.roster}
        state = self.desk.coordinator.state(GROUP if member.group == GROUP else "h")  # type: ignore[arg-type]
        token = self.desk.sync(member.member_id, member.generation, parts, instance=member.instance, group=member.group)
        answer = self.desk.answers.get(token)
        if member.leads and state is State.COMPLETING and isinstance(answer, Synced):
            self.parts[member.group, member.generation] = parts
        self._asks(member, token)

    @rule(group=GROUPS, order=st.randoms(use_true_random=False), ms=SESSIONS, required=st.booleans())
    def gather(self, group: str, order: Random, ms: int, required: bool) -> None:
        """Everybody joins, as clients do once they hear of a rebalance: so generations with many members come about."""
        for member in self._shuffled(group, order):
            if member.token is None:
                self.join(member, required, "range", ms)

    @rule(group=GROUPS, order=st.randoms(use_true_random=False), forgotten=st.integers(0, 3))
    def share_out(self, group: str, order: Random, forgotten: int) -> None:
        """All but a few ask for their parts."""
        for member in self._shuffled(group, order)[forgotten:]:
            if member.token is None:
                self.sync(member, 1)

    @rule(member=members)
    def heartbeat(self, member: Member) -> None:
        try:
            self.desk.heartbeat(member.member_id, member.generation, member.instance, group=member.group)
        except WireError:
            return

    @rule(member=members)
    def leave(self, member: Member) -> None:
        try:
            self.desk.leave((member.member_id, member.instance), group=member.group)  # type: ignore[arg-type]
        except WireError:
            return
        finally:
            self._hear()

    @rule(ms=MS)
    def wait(self, ms: int) -> None:
        self.desk.pass_ms(ms)

    @rule(ms=st.integers(2_000, 100_000))
    def stall(self, ms: int) -> None:
        self.desk.freeze_ms(ms)

    @rule(stream=STREAMS)
    def delete(self, stream: str) -> None:
        self.desk.delete_stream(stream)
        for member in self.everybody:
            if member.stream == stream and member.generation >= 0:
                try:
                    self.desk.heartbeat(member.member_id, member.generation, member.instance, group=member.group)
                except WireError:
                    continue
                raise AssertionError("a reader of a deleted stream was not sent back")

    @invariant()
    def every_member_has_only_its_own_part(self) -> None:
        self._hear()

    @invariant()
    def who_waits_waits_for_what_the_state_brings(self) -> None:
        for group in self.desk.coordinator._groups.values():
            assert not group.joining or group.state is State.PREPARING
            assert not group.syncing or group.state is State.COMPLETING
            assert group.state is not State.COMPLETING or not any(one.assignment for one in group.members.values())
            assert (group.state is State.EMPTY) == (not group.members)
            assert not group.members or group.leader_id in group.members

    def teardown(self) -> None:
        """In the end everybody who asked has one answer, and nothing is held for anybody."""
        self.desk.pass_ms(700_000)
        self._hear()
        assert self.asked == set(self.desk.answers)
        ledger: Any = self.desk.coordinator._ledger
        assert ledger.is_idle()
        assert ledger.timers.next() is None
        assert all(
            group.state is State.EMPTY and not group.joining and not group.syncing and not group._supporters
            for group in self.desk.coordinator._groups.values()
        )

    # --- helpers ---------------------------------------------------------------------------------

    def _shuffled(self, group: str, order: Random) -> list[Member]:
        chosen = [member for member in self.everybody if member.group == group]
        order.shuffle(chosen)
        return chosen

    def _asks(self, member: Member, token: int) -> None:
        self.asked.add(token)
        member.token = token
        self._hear()

    def _hear(self) -> None:
        for member in self.everybody:
            if member.token is not None and member.token in self.desk.answers:
                self._told(member, self.desk.answers[member.token])
                member.token = None

    def _told(self, member: Member, answer: Any) -> None:
        if isinstance(answer, Joined):
            member.member_id, member.generation = answer.member_id, answer.generation
            member.leads = answer.leader_id == answer.member_id and not answer.skip_assignment
            member.roster = [one.member_id for one in answer.members]
        elif isinstance(answer, Synced):
            if answer.assignment:
                # a taken-over static member's part still carries the id of its first holder
                owner = answer.assignment.split(b":")[1].rstrip(b".").decode()
                assert owner == member.member_id or member.instance is not None
                assert answer.assignment in self.parts[member.group, member.generation].values()
        elif isinstance(answer, Refused):
            member.member_id = answer.member_id
            member.generation, member.leads = -1, False


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
