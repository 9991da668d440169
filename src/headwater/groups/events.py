"""What each event does in each state: one function per kind of answer, and the table that names them all.

`step` is the only way in. A function answers tokens through the group, or raises a `WireError`, which is the answer
to whoever asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.errors import (
    FencedInstance,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
    WireError,
)
from headwater.groups.answers import Identity, Join, Refused, Sync, Token
from headwater.groups.group import Group, Member, size_of
from headwater.groups.ledger import Ledger
from headwater.groups.phases import (
    admit,
    complete_if_all_joined,
    complete_join,
    expel,
    extend_gathering,
    gone,
    hand_out,
    joined,
    prepare,
    rebalance_or_complete,
    synced,
)
from headwater.groups.states import Event, State, refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    join: Join
    token: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Syncing:
    sync: Sync
    token: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaking:
    """A heartbeat or a commit: who, and of which generation it believes to be."""

    who: Identity
    generation: int


@dataclass(slots=True, kw_only=True)
class Leaving:
    who: Sequence[Identity]
    outcomes: list[WireError | None]  # filled in, one for each


Step = Callable[[Group, Ledger, Any], None]


def step(group: Group, ledger: Ledger, event: Event, what: object = None) -> None:
    answer = TABLE.get((group.state, event))
    if answer is None:
        raise refusal(group.state, event)
    answer(group, ledger, what)


# --- joining -------------------------------------------------------------------------------------


def join_new(group: Group, ledger: Ledger, what: Joining) -> None:
    join = what.join
    if join.who.member_id:
        if join.who.instance_id is not None:
            raise UnknownMember("this member id was promised to a dynamic member: join again without a member id")
        admit(group, ledger, join, join.who.member_id, what.token)
    elif join.id_required and join.who.instance_id is None:
        ledger.check_room(members=1)
        group.promise(join.fresh_id, ledger.now + join.session_timeout_ms)
        why = MemberIdRequired("join again with this member id")
        ledger.answer(what.token, Refused(error=why, member_id=join.fresh_id))
    else:
        admit(group, ledger, join, join.fresh_id, what.token)


def join_again(group: Group, ledger: Ledger, what: Joining) -> None:
    """Says anew who it is, and waits for the next generation."""
    member = group.check_member(what.join.who)
    _introduce(group, ledger, member, what.join)
    group.await_join(member.member_id, what.token)
    rebalance_or_complete(group, ledger)


def join_again_completing(group: Group, ledger: Ledger, what: Joining) -> None:
    """Its answer may have been lost: the same again, unless it has changed."""
    member = group.check_member(what.join.who)
    if not what.join.same_protocols(member.protocols):
        join_again(group, ledger, what)
        return
    ledger.answer(what.token, joined(group, member, with_roster=True))
    group.beat(member)


def join_again_stable(group: Group, ledger: Ledger, what: Joining) -> None:
    """A leader that joins again wants a rebalance (it saw partitions come); a follower that has not changed does not."""
    member = group.check_member(what.join.who)
    if member.member_id == group.leader_id or not what.join.same_protocols(member.protocols):
        join_again(group, ledger, what)
        return
    ledger.answer(what.token, joined(group, member, with_roster=False))
    group.beat(member)


def take_over(group: Group, ledger: Ledger, what: Joining) -> None:
    """A static member's new process, while a rebalance runs: it waits with the others, the old one is fenced."""
    member = _replace(group, ledger, what.join)
    group.await_join(member.member_id, what.token)
    rebalance_or_complete(group, ledger)


def take_over_stable(group: Group, ledger: Ledger, what: Joining) -> None:
    """The point of static members: the new process gets the old one's part, and nobody else notices (KIP-345)."""
    old_leader = group.leader_id
    member = _replace(group, ledger, what.join)
    group.await_join(member.member_id, what.token)
    if group.select_protocol() != group.protocol_name:
        rebalance_or_complete(group, ledger)
        return
    if what.join.may_skip:  # KIP-814: told plainly that there is nothing to share out
        leads = member.member_id == group.leader_id
        answer = joined(group, member, with_roster=True, skip=leads)
    else:  # an older client is shown the leader's old id, so that it does not believe that it leads
        answer = joined(group, member, with_roster=False, leader_id=old_leader)
    group.answer_join(member.member_id, answer)
    group.beat(member)


