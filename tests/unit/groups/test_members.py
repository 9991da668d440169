"""Who is a member: promised ids, static members, silence, limits, commits, and streams that are deleted."""

from __future__ import annotations

import pytest

from headwater.config import NEW_MEMBER_JOIN_MS, STALL_SAMPLE_MS
from headwater.errors import (
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from headwater.groups import State
from tests.unit.groups.desk import GROUP, Desk, protocol

# --- promised ids (KIP-394) ----------------------------------------------------------------------


def test_a_new_member_is_told_its_id_first() -> None:
    """The id is given, and only joining with it makes a member: a retry leaves nobody behind."""
    desk = Desk()
    promised = desk.promised()
    assert desk.coordinator.state(GROUP) is State.EMPTY
    assert desk.joined(desk.join(promised)).member_id == promised


def test_a_promised_member_is_waited_for_until_its_session_would_be_over() -> None:
    """A rebalance waits for who was promised an id, and no longer than it may be silent."""
    desk = Desk()
    (first,) = desk.stable()
    desk.promised(session_timeout_ms=6_000)
    newcomer = desk.join()
    again = desk.join(first)
    assert desk.waits(again)
    desk.pass_ms(6_000)
    assert desk.joined(again).generation == desk.joined(newcomer).generation == 2


def test_a_promise_ends_and_can_be_given_back() -> None:
    """An id that nobody came for, or that its client gave back by leaving, is a stranger's again."""
    desk = Desk()
    late, early = desk.promised(), desk.promised()
    assert desk.leave(early) == [None]
    desk.pass_ms(10_000)
    for name in (late, early):
        assert desk.refused(desk.join(name)) is UnknownMember


def test_a_promised_id_cannot_become_a_static_member() -> None:
    """Static members need no promise, so an id and a name together are a mistake."""
    desk = Desk()
    assert desk.refused(desk.join(desk.promised(), "name")) is UnknownMember


# --- static members (KIP-345) --------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 1])
def test_a_static_member_that_comes_back_gets_its_part_without_a_rebalance(index: int) -> None:
    """Leader or not: the new process has the old one's part, the others notice nothing, the old one is fenced."""
    desk = Desk()
    names = ["a", "b"]
    members = desk.stable(instances=names)
    back = desk.joined(desk.join(instance=names[index]))
    assert back.generation == 2
    assert back.member_id != members[index]
    assert back.skip_assignment == (index == 0)
    assert len(back.members) == (2 if index == 0 else 0)
    assert desk.synced(desk.sync(back.member_id, 2, instance=names[index])) == f"part-{index}".encode()
    desk.heartbeat(members[1 - index], 2, names[1 - index])
    with pytest.raises(FencedInstance):
        desk.heartbeat(members[index], 2, names[index])
    with pytest.raises(FencedInstance):
        desk.commit(members[index], 2, names[index])
    assert desk.refused(desk.sync(members[index], 2, instance=names[index])) is FencedInstance
    assert desk.refused(desk.join(members[index], names[index])) is FencedInstance


def test_an_older_client_that_comes_back_as_leader_does_not_believe_that_it_leads() -> None:
    """Before KIP-814 the answer names the leader's old id, so that nothing is shared out that nobody would hear of."""
    desk = Desk()
    first, _ = desk.stable(instances=["a", "b"])
    back = desk.joined(desk.join(instance="a", may_skip=False))
    assert back.leader_id == first != back.member_id
    assert not back.members
    assert not back.skip_assignment


def test_a_takeover_during_a_rebalance_fences_who_waits() -> None:
    """The old process's pending request is answered, and the new one waits in its place."""
    desk = Desk()
    first, second = desk.stable(instances=["a", "b"])
    desk.join(instance="c")
    old = desk.join(second, "b")
    new = desk.join(instance="b")
    assert desk.refused(old) is FencedInstance
    desk.join(first, "a")
    assert desk.joined(new).generation == 3
    waiting = desk.sync(desk.joined(new).member_id, 3, instance="b")
    newest = desk.join(instance="b")
    assert desk.refused(waiting) is FencedInstance
    assert desk.waits(newest)
    assert desk.coordinator.state(GROUP) is State.PREPARING


def test_a_takeover_that_changes_the_protocol_starts_a_rebalance() -> None:
    """When the group would choose another protocol now, the parts have to be shared out anew."""
    desk = Desk()
    both = (protocol("range"), protocol("sticky"))
    first = desk.joined(desk.join(instance="a", protocols=both)).member_id
    desk.sync(first, 1, {}, instance="a")
    assert desk.joined(desk.join(instance="a", protocols=both[1:])).protocol_name == "sticky"


def test_a_static_member_that_is_away_is_not_put_out_by_a_rebalance() -> None:
    """It keeps its place until its session is over, and then the others gather."""
    desk = Desk()
    first, second = desk.stable(instances=["a", "b"])
    again = desk.join(first, "a", rebalance_timeout_ms=3_000)
    newcomer = desk.join(second, "b", rebalance_timeout_ms=3_000)
    assert desk.joined(again).generation == desk.joined(newcomer).generation == 3
    desk.sync(first, 3, {first: b"x"}, instance="a")
    desk.sync(second, 3, instance="b")
    again = desk.join(first, "a", rebalance_timeout_ms=3_000)
    desk.pass_ms(3_000)
    roster = desk.joined(again).members
    assert {one.instance_id for one in roster} == {"a", "b"}


def test_an_operator_ends_a_static_member_by_its_name() -> None:
    """A leave without a member id names the instance; an unknown one is answered so."""
    desk = Desk()
    first, second = desk.stable(instances=["a", "b"])
    outcomes = desk.leave(("", "b"), ("", "nobody"), (first, "b"))
    assert outcomes[0] is None
    assert isinstance(outcomes[1], UnknownMember)
    assert isinstance(outcomes[2], UnknownMember)
    with pytest.raises(UnknownMember):
        desk.heartbeat(second, 2, "b")


# --- silence -------------------------------------------------------------------------------------


def test_a_silent_member_is_out_after_its_session_timeout() -> None:
    """Heartbeats keep a member, silence ends it, and the others gather."""
    desk = Desk()
    first, second = desk.stable(2)
    for _ in range(2):
        desk.pass_ms(4_500)
        desk.heartbeat(first, 2)
    desk.pass_ms(1_500)
    with pytest.raises(RebalanceInProgress):
        desk.heartbeat(first, 2)
    with pytest.raises(UnknownMember):
        desk.heartbeat(second, 2)


def test_a_member_that_waits_for_others_is_not_silent() -> None:
    """While the coordinator owes it an answer its session does not run."""
    desk = Desk()
    first, second = desk.stable(2)
    waiting = desk.join(first, session_timeout_ms=2_000)
    for _ in range(4):
        desk.pass_ms(5_000)
        with pytest.raises(RebalanceInProgress):
            desk.heartbeat(second, 2)
    assert desk.waits(waiting)
    desk.join(second)
    assert desk.joined(waiting).generation == 3


def test_a_first_join_does_not_wait_for_ever() -> None:
    """A new member whose client may be long gone is dropped, so that retries do not pile up."""
    desk = Desk()
    (first,) = desk.completing(instances=["a"])
    desk.sync(first, 1, {}, instance="a")
    newcomer = desk.join(rebalance_timeout_ms=1_000_000)
    spent = 0
    while desk.waits(newcomer) and spent < NEW_MEMBER_JOIN_MS + 10_000:
        with pytest.raises(RebalanceInProgress):
            desk.heartbeat(first, 1, "a")
        desk.pass_ms(5_000)
        spent += 5_000
    assert desk.refused(newcomer) is UnknownMember
    assert spent == NEW_MEMBER_JOIN_MS


def test_time_in_which_the_coordinator_was_stopped_expires_nobody() -> None:
    """After a SIGSTOP of a minute every member is still there, with the time left that it had."""
    desk = Desk()
    first, second = desk.stable(2)
    desk.pass_ms(8_000)
    desk.freeze_ms(60_000)
    desk.heartbeat(first, 2)
    desk.pass_ms(1_500)
    desk.heartbeat(second, 2)
    desk.pass_ms(8_000)
    desk.heartbeat(second, 2)
    desk.pass_ms(3_000)
    with pytest.raises(RebalanceInProgress):
        desk.heartbeat(second, 2)


def test_the_coordinator_says_when_to_be_called() -> None:
    """While a session runs it wants to see the clock often; with nobody there it sleeps."""
    desk = Desk()
    assert desk.coordinator.next_tick_ms() is None
    (first,) = desk.stable()
    assert desk.coordinator.next_tick_ms() == STALL_SAMPLE_MS
    desk.pass_ms(9_800)
    assert desk.coordinator.next_tick_ms() == 200
    desk.leave(first)
    assert desk.coordinator.next_tick_ms() is None


# --- commits -------------------------------------------------------------------------------------


def test_only_members_of_the_generation_commit() -> None:
    """Strangers, old generations and commits in between are refused, each by its own name."""
    desk = Desk()
    first, second = desk.completing(2)
    with pytest.raises(RebalanceInProgress):
        desk.commit(first, 2)
    desk.sync(first, 2, {})
    desk.commit(first, 2)
    desk.commit(second, 2)
    for who, generation, error in [
        (first, 1, IllegalGeneration),
        (first, 3, IllegalGeneration),
        ("stranger", 2, UnknownMember),
        ("", -1, UnknownMember),
        ("", 2, UnknownMember),
    ]:
        with pytest.raises(error):
            desk.commit(who, generation)


def test_without_members_anybody_commits_who_claims_no_generation() -> None:
    """A reader that manages its own partitions, or a tool; who claims a generation must be a member."""
    desk = Desk()
    desk.commit()
    with pytest.raises(UnknownMember):
        desk.commit("m", 1)
    (first,) = desk.stable()
    desk.leave(first)
    desk.commit()
    with pytest.raises(UnknownMember):
        desk.commit(first, 1)


def test_a_commit_keeps_the_session() -> None:
    """A member that commits has been heard."""
    desk = Desk()
    (first,) = desk.stable()
    for _ in range(4):
        desk.pass_ms(6_000)
        desk.commit(first, 1)


# --- streams that are deleted --------------------------------------------------------------------


def test_deleting_a_stream_sends_its_readers_back_to_joining() -> None:
    """Every member of every group that reads it, in whatever state; groups that do not read it go on."""
    desk = Desk()
    first, second = desk.stable(2)
    other = desk.joined(desk.join(group="other", protocols=(protocol(streams=("t",)),))).member_id
    desk.sync(other, 1, {}, group="other")
    desk.delete_stream("s")
    for name in (first, second):
        with pytest.raises(UnknownMember):
            desk.heartbeat(name, 2)
        with pytest.raises(UnknownMember):
            desk.commit(name, 2)
        assert desk.refused(desk.sync(name, 2)) is UnknownMember
        assert desk.refused(desk.join(name)) is UnknownMember
    desk.heartbeat(other, 1, group="other")
    assert desk.joined(desk.join()).generation > 2


def test_deleting_a_stream_answers_who_waits() -> None:
    """A member in the middle of a join or a sync hears of it at once."""
    desk = Desk()
    _, second = desk.completing(2)
    syncing = desk.sync(second, 2)
    desk.delete_stream("s")
    assert desk.refused(syncing) is UnknownMember
    desk.stable(2)
    joining = desk.join(protocols=(protocol(streams=("u",)),))
    desk.delete_stream("s")
    assert desk.refused(joining) is UnknownMember
    assert desk.coordinator.state(GROUP) is State.EMPTY


def test_a_member_that_no_longer_subscribes_is_not_sent_back() -> None:
    """What counts is the last subscription, not an earlier one."""
    desk = Desk()
    (first,) = desk.stable()
    desk.joined(desk.join(first, protocols=(protocol(streams=("t",)),)))
    desk.delete_stream("s")
    desk.heartbeat(first, 2)


# --- limits --------------------------------------------------------------------------------------


def test_empty_groups_are_forgotten_when_room_is_needed() -> None:
    """The longest empty goes first; with members in all of them a new name is refused."""
    desk = Desk(groups_max=2)
    (first,) = desk.stable()
    desk.joined(desk.join(group="b"))
    assert desk.refused(desk.join(group="c")) is GroupFull
    desk.leave(first)
    assert desk.joined(desk.join(group="c")).generation == 1
    assert desk.refused(desk.join(group="d")) is GroupFull


def test_members_are_bounded_over_all_groups() -> None:
    """Promised ids count, too: a client that never joins with them costs memory as well."""
    desk = Desk(members_total_max=2)
    desk.joined(desk.join(group="a"))
    desk.promised(group="b")
    assert desk.refused(desk.join(group="c")) is GroupFull
    assert desk.refused(desk.join(group="b", id_required=True)) is GroupFull
    desk.pass_ms(10_000)
    assert desk.refused(desk.join(group="b", id_required=True)) is MemberIdRequired


def test_a_promise_is_kept_when_all_places_are_taken() -> None:
    """The place was counted when the id was given out, so its member comes in."""
    desk = Desk(members_total_max=1)
    promised = desk.promised()
    assert desk.refused(desk.join(group="other")) is GroupFull
    assert desk.joined(desk.join(promised)).generation == 1


def test_subscriptions_and_parts_are_bounded() -> None:
    """What members send is kept, so it has a limit: over all groups, in bytes."""
    desk = Desk(bytes_max=1_400)
    assert desk.refused(desk.join(protocols=(protocol(metadata=b"x" * 1_300),))) is GroupFull
    (first,) = desk.completing()
    assert desk.refused(desk.sync(first, 1, {first: b"x" * 1_300})) is GroupFull
    assert desk.synced(desk.sync(first, 1, {first: b"x" * 100})) == b"x" * 100
    assert desk.refused(desk.join(first, protocols=(protocol(metadata=b"x" * 1_300),))) is GroupFull
