"""The two tables are walked: every state reachable, every pair answered or refused by name."""

from __future__ import annotations

import pytest

from headwater.errors import HeadwaterError, ImpossibleMove, NotCoordinator, UnknownMember
from headwater.groups.events import TABLE, step
from headwater.groups.group import Group
from headwater.groups.ledger import Ledger, Limits
from headwater.groups.states import MOVES, Event, State, refusal
from tests.unit.groups.desk import GROUP, LIMITS, Desk

MEMBERS_ASK = {Event.JOIN_AGAIN, Event.SYNC, Event.HEARTBEAT}


def _group(state: State) -> tuple[Group, Ledger]:
    ledger = Ledger(Limits(**LIMITS))
    group = Group(GROUP, ledger)
    group.state = state
    return group, ledger


def test_every_state_is_reachable() -> None:
    """From Empty the moves lead to every state, and from every state to the end."""
    seen, todo = {State.EMPTY}, [State.EMPTY]
    while todo:
        fresh = MOVES[todo.pop()] - seen
        seen |= fresh
        todo.extend(fresh)
    assert seen == set(State)
    assert all(State.DEAD in MOVES[state] for state in State if state is not State.DEAD)


def test_members_walk_through_every_state() -> None:
    """What members and the house do leads through all states, not only the table on paper."""
    desk = Desk()
    walked = [desk.coordinator.state(GROUP)]
    member = desk.completing()[0]
    walked.append(desk.coordinator.state(GROUP))
    desk.sync(member, 1, {member: b"all"})
    walked.append(desk.coordinator.state(GROUP))
    desk.join()
    walked.append(desk.coordinator.state(GROUP))
    assert walked == [State.EMPTY, State.COMPLETING, State.STABLE, State.PREPARING]
    desk.stop()


@pytest.mark.parametrize("new", State)
@pytest.mark.parametrize("old", State)
def test_a_move_is_in_the_table_or_is_refused(old: State, new: State) -> None:
    """A group goes only where its table says; any other move is a bug with a name."""
    group, _ = _group(old)
    if new in MOVES[old]:
        group.move(new)
        assert group.state is new
    else:
        with pytest.raises(ImpossibleMove):
            group.move(new)
        assert group.state is old


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_a_pair_is_in_the_table_or_is_refused_by_name(state: State, event: Event) -> None:
    """An event without an answer in a state is refused: members are told what to do, bugs are called bugs."""
    if (state, event) in TABLE:
        assert state is not State.DEAD
        return
    group, ledger = _group(state)
    with pytest.raises(HeadwaterError) as caught:
        step(group, ledger, event)
    assert group.state is state
    wanted: type[HeadwaterError] = ImpossibleMove
    if state is State.DEAD:
        wanted = NotCoordinator
    elif state is State.EMPTY and event in MEMBERS_ASK:
        wanted = UnknownMember
    assert type(caught.value) is wanted is type(refusal(state, event))


def test_what_members_ask_is_never_called_a_bug() -> None:
    """Whatever a client sends in whatever state, it gets an answer that the protocol has a number for."""
    asked = MEMBERS_ASK | {Event.JOIN_NEW, Event.COMMIT, Event.LEAVE}
    for state in State:
        for event in asked:
            assert (state, event) in TABLE or type(refusal(state, event)) is not ImpossibleMove
