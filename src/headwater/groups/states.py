"""The states of a group, and the two tables that hold them.

A group of readers agrees on who reads what in two rounds. *Preparing*: everybody joins (again), the coordinator waits
until all have, or the slowest's rebalance timeout is over; then a generation begins. *Completing*: one member, the
leader, was told who the others are; it shares out the partitions and hands the result in; everybody else asks for
their part and waits. *Stable*: all have theirs and only heartbeat, until somebody comes, goes or falls silent. The
coordinator never looks at the partitions: the members' protocol is theirs.

    Empty -> Preparing -> Completing -> Stable
               ^   |          |           |
               |   v          v           |
               | (Empty)   <----- a member came, went or changed: Preparing again

`MOVES` says which state may follow which; `move` holds it. `events.TABLE` says what an event does in a state. A pair
that is not in it is refused by name (`refusal`): a test walks all of them.
"""

from __future__ import annotations

from enum import StrEnum

from headwater.errors import HeadwaterError, ImpossibleMove, NotCoordinator, UnknownMember


class State(StrEnum):
    """Kafka's names, since tools show them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(StrEnum):
    # what members ask
    JOIN_NEW = "a new member joins"
    JOIN_AGAIN = "a member joins again"
    JOIN_TAKEOVER = "a static member comes back without its member id"
    SYNC = "a member asks for its assignment"
    HEARTBEAT = "a member says that it lives"
    COMMIT = "somebody wants to commit cursors"
    LEAVE = "members leave"
    # what time brings
    SESSION_OVER = "a member was silent for too long"
    PROMISE_OVER = "nobody came for a promised member id"
    JOIN_PHASE_OVER = "the join phase has lasted long enough"
    SYNC_PHASE_OVER = "the sync phase has lasted long enough"
    # what the house does
    STREAM_DELETED = "a stream that the group reads was deleted"
    END = "the coordinator stops, or forgets an empty group"


MOVES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY, State.DEAD}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING, State.DEAD}),
    State.DEAD: frozenset(),
}

_OF_MEMBERS = frozenset({Event.JOIN_AGAIN, Event.SYNC, Event.HEARTBEAT})


def check_move(old: State, new: State) -> None:
    if new not in MOVES[old]:
        raise ImpossibleMove(f"a group cannot go from {old} to {new}: this is a bug in the coordinator")


def refusal(state: State, event: Event) -> HeadwaterError:
    """What an event gets in a state that has no answer to it."""
    if state is State.DEAD:
        return NotCoordinator("this broker is about to stop: look for the coordinator again")
    if state is State.EMPTY and event in _OF_MEMBERS:
        return UnknownMember("the group has no members (any more): join again without a member id")
    return ImpossibleMove(f"{event}, while the group is {state}: this is a bug in the coordinator")
