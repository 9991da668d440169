"""One group: its members, what they understand, who leads, and who waits for an answer.

No decisions, only facts kept together: whatever changes the members goes through here, so that counts and votes never
disagree with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headwater.config import GROUP_STREAM_COST_BYTES
from headwater.errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from headwater.groups.answers import Answer, Identity, Join, Joiner, Protocol, Token
from headwater.groups.ledger import Ledger
from headwater.groups.states import Event, State, check_move
from headwater.groups.timers import Timer
from headwater.model import GroupName, StreamName


class Member:
    """A member as it last introduced itself."""

    __slots__ = (
        "assignment",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
    )

    def __init__(self, group: GroupName, member_id: str, join: Join) -> None:
        self.member_id = member_id
        self.instance_id = join.who.instance_id
        self.assignment = b""
        self.is_new = True  # until its first generation: nobody told it its id yet, so it cannot heartbeat
        self.session = Timer(Event.SESSION_OVER, group, member_id)
        self.protocols: tuple[Protocol, ...] = ()
        self.introduce(join)

    def introduce(self, join: Join) -> None:
        self.protocols = join.protocols
        self.session_timeout_ms = join.session_timeout_ms
        self.rebalance_timeout_ms = join.rebalance_timeout_ms

    @property
    def streams(self) -> frozenset[StreamName]:
        return frozenset().union(*(one.streams for one in self.protocols))

    @property
    def cost_bytes(self) -> int:
        return size_of(self.protocols) + len(self.assignment) + len(self.member_id) + len(self.instance_id or "")

    def metadata(self, protocol_name: str) -> bytes:
        return next((one.metadata for one in self.protocols if one.name == protocol_name), b"")


def size_of(protocols: Iterable[Protocol]) -> int:
    return sum(len(one.name) + len(one.metadata) + len(one.streams) * GROUP_STREAM_COST_BYTES for one in protocols)


class Group:
    """`joining` and `syncing` hold the tokens of members that wait; whoever takes one out answers it."""

    def __init__(self, name: GroupName, ledger: Ledger) -> None:
        self.name, self._ledger = name, ledger
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name = ""
        self.leader_id = ""
        self.members: dict[str, Member] = {}
        self.statics: dict[str, str] = {}  # instance id -> member id (KIP-345)
        self.promised: dict[str, Timer] = {}  # member ids that were given out and not yet used (KIP-394)
        self.joining: dict[str, Token] = {}
        self.syncing: dict[str, Token] = {}
        self.unsynced: set[str] = set()  # who has not asked for its assignment in this generation
        self.join_phase = Timer(Event.JOIN_PHASE_OVER, name)
        self.sync_phase = Timer(Event.SYNC_PHASE_OVER, name)
        self.gathering = False  # the first rebalance of an empty group, while its delay runs
        self.gathering_left_ms = 0
        self.newcomers = False  # somebody came while gathering: it may be extended
        self._supporters: Counter[str] = Counter()  # how many members understand a protocol

    def move(self, state: State) -> None:
        check_move(self.state, state)
        self.state = state

    # --- who is who ------------------------------------------------------------------------------

    def check_member(self, who: Identity) -> Member:
        """The member that speaks; a static one that was taken over learns that it is fenced."""
        if who.instance_id is not None:
            holder = self.statics.get(who.instance_id)
            if holder is None:
                raise UnknownMember(f"no member is called {who.instance_id!r}: join again without a member id")
            if holder != who.member_id:
                raise FencedInstance(f"another member took over {who.instance_id!r}: end this one")
        member = self.members.get(who.member_id)
        if member is None:
            raise UnknownMember("the group does not know this member (any more): join again without a member id")
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"generation {generation} is over, {self.generation} is in force: join again")

    def check_protocols(self, join: Join) -> None:
        if not join.protocol_type or not join.protocols:
            raise InconsistentGroupProtocol("a member needs a protocol type and at least one protocol")
        if not self.members:
            return
        if join.protocol_type != self.protocol_type:
            raise InconsistentGroupProtocol(
                f"the group's members are of type {self.protocol_type!r}, this one is {join.protocol_type!r}"
            )
        if not any(self._supporters[one.name] == len(self.members) for one in join.protocols):
            raise InconsistentGroupProtocol("no protocol of this member is understood by all others of its group")

    # --- members come and go ---------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type, self.leader_id = protocol_type, member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        self._count(member)

    def remove(self, member: Member) -> None:
        """Takes a member out. Whoever calls has answered it, if it waited."""
        assert member.member_id not in self.joining
        assert member.member_id not in self.syncing
        self._uncount(member)
        self._ledger.timers.cancel(member.session)
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.statics[member.instance_id]
        self.synced(member.member_id)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), "")

    def introduce(self, member: Member, join: Join) -> None:
        """A known member says anew what it understands and how long it may be silent."""
        self._uncount(member)
        member.introduce(join)
        self._count(member)

    def take_over(self, old: Member, join: Join) -> Member:
        """A new process continues a static member: the same part, under a new id."""
        self._uncount(old)
        self._ledger.timers.cancel(old.session)
        new = Member(self.name, join.fresh_id, join)
        new.is_new, new.assignment = False, old.assignment
        # in its old place: with another order of members the leader would share out differently
        self.members = {new.member_id if one is old else name: new if one is old else one
                        for name, one in self.members.items()}  # fmt: skip
        assert new.instance_id is not None
        self.statics[new.instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id
        if old.member_id in self.unsynced:
            self.unsynced.remove(old.member_id)
            self.unsynced.add(new.member_id)
        self._count(new)
        return new

    def promise(self, member_id: str, until: int) -> None:
        timer = self.promised[member_id] = Timer(Event.PROMISE_OVER, self.name, member_id)
        self._ledger.promise_count += 1
        self._ledger.timers.arm(timer, until)

    def end_promise(self, member_id: str) -> bool:
        """Whether the id was promised; it is not, from now on."""
        timer = self.promised.pop(member_id, None)
        if timer is None:
            return False
        self._ledger.promise_count -= 1
        self._ledger.timers.cancel(timer)
        return True

    # --- what the members say together -----------------------------------------------------------

    def select_protocol(self) -> str:
        """The one that most members list first among those that all understand; ties: as the leader lists them."""
        shared = {name for name, count in self._supporters.items() if count == len(self.members)}
        votes = Counter(
            next(one.name for one in member.protocols if one.name in shared) for member in self.members.values()
        )
        return max(
            (one.name for one in self.members[self.leader_id].protocols if one.name in shared),
            key=lambda name: votes[name],
        )

    def roster(self) -> tuple[Joiner, ...]:
        return tuple(
            Joiner(member_id=one.member_id, instance_id=one.instance_id, metadata=one.metadata(self.protocol_name))
            for one in self.members.values()
        )

    def rebalance_timeout_ms(self) -> int:
        return max((one.rebalance_timeout_ms for one in self.members.values()), default=0)

    def all_joined(self) -> bool:
        return len(self.joining) == len(self.members) and not self.promised

    # --- who waits -------------------------------------------------------------------------------

    def await_join(self, member_id: str, token: Token) -> None:
        self._await(self.joining, member_id, token)

    def await_sync(self, member_id: str, token: Token) -> None:
        self._await(self.syncing, member_id, token)

    def _await(self, waiting: dict[str, Token], member_id: str, token: Token) -> None:
        if member_id in waiting:  # it asked again, on a new connection: nobody may be left on the old one
            self._ledger.refuse(waiting[member_id], RebalanceInProgress("this member has asked again meanwhile"))
        waiting[member_id] = token
        member = self.members[member_id]
        if not member.is_new:
            self._ledger.timers.cancel(member.session)  # while it waits for us, its silence is not its fault

    def answer_join(self, member_id: str, answer: Answer) -> None:
        if member_id in self.joining:
            self._ledger.answer(self.joining.pop(member_id), answer)

    def answer_sync(self, member_id: str, answer: Answer) -> None:
        if member_id in self.syncing:
            self._ledger.answer(self.syncing.pop(member_id), answer)

    def synced(self, member_id: str) -> None:
        """It has asked for its part (or is gone): when all have, nobody has to be waited for."""
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self._ledger.timers.cancel(self.sync_phase)

    # --- sessions --------------------------------------------------------------------------------

    def beat(self, member: Member) -> None:
        """It was heard: its session runs anew. While it waits for an answer of ours, no silence counts."""
        if member.member_id in self.joining or member.member_id in self.syncing:
            return
        self._ledger.timers.arm(member.session, self._ledger.now + member.session_timeout_ms)

    def _count(self, member: Member) -> None:
        self._supporters.update({one.name for one in member.protocols})
        self._ledger.add(self.name, member)

    def _uncount(self, member: Member) -> None:
        names = {one.name for one in member.protocols}
        self._supporters.subtract(names)
        for name in names:
            if self._supporters[name] == 0:
                del self._supporters[name]
        self._ledger.drop(self.name, member)
