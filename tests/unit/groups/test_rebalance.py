"""Joining, syncing, leaving: the rounds of a rebalance, as Kafka's classic coordinator plays them."""

from __future__ import annotations

import pytest

from headwater.errors import (
    GroupFull,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupName,
    InvalidSessionTimeout,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMember,
)
from headwater.groups import State
from tests.unit.groups.desk import GROUP, Desk, protocol


def test_a_lone_member_gets_what_it_gives_itself() -> None:
    """One member leads itself: join, sync, heartbeat."""
    desk = Desk()
    joined = desk.joined(desk.join())
    assert (joined.generation, joined.leader_id, joined.protocol_name) == (1, joined.member_id, "range")
    assert [one.member_id for one in joined.members] == [joined.member_id]
    assert desk.synced(desk.sync(joined.member_id, 1, {joined.member_id: b"all"})) == b"all"
    desk.heartbeat(joined.member_id, 1)


def test_each_member_gets_its_own_part() -> None:
    """What the leader shares out reaches each member, and only the leader sees who the others are."""
    desk = Desk()
    first, second, third = desk.completing(3)
    followers = [desk.sync(second, 2), desk.sync(third, 2)]
    assert all(map(desk.waits, followers))
    lead = desk.sync(first, 2, {first: b"1", second: b"2", third: b"3"})
    assert [desk.synced(token) for token in (lead, *followers)] == [b"1", b"2", b"3"]
    rosters = [len(one.members) for one in desk.answers.values() if getattr(one, "generation", 0) == 2]
    assert sorted(rosters) == [0, 0, 3]
    assert desk.synced(desk.sync(second, 2)) == b"2"  # asked again: the same again


def test_a_member_that_the_leader_forgot_gets_nothing() -> None:
    """No part is an empty part, and a part for a stranger is dropped."""
    desk = Desk()
    first, second = desk.completing(2)
    follower = desk.sync(second, 2)
    desk.sync(first, 2, {first: b"all", "stranger": b"?"})
    assert desk.synced(follower) == b""


def test_a_new_member_makes_the_others_gather() -> None:
    """While a rebalance runs, members hear of it at their heartbeat, and commit what they have read."""
    desk = Desk()
    (first,) = desk.stable()
    second = desk.join()
    assert desk.waits(second)
    assert desk.coordinator.state(GROUP) is State.PREPARING
    with pytest.raises(RebalanceInProgress):
        desk.heartbeat(first, 1)
    desk.commit(first, 1)
    assert desk.refused(desk.sync(first, 1)) is RebalanceInProgress
    again = desk.join(first)
    assert desk.joined(again).generation == desk.joined(second).generation == 2


def test_a_member_that_does_not_gather_is_out() -> None:
    """After the longest rebalance timeout the others go on without it."""
    desk = Desk()
    first, second = desk.stable(2)
    newcomer = desk.join(rebalance_timeout_ms=20_000)
    again = desk.join(first, rebalance_timeout_ms=20_000)
    for _ in range(12):
        with pytest.raises(RebalanceInProgress):
            desk.heartbeat(second, 2)  # it lives, but does not join
        desk.pass_ms(5_000)
    assert desk.joined(again).generation == desk.joined(newcomer).generation == 3
    with pytest.raises(UnknownMember):
        desk.heartbeat(second, 3)


def test_when_the_leader_does_not_gather_another_leads() -> None:
    """A leader that missed the join phase loses its place."""
    desk = Desk()
    first, second = desk.stable(2)
    newcomer = desk.join()
    again = desk.join(second)
    desk.pass_ms(9_000)
    desk.pass_ms(2_000)  # the first's session is over
    assert desk.joined(again).leader_id == second == desk.joined(newcomer).leader_id
    with pytest.raises(UnknownMember):
        desk.heartbeat(first, 3)


def test_a_change_while_parts_are_shared_out_starts_over() -> None:
    """Those who wait for their part are told to join again, and no part of the old round is handed out."""
    desk = Desk()
    first, second = desk.completing(2)
    follower = desk.sync(second, 2)
    newcomer = desk.join()
    assert desk.refused(follower) is RebalanceInProgress
    assert desk.refused(desk.sync(first, 2, {first: b"old", second: b"old"})) is RebalanceInProgress
    desk.join(first)
    desk.join(second)
    assert desk.joined(newcomer).generation == 3
    assert desk.refused(desk.sync(second, 2)) is IllegalGeneration


def test_a_lost_answer_is_given_again() -> None:
    """A member that joins again unchanged, because its answer was lost, does not disturb the others."""
    desk = Desk()
    first, second = desk.completing(2)
    assert len(desk.joined(desk.join(first)).members) == 2
    assert desk.joined(desk.join(second)).generation == 2
    assert desk.coordinator.state(GROUP) is State.COMPLETING
    desk.sync(first, 2, {first: b"1", second: b"2"})
    assert desk.joined(desk.join(second)).generation == 2
    assert desk.coordinator.state(GROUP) is State.STABLE


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    """It has seen that there is something new to share out; a follower does so by a new subscription."""
    desk = Desk()
    first, second = desk.stable(2)
    assert desk.waits(desk.join(first))
    assert desk.joined(desk.join(second)).generation == 3
    desk.sync(first, 3, {})
    changed = desk.join(second, protocols=(protocol(metadata=b"more"),))
    assert desk.waits(changed)
    roster = desk.joined(desk.join(first)).members
    assert [one.metadata for one in roster] == [b"m", b"more"]


