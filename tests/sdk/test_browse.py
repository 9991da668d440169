"""Reading without a group: `stream.records()`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import headwater
from headwater.errors import InvalidOption, InvalidValue, StreamNotFound
from headwater.sdk.declare.stream import Stream
from tests.sdk.live import until


async def made(hw: headwater.Client, name: str, values: int, partitions: int = 2) -> Stream[int]:
    stream = await hw.stream(Stream[int](name, partitions=partitions)).create()
    await stream.publish_many(range(values))
    return stream


async def test_from_the_beginning_by_partition_and_offset(hw: headwater.Client, name: str) -> None:
    """Every record once, partition after partition, in the order of their offsets; then it ends."""
    stream = await made(hw, name, 100)
    seen = [one async for one in stream.records()]
    assert sorted(one.value for one in seen) == list(range(100))
    assert [(one.partition, one.offset) for one in seen] == [(p, offset) for p in (0, 1) for offset in range(50)]


async def test_it_ends_where_the_stream_ended(hw: headwater.Client, name: str) -> None:
    """Without follow, what is published meanwhile is not waited for."""
    stream = await made(hw, name, 10, partitions=1)
    seen: list[int] = []
    async for one in stream.records():
        if not seen:
            await stream.publish(99)
        seen.append(one.value)
    assert seen == list(range(10))
    assert [one async for one in stream.records(start="end")] == []


async def test_the_end_and_what_comes(hw: headwater.Client, name: str) -> None:
    """From the end with follow: nothing old, and each new record as it comes."""
    stream = await made(hw, name, 10)
    seen: list[Any] = []

    async def follow() -> None:
        async for one in stream.records(start="end", follow=True):
            seen.append(one.value)  # noqa: PERF401  watched while it grows

    following = asyncio.create_task(follow())
    fresh = iter(range(1000, 1_000_000))
    while not seen:  # until it stands at the end, what is published may lie before it
        await stream.publish(next(fresh))
        await asyncio.sleep(0.02)
    assert min(seen) >= 1000
    await stream.publish_many([1, 2, 3])
    await until(lambda: {1, 2, 3} <= set(seen))
    following.cancel()
    await asyncio.wait({following})


async def test_everything_and_then_what_comes(hw: headwater.Client, name: str) -> None:
    """From the beginning with follow: the old records, then the new ones, in order within a partition."""
    stream = await made(hw, name, 5, partitions=1)
    seen = []
    async for one in stream.records(follow=True):
        seen.append(one.offset)
        if len(seen) == 5:
            await stream.publish_many([5, 6])
        if len(seen) == 7:
            break
    assert seen == list(range(7))


async def test_cancelling_lets_the_server_go(hw: headwater.Client, name: str) -> None:
    """A browse that waits ends when its task is cancelled, and its client goes on."""
    stream = await made(hw, name, 1)
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def follow() -> None:
        async for one in stream.records(follow=True):
            first.set_result(one.value)

    following = asyncio.create_task(follow())
    assert await first == 0
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(following, 5)
    assert [one.value async for one in stream.records()] == [0]  # and the client goes on


async def test_an_empty_stream(hw: headwater.Client, name: str) -> None:
    """A stream without records has none to show, from either end."""
    stream = await hw.stream(Stream[int](name)).create()
    assert [one async for one in stream.records()] == []
    assert [one async for one in stream.records(start="end")] == []


@pytest.mark.parametrize("follow", [False, True])
async def test_a_stream_that_is_not_there(hw: headwater.Client, name: str, follow: bool) -> None:
    """A missing stream is an error that names `create()`, at the first record that is asked for."""
    with pytest.raises(StreamNotFound, match="create"):
        await anext(hw.stream(Stream[int](name)).records(follow=follow))


async def test_a_start_that_cannot_be(hw: headwater.Client, name: str) -> None:
    """Anything but the two words is refused by name."""
    with pytest.raises(InvalidOption, match="middle"):
        await anext(hw.stream(Stream[int](name)).records(start="middle"))  # type: ignore[arg-type]


async def test_records_carry_all_that_was_published(hw: headwater.Client, name: str) -> None:
    """Key, headers and time come back as they went in; a value that the model refuses is an error with its place."""
    stream = await hw.stream(Stream[bytes](name, partitions=1)).create()
    receipt = await stream.publish(b'"no number"', key="k", headers={"a": "1"})
    [one] = [one async for one in stream.records()]
    assert (one.key, one.headers["a"], one.timestamp, one.stream) == ("k", "1", receipt.timestamp, name)
    with pytest.raises(InvalidValue, match=f"{name}"):
        await anext(hw.stream(Stream[int](name)).records())


async def test_browsing_moves_no_cursor(hw: headwater.Client, name: str) -> None:
    """A group that begins after a browse still reads everything."""
    stream = await made(hw, name, 4)
    assert len([one async for one in stream.records()]) == 4
    async with stream.group("after").read() as reader:
        assert [(await reader.get(timeout="10s")) is not None for _ in range(4)] == [True] * 4