# --- syncing -------------------------------------------------------------------------------------


def sync_too_early(group: Group, ledger: Ledger, what: Syncing) -> None:
    _check_sync(group, what.sync)
    raise RebalanceInProgress("the members gather anew: join again")


def sync_completing(group: Group, ledger: Ledger, what: Syncing) -> None:
    member = _check_sync(group, what.sync)
    group.await_sync(member.member_id, what.token)
    if member.member_id == group.leader_id:
        try:
            hand_out(group, ledger, what.sync.assignments)
        except WireError as why:  # it stays unsynced: without another try the sync phase ends the generation
            group.answer_sync(member.member_id, Refused(error=why))
            group.beat(member)
            return
    group.synced(member.member_id)


def sync_stable(group: Group, ledger: Ledger, what: Syncing) -> None:
    member = _check_sync(group, what.sync)
    group.synced(member.member_id)
    ledger.answer(what.token, synced(group, member))
    group.beat(member)


def _check_sync(group: Group, sync: Sync) -> Member:
    member = group.check_member(sync.who)
    group.check_generation(sync.generation)
    for said, held in ((sync.protocol_type, group.protocol_type), (sync.protocol_name, group.protocol_name)):
        if said is not None and held and said != held:
            raise InconsistentGroupProtocol(f"the group's protocol is {held!r}, not {said!r}")
    return member


# --- heartbeats, commits -------------------------------------------------------------------------


def heartbeat(group: Group, ledger: Ledger, what: Speaking) -> None:
    member = group.check_member(what.who)
    group.check_generation(what.generation)
    group.beat(member)


def heartbeat_preparing(group: Group, ledger: Ledger, what: Speaking) -> None:
    heartbeat(group, ledger, what)
    raise RebalanceInProgress("the members gather anew: join again")


def commit_without_members(group: Group, ledger: Ledger, what: Speaking) -> None:
    """Nobody shares partitions out: whoever comes without a generation may set the cursors."""
    if what.generation >= 0:
        group.check_member(what.who)


def commit(group: Group, ledger: Ledger, what: Speaking) -> None:
    if what.generation < 0 and not what.who.member_id and what.who.instance_id is None:
        raise UnknownMember("the group has members, so only they may commit: stop them first, or join")
    heartbeat(group, ledger, what)


def commit_completing(group: Group, ledger: Ledger, what: Speaking) -> None:
    commit(group, ledger, what)
    raise RebalanceInProgress("the partitions are being shared out: commit after the next sync")


# --- leaving, falling silent ---------------------------------------------------------------------


def leave(group: Group, ledger: Ledger, what: Leaving) -> None:
    for who in what.who:
        try:
            _leave_one(group, who)
        except WireError as why:
            what.outcomes.append(why)
        else:
            what.outcomes.append(None)
    if None in what.outcomes and group.state is not State.EMPTY:
        rebalance_or_complete(group, ledger)


def _leave_one(group: Group, who: Identity) -> None:
    if not who.member_id and who.instance_id in group.statics:  # an operator ends a static member by its name
        who = Identity(member_id=group.statics[who.instance_id], instance_id=who.instance_id)
    if not group.end_promise(who.member_id):
        expel(group, group.check_member(who), gone())


def session_over(group: Group, ledger: Ledger, member_id: str) -> None:
    expel(group, group.members[member_id], gone())
    rebalance_or_complete(group, ledger)


def promise_over(group: Group, ledger: Ledger, member_id: str) -> None:
    group.end_promise(member_id)
    complete_if_all_joined(group, ledger)


def join_phase_over(group: Group, ledger: Ledger, what: object) -> None:
    if group.gathering and group.newcomers:
        extend_gathering(group, ledger)
    else:
        complete_join(group, ledger)


def sync_phase_over(group: Group, ledger: Ledger, what: object) -> None:
    """Whoever has not asked for its part by now does not want it."""
    for member_id in list(group.unsynced):
        expel(group, group.members[member_id], gone())
    prepare(group, ledger)


# --- what the house does -------------------------------------------------------------------------


def stream_deleted(group: Group, ledger: Ledger, what: object) -> None:
    """All members are out, so that none of their commits reaches a stream that is created under the old name."""
    why = UnknownMember("a stream that this group reads was deleted: join again without a member id")
    for member in list(group.members.values()):
        expel(group, member, why)
    group.gathering = False
    rebalance_or_complete(group, ledger)