def test_a_second_request_of_one_member_ends_the_first() -> None:
    """Nobody is left waiting on a connection that the client has given up."""
    desk = Desk()
    first, second = desk.stable(2)
    desk.join()
    lost, kept = desk.join(second), desk.join(second)
    assert desk.refused(lost) is RebalanceInProgress
    desk.join(first)
    assert desk.joined(kept).generation == 3
    lost, kept = desk.sync(second, 3), desk.sync(second, 3)
    assert desk.refused(lost) is RebalanceInProgress
    desk.sync(first, 3, {second: b"2"})
    assert desk.synced(kept) == b"2"


def test_members_that_never_sync_are_out() -> None:
    """Whoever does not ask for its part within the rebalance timeout does not want it, the leader included."""
    desk = Desk()
    first, second = desk.completing(2)
    for _ in range(14):
        desk.pass_ms(5_000)
        if desk.now_ms < 1_060_000:
            desk.heartbeat(first, 2)
            desk.heartbeat(second, 2)
    assert desk.coordinator.state(GROUP) is State.EMPTY


def test_leaving_makes_the_others_gather_and_the_last_leaves_it_empty() -> None:
    """A member that leaves is forgotten at once."""
    desk = Desk()
    first, second = desk.stable(2)
    assert desk.leave(second) == [None]
    assert desk.coordinator.state(GROUP) is State.PREPARING
    assert desk.joined(desk.join(first)).generation == 3
    assert desk.leave(first) == [None]
    assert desk.coordinator.state(GROUP) is State.EMPTY
    assert desk.coordinator.take_answers() == []


def test_leaving_answers_each_member_by_itself() -> None:
    """A stranger in a batch of members does not keep the others in."""
    desk = Desk()
    _, second = desk.stable(2)
    outcomes = desk.leave("nobody", second)
    assert isinstance(outcomes[0], UnknownMember)
    assert outcomes[1] is None


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    """Its join or sync does not hang when it left on another connection."""
    desk = Desk()
    (first,) = desk.stable()
    newcomer = desk.join()
    desk.leave("m2")
    assert desk.refused(newcomer) is UnknownMember
    again = desk.join(first)
    assert desk.joined(again).generation == 2


def test_protocols_are_chosen_by_votes_among_those_all_know() -> None:
    """The one that most members list first wins, and only if everybody understands it."""
    desk = Desk()
    one, other = protocol("range"), protocol("sticky")
    first = desk.joined(desk.join(protocols=(one, other, protocol("mine")))).member_id
    tokens = [desk.join(protocols=(other, one)), desk.join(protocols=(other, one))]
    desk.join(first, protocols=(protocol("mine"), one, other))
    assert {desk.joined(token).protocol_name for token in tokens} == {"sticky"}


@pytest.mark.parametrize(
    "said",
    [
        {"protocols": (protocol("unheard-of"),)},
        {"protocols": ()},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
    ],
)
def test_a_member_that_speaks_otherwise_is_refused(said: dict) -> None:
    """Another type, no protocol, or none that the others understand."""
    desk = Desk()
    desk.stable()
    assert desk.refused(desk.join(**said)) is InconsistentGroupProtocol
    assert desk.coordinator.state(GROUP) is State.STABLE


def test_an_empty_group_takes_another_type() -> None:
    """When all have left, others of another kind may use the name."""
    desk = Desk()
    (first,) = desk.stable()
    desk.leave(first)
    assert desk.joined(desk.join(protocol_type="connect")).protocol_type == "connect"


def test_what_cannot_be_is_refused_before_anything_is_kept() -> None:
    """A bad name or session timeout leaves no trace; a stranger's id is told to come without one."""
    desk = Desk(groups_max=1)
    assert desk.refused(desk.join(group="")) is InvalidGroupName
    assert desk.refused(desk.join(group="x" * 1025)) is InvalidGroupName
    assert desk.refused(desk.join(group="a", session_timeout_ms=999)) is InvalidSessionTimeout
    assert desk.refused(desk.join(group="b", session_timeout_ms=1_800_001)) is InvalidSessionTimeout
    assert desk.refused(desk.join("stranger", group="c")) is UnknownMember
    desk.stable()
    assert desk.refused(desk.join("stranger")) is UnknownMember


def test_a_first_rebalance_can_wait_for_others() -> None:
    """With a delay those who start together gather in one generation; each newcomer extends it, up to the timeout."""
    desk = Desk(rebalance_delay_ms=3_000)
    first = desk.join()
    desk.pass_ms(2_000)
    second = desk.join()
    desk.pass_ms(2_000)
    assert desk.waits(first)
    desk.pass_ms(2_400)
    assert desk.joined(first).generation == desk.joined(second).generation == 1


def test_a_stopped_coordinator_sends_everybody_on() -> None:
    """Who waits and who asks later is told to look for the coordinator again."""
    desk = Desk()
    first, second = desk.completing(2)
    waiting = desk.sync(second, 2)
    desk.stop()
    assert desk.refused(waiting) is NotCoordinator
    assert desk.refused(desk.join()) is NotCoordinator
    assert desk.refused(desk.sync(first, 2)) is NotCoordinator
    for ask in (desk.heartbeat, desk.commit):
        with pytest.raises(NotCoordinator):
            ask(first, 2)
    with pytest.raises(NotCoordinator):
        desk.leave(first)
    assert desk.coordinator.next_tick_ms() is None


def test_a_full_group_takes_nobody_new() -> None:
    """The limit holds for new members only, and a promise that cannot be kept holds up nobody."""
    desk = Desk(members_max=1)
    promised = desk.promised()
    (first,) = desk.stable()
    assert desk.refused(desk.join()) is GroupFull
    assert desk.refused(desk.join(promised)) is GroupFull
    assert desk.joined(desk.join(first)).generation == 2
