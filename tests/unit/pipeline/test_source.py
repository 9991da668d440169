"""What the range source decides: which streams are due, how far a batch goes, how ranges become tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headwater.config import LAND_DUE_RECORDS, LAND_DUE_SECONDS, LAND_RANGE_RECORDS_MAX
from headwater.errors import InvalidOption
from headwater.pipeline.source import Due, Range, RangeReader, RangeSource, SourcePlan, pack

PLAN = SourcePlan(
    client={"bootstrap.servers": "nowhere:1"},
    stream_ids={"b": "0" * 32, "a": "1" * 32},
    positions={"b": {"10": 5, "2": 7}, "a": {"0": 0}},
    cores=2,
)

ranges = st.lists(
    st.builds(
        lambda partition, start, count: Range("s", partition, start, start + count),
        st.integers(0, 99), st.integers(0, 1000), st.integers(1, 10_000),
    ),
    max_size=60,
)  # fmt: skip


def test_a_plan_survives_its_way_as_text() -> None:
    """What the driver plans is what the planner process gets."""
    assert SourcePlan.from_json(PLAN.to_json()) == PLAN


def test_client_options_that_cannot_travel_are_refused() -> None:
    """A callback of librdkafka lives in one process; Spark has several."""
    with pytest.raises(InvalidOption, match="Spark's processes"):
        replace(PLAN, client={"error_cb": print}).to_json()


def test_offsets_have_one_spelling() -> None:
    """Streams by name, partitions by number: Spark compares offsets as text to see whether there is news."""
    first = RangeReader(PLAN).initialOffset()
    assert list(first) == ["a", "b"]
    assert list(first["b"]) == ["2", "10"]


@given(ranges, st.integers(1, 8))
def test_packing_keeps_every_range_once(given_ranges: list[Range], bins: int) -> None:
    """All ranges are in some task, none in two, and no more tasks than allowed."""
    packed = pack(given_ranges, bins)
    assert sorted(one for task in packed for one in task) == sorted(given_ranges)
    assert len(packed) <= bins
    assert all(packed)


@given(ranges, st.integers(1, 8))
def test_packing_is_even(given_ranges: list[Range], bins: int) -> None:
    """No task has more than the fair share plus the longest range."""
    weights = [sum(one.end - one.start for one in task) for task in pack(given_ranges, bins)]
    total = sum(one.end - one.start for one in given_ranges)
    longest = max((one.end - one.start for one in given_ranges), default=0)
    assert max(weights, default=0) <= total / max(1, len(weights)) + longest


def test_partitions_are_only_what_moved() -> None:
    """A partition that stands still makes no range, and fifty streams make no more tasks than two per core."""
    reader = RangeReader(PLAN)
    tasks = reader.partitions({"a": {"0": 3, "1": 4}}, {"a": {"0": 3, "1": 9}})
    assert [one for task in tasks for one in task.value] == [Range("a", 1, 4, 9)]
    many = {f"s{number}": {str(index): 10 for index in range(4)} for number in range(50)}
    tasks = reader.partitions({}, many)
    assert len(tasks) == 4
    assert sum(len(task.value) for task in tasks) == 200


def test_a_task_reads_its_ranges_as_rows() -> None:
    """The source yields ranges, never records."""
    reader = RangeSource({"plan": PLAN.to_json()}).streamReader(None)
    (task,) = reader.partitions({}, {"a": {"0": 9}})
    assert list(reader.read(task)) == [("a", 0, 0, 9)]


def test_a_few_records_wait_for_company_and_no_longer() -> None:
    """A stream with few new records is due after a second, one with many at once, one without any never."""
    due = Due()
    start = {"few": {"0": 0}, "many": {"0": 0}, "none": {"0": 5}}
    ends = {"few": {"0": 1}, "many": {"0": LAND_DUE_RECORDS}, "none": {"0": 5}}
    assert due.streams(start, ends, 100.0) == {"many"}
    assert due.streams(start, ends, 100.0 + LAND_DUE_SECONDS / 2) == {"many"}
    assert due.streams(start, ends, 100.0 + LAND_DUE_SECONDS) == {"few", "many"}
    assert due.streams(start, ends, 100.1 + LAND_DUE_SECONDS) == {"many"}


def test_draining_goes_in_bounded_steps_to_where_it_began() -> None:
    """A run that drains takes a bounded number of offsets at a time, and never goes beyond the end it found first."""
    reader = RangeReader(PLAN)
    target = {"a": {"0": LAND_RANGE_RECORDS_MAX + 10}, "b": {"2": 7, "10": 5}}
    reader._until = target
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(LAND_RANGE_RECORDS_MAX)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first["a"] == {"0": LAND_RANGE_RECORDS_MAX}
    second = reader.latestOffset(first, limit)
    assert second == target
    assert reader.latestOffset(second, limit) == second
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == target