def end(group: Group, ledger: Ledger, why: WireError) -> None:
    for member in list(group.members.values()):
        expel(group, member, why)
    for member_id in list(group.promised):
        group.end_promise(member_id)
    ledger.timers.cancel(group.join_phase)
    ledger.timers.cancel(group.sync_phase)
    group.move(State.DEAD)


# --- helpers -------------------------------------------------------------------------------------


def _introduce(group: Group, ledger: Ledger, member: Member, join: Join) -> None:
    ledger.check_room(size_bytes=size_of(join.protocols) - size_of(member.protocols))
    group.introduce(member, join)


def _replace(group: Group, ledger: Ledger, join: Join) -> Member:
    assert join.who.instance_id is not None
    old = group.members[group.statics[join.who.instance_id]]
    ledger.check_room(size_bytes=size_of(join.protocols) - size_of(old.protocols))
    fenced = Refused(error=FencedInstance(f"another member took over {join.who.instance_id!r}: end this one"))
    group.answer_join(old.member_id, fenced)
    group.answer_sync(old.member_id, fenced)
    return group.take_over(old, join)


_EMPTY, _PREPARING, _COMPLETING, _STABLE = State.EMPTY, State.PREPARING, State.COMPLETING, State.STABLE

TABLE: dict[tuple[State, Event], Step] = {
    (_EMPTY, Event.JOIN_NEW): join_new,
    (_EMPTY, Event.COMMIT): commit_without_members,
    (_EMPTY, Event.LEAVE): leave,  # of a promised member
    (_EMPTY, Event.PROMISE_OVER): promise_over,
    (_EMPTY, Event.END): end,
    (_PREPARING, Event.JOIN_NEW): join_new,
    (_PREPARING, Event.JOIN_AGAIN): join_again,
    (_PREPARING, Event.JOIN_TAKEOVER): take_over,
    (_PREPARING, Event.SYNC): sync_too_early,
    (_PREPARING, Event.HEARTBEAT): heartbeat_preparing,
    (_PREPARING, Event.COMMIT): commit,  # of the generation that ends: what was read in it counts
    (_PREPARING, Event.LEAVE): leave,
    (_PREPARING, Event.SESSION_OVER): session_over,
    (_PREPARING, Event.PROMISE_OVER): promise_over,
    (_PREPARING, Event.JOIN_PHASE_OVER): join_phase_over,
    (_PREPARING, Event.STREAM_DELETED): stream_deleted,
    (_PREPARING, Event.END): end,
    (_COMPLETING, Event.JOIN_NEW): join_new,
    (_COMPLETING, Event.JOIN_AGAIN): join_again_completing,
    (_COMPLETING, Event.JOIN_TAKEOVER): take_over,
    (_COMPLETING, Event.SYNC): sync_completing,
    (_COMPLETING, Event.HEARTBEAT): heartbeat,
    (_COMPLETING, Event.COMMIT): commit_completing,
    (_COMPLETING, Event.LEAVE): leave,
    (_COMPLETING, Event.SESSION_OVER): session_over,
    (_COMPLETING, Event.PROMISE_OVER): promise_over,
    (_COMPLETING, Event.SYNC_PHASE_OVER): sync_phase_over,
    (_COMPLETING, Event.STREAM_DELETED): stream_deleted,
    (_COMPLETING, Event.END): end,
    (_STABLE, Event.JOIN_NEW): join_new,
    (_STABLE, Event.JOIN_AGAIN): join_again_stable,
    (_STABLE, Event.JOIN_TAKEOVER): take_over_stable,
    (_STABLE, Event.SYNC): sync_stable,
    (_STABLE, Event.HEARTBEAT): heartbeat,
    (_STABLE, Event.COMMIT): commit,
    (_STABLE, Event.LEAVE): leave,
    (_STABLE, Event.SESSION_OVER): session_over,
    (_STABLE, Event.PROMISE_OVER): promise_over,
    (_STABLE, Event.SYNC_PHASE_OVER): sync_phase_over,
    (_STABLE, Event.STREAM_DELETED): stream_deleted,
    (_STABLE, Event.END): end,
}
