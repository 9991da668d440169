"""The face of the room: finds the group, lets the table answer, and keeps the number of groups within its limit."""

from __future__ import annotations

from collections.abc import KeysView, Sequence

from headwater.config import GROUP_NAME_CHARS_MAX, STALL_SAMPLE_MS
from headwater.errors import (
    GroupFull,
    InvalidGroupName,
    InvalidSessionTimeout,
    NotCoordinator,
    UnknownMember,
    WireError,
)
from headwater.groups.answers import Answer, Identity, Join, Refused, Sync, Token
from headwater.groups.events import Joining, Leaving, Speaking, Syncing, step
from headwater.groups.group import Group
from headwater.groups.ledger import Ledger, Limits
from headwater.groups.states import Event, State
from headwater.model import GroupName, StreamName

_EXPIRIES = frozenset({Event.SESSION_OVER, Event.PROMISE_OVER})


class Coordinator:
    """All ordered groups of this broker. Members and generations live in memory only: after a restart they join again."""

    def __init__(self, limits: Limits) -> None:
        self._ledger = Ledger(limits)
        self._groups: dict[GroupName, Group] = {}
        self._forgettable: dict[GroupName, None] = {}  # empty groups, the longest empty first
        self._stopped = False

    # --- what members ask ------------------------------------------------------------------------

    def join(self, join: Join, token: Token, now_ms: int) -> None:
        """Answers `token` with Joined or Refused: at once, or when the members have gathered."""
        self._look_at_clock(now_ms)
        group: Group | None = None
        try:
            self._check_running()
            _check_group_name(join.group)
            self._check_session_timeout(join)
            group = self._find_to_join(join)
            self._check_size(group, join.who)
            group.check_protocols(join)
            step(group, self._ledger, _kind_of_join(group, join.who), Joining(join=join, token=token))
        except WireError as why:
            member_id = "" if isinstance(why, GroupFull) else join.who.member_id
            self._ledger.answer(token, Refused(error=why, member_id=member_id))
        if group is not None:
            self._note(group)

    def sync(self, sync: Sync, token: Token, now_ms: int) -> None:
        """Answers `token` with Synced or Refused: at once, or when the leader has shared out."""
        self._look_at_clock(now_ms)
        try:
            group = self._find_of_member(sync.group)
            step(group, self._ledger, Event.SYNC, Syncing(sync=sync, token=token))
        except WireError as why:
            self._ledger.refuse(token, why)

    def heartbeat(self, name: GroupName, who: Identity, generation: int, now_ms: int) -> None:
        """Raises what the member has to be told, RebalanceInProgress above all."""
        self._look_at_clock(now_ms)
        group = self._find_of_member(name)
        step(group, self._ledger, Event.HEARTBEAT, Speaking(who=who, generation=generation))

    def leave(self, name: GroupName, members: Sequence[Identity], now_ms: int) -> list[WireError | None]:
        """What came of it, for each member; None: it has left."""
        self._look_at_clock(now_ms)
        group = self._find_of_member(name)
        leaving = Leaving(who=members, outcomes=[])
        step(group, self._ledger, Event.LEAVE, leaving)
        self._note(group)
        return leaving.outcomes

    def check_commit(self, name: GroupName, who: Identity, generation: int, now_ms: int) -> None:
        """Whether this commit may be stored; raises why not.

        Who claims a generation of a group that is not in memory was its member before a restart (Kafka, which stores
        generations, says ILLEGAL_GENERATION): it has to join again.
        """
        self._look_at_clock(now_ms)
        self._check_running()
        group = self._groups.get(name)
        if group is not None:
            step(group, self._ledger, Event.COMMIT, Speaking(who=who, generation=generation))
        elif generation >= 0:
            raise UnknownMember("the group has no members (any more): join again without a member id")

    # --- what time and the house bring -----------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Lets everything happen whose time has come."""
        self._look_at_clock(now_ms)
        while (timer := self._ledger.timers.due(self._ledger.now)) is not None:
            group = self._groups[timer.group]
            step(group, self._ledger, timer.event, timer.member_id if timer.event in _EXPIRIES else None)
            self._note(group)

    def next_tick_ms(self) -> int | None:
        """In how many ms `tick` has to be called, from the call just made; None: nobody's time runs."""
        at = self._ledger.timers.next()
        return None if at is None else max(0, min(at - self._ledger.now, STALL_SAMPLE_MS))

    def stream_deleted(self, stream: StreamName, now_ms: int) -> None:
        """Every member of every group that reads the stream is out until it joins again."""
        self._look_at_clock(now_ms)
        for name in self._ledger.readers(stream):
            step(self._groups[name], self._ledger, Event.STREAM_DELETED)
            self._note(self._groups[name])

    def streams_read(self) -> KeysView[StreamName]:
        """Every stream that a member of some group subscribes to."""
        return self._ledger.streams_read()

    def stop(self, now_ms: int) -> None:
        """Tells everybody who waits, and everybody who asks from now on, to look for the coordinator again."""
        self._look_at_clock(now_ms)
        self._stopped = True
        why = NotCoordinator("this broker is about to stop: look for the coordinator again")
        for group in self._groups.values():
            step(group, self._ledger, Event.END, why)
        self._groups.clear()
        self._forgettable.clear()

    def take_answers(self) -> list[tuple[Token, Answer]]:
        """The answers that became ready, in their order; each token's once."""
        answers, self._ledger.answers = self._ledger.answers, []
        return answers

    def state(self, name: GroupName) -> State:
        """Where a group stands; one that is not in memory has no members."""
        group = self._groups.get(name)
        return State.EMPTY if group is None else group.state

    # --- helpers ---------------------------------------------------------------------------------

    def _look_at_clock(self, now_ms: int) -> None:
        self._ledger.now = self._ledger.clock.read(now_ms)

    def _check_running(self) -> None:
        if self._stopped:
            raise NotCoordinator("this broker is about to stop: look for the coordinator again")

    def _check_session_timeout(self, join: Join) -> None:
        low, high = self._ledger.limits.session_timeout_min_ms, self._ledger.limits.session_timeout_max_ms
        if not low <= join.session_timeout_ms <= high:
            raise InvalidSessionTimeout(
                f"session.timeout.ms is {join.session_timeout_ms}; this broker takes {low} to {high}"
            )

    def _check_size(self, group: Group, who: Identity) -> None:
        """As Kafka counts: while members gather, those who have come; else those who are there; never the promised."""
        counted = group.joining if group.state is State.PREPARING else group.members
        is_known = who.member_id in counted or (who.instance_id is not None and who.instance_id in group.statics)
        if not is_known and len(counted) >= self._ledger.limits.members_max:
            if who.member_id in group.promised:
                step(group, self._ledger, Event.PROMISE_OVER, who.member_id)
            raise GroupFull(f"the group has {len(counted)} members, the most it may have (group_members_max)")

    def _find_of_member(self, name: GroupName) -> Group:
        self._check_running()
        _check_group_name(name)
        group = self._groups.get(name)
        if group is None:
            raise UnknownMember("the group has no members (any more): join again without a member id")
        return group

    def _find_to_join(self, join: Join) -> Group:
        group = self._groups.get(join.group)
        if group is not None:
            return group
        if join.who.member_id:
            raise UnknownMember("the group has no members (any more): join again without a member id")
        if len(self._groups) >= self._ledger.limits.groups_max:
            self._forget_one()
        group = self._groups[join.group] = Group(join.group, self._ledger)
        return group

    def _forget_one(self) -> None:
        oldest = next(iter(self._forgettable), None)
        if oldest is None:
            raise GroupFull(f"this broker has {len(self._groups)} groups with members, the most it keeps: end some")
        step(self._groups[oldest], self._ledger, Event.END, UnknownMember("the group was forgotten"))
        del self._groups[oldest], self._forgettable[oldest]

    def _note(self, group: Group) -> None:
        """An empty group may be forgotten when room is needed: its cursors are not here."""
        if group.state is State.EMPTY and not group.promised:
            self._forgettable.setdefault(group.name)
        else:
            self._forgettable.pop(group.name, None)


def _check_group_name(name: GroupName) -> None:
    if not name:
        raise InvalidGroupName("a group's name is empty: give it one")
    if len(name) > GROUP_NAME_CHARS_MAX:
        raise InvalidGroupName(f"a group's name has {len(name)} characters: {GROUP_NAME_CHARS_MAX} are allowed")


def _kind_of_join(group: Group, who: Identity) -> Event:
    if not who.member_id:
        return Event.JOIN_TAKEOVER if who.instance_id in group.statics else Event.JOIN_NEW
    return Event.JOIN_NEW if who.member_id in group.promised else Event.JOIN_AGAIN
