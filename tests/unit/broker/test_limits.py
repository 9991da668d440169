"""Memory of all connections is bounded, and given in the order of asking."""

from headwater.broker.limits import Arena, Budget
from headwater.config import ARENA_BYTES, RECEIVE_BYTES


def test_who_asks_for_more_than_there_is_waits_and_is_served_in_order():
    """A small request does not overtake a large one that waits, else the large one would wait for ever."""
    budget, served = Budget(100), []
    assert budget.take(80, lambda: None)
    assert not budget.take(50, lambda: served.append("large"))
    assert not budget.take(10, lambda: served.append("small"))
    budget.give(80)
    assert served == ["large", "small"]
    assert budget.taken == 60


def test_one_that_is_larger_than_everything_is_let_in_alone():
    """A limit that is set too low slows down, and stops nobody."""
    budget, served = Budget(100), []
    assert budget.take(500, lambda: None)
    assert not budget.take(1, lambda: served.append("next"))
    budget.give(500)
    assert served == ["next"]


def test_who_is_gone_is_forgotten():
    """Its bytes are not granted to nobody."""
    budget, served = Budget(10), []

    def gone() -> None:
        served.append("gone")

    budget.take(10, lambda: None)
    budget.take(5, gone)
    budget.take(3, lambda: served.append("here"))
    budget.forget(gone)
    budget.give(10)
    assert served == ["here"]
    assert budget.taken == 3


def test_what_exists_already_is_counted_at_once():
    """An answer that its client does not take holds others back."""
    budget = Budget(10)
    budget.give(-8)
    assert budget.taken == 8
    assert not budget.take(5, lambda: None)


def test_the_arena_never_hands_out_the_same_bytes_twice_in_a_turn():
    """And hands them out again after it."""
    arena = Arena()
    rooms = []
    for number in range(3 * ARENA_BYTES // RECEIVE_BYTES):
        room = arena.room()
        assert len(room) == RECEIVE_BYTES
        room[:] = bytes([number]) * RECEIVE_BYTES
        arena.took(RECEIVE_BYTES)
        rooms.append(room)
    assert [room[0] for room in rooms] == [room[-1] for room in rooms] == list(range(len(rooms)))
    arena.reset()
    assert arena.used_bytes == 0
