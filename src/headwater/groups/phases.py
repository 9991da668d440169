"""The rebalance: gather, begin a generation, hand out what the leader shared out.

The rules and their exceptions are Kafka's (its ClassicGroup); where a comment names no reason, that is the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config import NEW_MEMBER_JOIN_MS
from headwater.errors import GroupFull, RebalanceInProgress, UnknownMember, WireError
from headwater.groups.answers import Join, Joined, Refused, Synced, Token
from headwater.groups.group import Group, Member
from headwater.groups.ledger import Ledger
from headwater.groups.states import State

CAN_REBALANCE = frozenset({State.EMPTY, State.COMPLETING, State.STABLE})


def admit(group: Group, ledger: Ledger, join: Join, member_id: str, token: Token) -> None:
    """A new member comes in, and everybody has to gather."""
    member = Member(group.name, member_id, join)
    ledger.check_room(members=int(member_id not in group.promised), size_bytes=member.cost_bytes)
    group.end_promise(member_id)
    group.newcomers = group.gathering
    group.add(member, join.protocol_type)
    group.await_join(member_id, token)
    # it has no session yet: without an end a client that retries would leave members behind that nobody speaks for
    ledger.timers.arm(member.session, ledger.now + NEW_MEMBER_JOIN_MS)
    rebalance_or_complete(group, ledger)


def rebalance_or_complete(group: Group, ledger: Ledger) -> None:
    """The members are not what they were: gather all, or see whether those who gather are complete now."""
    if group.state in CAN_REBALANCE:
        prepare(group, ledger)
    else:
        complete_if_all_joined(group, ledger)


def prepare(group: Group, ledger: Ledger) -> None:
    for member_id in list(group.syncing):
        group.answer_sync(member_id, Refused(error=RebalanceInProgress("the members have changed: join again")))
        group.beat(group.members[member_id])
    group.unsynced.clear()
    ledger.timers.cancel(group.sync_phase)
    was_empty = group.state is State.EMPTY
    group.move(State.PREPARING)
    if was_empty:
        group.gathering, group.newcomers = True, False
        group.gathering_left_ms = group.rebalance_timeout_ms()
        extend_gathering(group, ledger)
    else:
        ledger.timers.arm(group.join_phase, ledger.now + group.rebalance_timeout_ms())
        complete_if_all_joined(group, ledger)


def extend_gathering(group: Group, ledger: Ledger) -> None:
    """The first rebalance waits a little for others who start at the same time, at most as long as a member may take."""
    wait_ms = min(ledger.limits.rebalance_delay_ms, group.gathering_left_ms)
    group.gathering_left_ms -= wait_ms
    group.newcomers = False
    if wait_ms > 0:
        ledger.timers.arm(group.join_phase, ledger.now + wait_ms)
    else:
        complete_join(group, ledger)


def complete_if_all_joined(group: Group, ledger: Ledger) -> None:
    if group.state is not State.PREPARING or group.gathering:
        return
    if group.all_joined() or not group.members:  # an id that was only promised holds up nobody but members
        complete_join(group, ledger)


def complete_join(group: Group, ledger: Ledger) -> None:
    """The join phase is over: who has not come is out (a static member only when its session is), a generation begins."""
    group.gathering = False
    for member in list(group.members.values()):
        if member.member_id not in group.joining and member.instance_id is None:
            group.remove(member)
    if group.members and not _elect(group):
        ledger.timers.arm(group.join_phase, ledger.now + group.rebalance_timeout_ms())
        return
    ledger.timers.cancel(group.join_phase)
    group.generation += 1
    if not group.members:
        group.protocol_type = group.protocol_name = ""
        group.move(State.EMPTY)
        return
    group.protocol_name = group.select_protocol()
    group.move(State.COMPLETING)
    group.unsynced = set(group.members)
    for member in group.members.values():
        ledger.assign(member, b"")  # that of the last generation
        member.is_new = False
        group.answer_join(member.member_id, joined(group, member, with_roster=True))
        group.beat(member)
    ledger.timers.arm(group.sync_phase, ledger.now + group.rebalance_timeout_ms())


def joined(group: Group, member: Member, *, with_roster: bool, leader_id: str = "", skip: bool = False) -> Joined:
    leads = member.member_id == group.leader_id
    return Joined(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=leader_id or group.leader_id,
        member_id=member.member_id,
        members=group.roster() if leads and with_roster else (),
        skip_assignment=skip,
    )


def hand_out(group: Group, ledger: Ledger, assignments: Mapping[str, bytes]) -> None:
    """The leader has shared out: each member gets its own part, nothing when the leader forgot it."""
    size = sum(len(assignments.get(one.member_id, b"")) for one in group.members.values())
    if ledger.used_bytes + size > ledger.limits.bytes_max:
        raise GroupFull(f"with these assignments all groups would pass {ledger.limits.bytes_max} bytes")
    for member in group.members.values():
        ledger.assign(member, bytes(assignments.get(member.member_id, b"")))
    group.move(State.STABLE)
    for member_id in list(group.syncing):
        member = group.members[member_id]
        group.answer_sync(member_id, synced(group, member))
        group.beat(member)


def synced(group: Group, member: Member) -> Synced:
    return Synced(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment)


def expel(group: Group, member: Member, why: WireError) -> None:
    """Out it goes; if it waits for something, it learns why."""
    group.answer_join(member.member_id, Refused(error=why))
    group.answer_sync(member.member_id, Refused(error=why))
    group.remove(member)


def gone() -> UnknownMember:
    return UnknownMember("this member left its group, or was silent for too long: join again without a member id")


def _elect(group: Group) -> bool:
    """The leader stays if it has joined; else the first who has. False: nobody has."""
    if group.leader_id not in group.joining:
        first = next((name for name in group.members if name in group.joining), None)
        if first is None:
            return False
        group.leader_id = first
    return True
