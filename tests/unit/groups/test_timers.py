"""Timers and the clock that stands still while nobody looks at it."""

from __future__ import annotations

from hypothesis import given, strategies as st

from headwater.config import STALL_MS
from headwater.groups.states import Event
from headwater.groups.timers import Clock, Timer, Timers
from tests.unit.groups.desk import GROUP


def _timer(name: str = "") -> Timer:
    return Timer(Event.SESSION_OVER, GROUP, name)


def test_a_timer_fires_once_and_not_before_its_time() -> None:
    """An armed timer comes due at its moment, once."""
    timers, timer = Timers(), _timer()
    timers.arm(timer, 10)
    assert timers.due(9) is None
    assert timers.due(10) is timer
    assert timers.due(1_000) is None
    assert timers.next() is None


def test_a_timer_can_be_moved_both_ways() -> None:
    """The last word counts, earlier or later, and a cancelled timer stays silent."""
    timers, timer = Timers(), _timer()
    timers.arm(timer, 100)
    timers.arm(timer, 200)
    assert timers.due(150) is None
    timers.arm(timer, 160)
    assert timers.due(160) is timer
    timers.arm(timer, 300)
    timers.cancel(timer)
    assert timers.due(1_000) is None


def test_moving_a_timer_later_costs_no_memory() -> None:
    """A hundred thousand heartbeats leave one entry."""
    timers, timer = Timers(), _timer()
    for at in range(100_000):
        timers.arm(timer, at)
    assert len(timers) == 1


def test_cancelled_timers_do_not_pile_up() -> None:
    """Members that come and go leave no entries behind, long before their time."""
    timers = Timers()
    for at in range(10_000):
        timer = _timer()
        timers.arm(timer, 1_000_000 + at)
        timers.arm(timer, 500_000 + at)
        timers.cancel(timer)
    assert len(timers) < 1_000


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 50)), max_size=200))
def test_timers_agree_with_a_plain_table(moves: list[tuple[int, int]]) -> None:
    """Armed, moved, cancelled in any order: what is due is what a plain table says (hypothesis)."""
    timers, all_of_them = Timers(), [_timer(str(index)) for index in range(5)]
    table: dict[int, int] = {}
    for now, (index, at) in enumerate(moves):
        if at < 0:
            timers.cancel(all_of_them[index])
            table.pop(index, None)
        else:
            timers.arm(all_of_them[index], at + now)
            table[index] = at + now
        fired = set()
        while (timer := timers.due(now)) is not None:
            fired.add(int(timer.member_id))
        assert fired == {index for index, when in table.items() if when <= now}
        table = {index: when for index, when in table.items() if when > now}
        upcoming = timers.next()
        assert (upcoming is None) == (not table)
        assert upcoming is None or upcoming <= min(table.values())


def test_the_clock_does_not_count_what_it_did_not_see() -> None:
    """A stall longer than the limit does not pass; shorter gaps do."""
    clock = Clock()
    start = clock.read(5_000)
    assert clock.read(5_000 + STALL_MS) == start + STALL_MS
    assert clock.read(65_000) == start + STALL_MS
    assert clock.read(65_100) == start + STALL_MS + 100


def test_the_clock_never_goes_back() -> None:
    """An earlier reading than the last counts as no time at all."""
    clock = Clock()
    first = clock.read(1_000)
    assert clock.read(900) == first
    assert clock.read(1_010) == first + 10
