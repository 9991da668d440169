from __future__ import annotations

import asyncio
import pickle
from collections import Counter

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from pydantic import BaseModel

import headwater
from headwater import Record, Stream
from headwater.errors import GroupKindMismatch, IllegalGeneration, InvalidOption, InvalidValue, StreamNotFound
from tests.sdk.live import until


class Order(BaseModel):
    id: str


async def filled(hw, name, count=20, partitions=4):
    stream = hw.stream(Stream[str](name, partitions=partitions))
    await stream.create()
    await stream.publish_many([str(n) for n in range(count)])
    return stream


async def drain(reader, count):
    found: list[str] = []
    while len(found) < count:
        record = await reader.get(timeout="10s")
        assert record is not None, f"{len(found)} of {count} records"
        found.append(record.value)
    return found


async def test_a_new_group_begins_at_the_beginning_and_reads_everything(hw, name):
    """Every record once, in order within its partition, with its place."""
    stream = await filled(hw, name, 200)
    seen = []
    async with stream.group(name).read() as reader:
        async for record in reader:
            seen.append(record)
            if len(seen) == 200:
                break
    assert sorted(int(one.value) for one in seen) == list(range(200))
    for partition in range(4):
        offsets = [one.offset for one in seen if one.partition == partition]
        assert offsets == list(range(len(offsets)))
    assert {one.stream for one in seen} == {name}


async def test_get_gives_none_when_time_is_up(hw, name):
    """With a timeout an empty stream gives None, and the reader is as good as before."""
    stream = await filled(hw, name, 0)
    async with stream.group(name).read() as reader:
        assert await reader.get(timeout="50ms") is None
        assert await reader.get(timeout=0) is None
        await stream.publish("x")
        record = await reader.get(timeout="10s")
        assert record is not None
        assert record.value == "x"


async def test_a_record_is_done_when_the_next_is_asked_for(hw, name):
    """What was in hand when the reader ended is read again; what came before is not."""
    stream = await filled(hw, name, 5, partitions=1)
    async with stream.group(name).read() as reader:
        assert await drain(reader, 3) == ["0", "1", "2"]
    async with stream.group(name).read() as reader:
        assert await drain(reader, 3) == ["2", "3", "4"]
        assert await reader.get(timeout="100ms") is None
    async with stream.group(name).read() as reader:
        assert await reader.get(timeout="300ms") is None


async def test_automatic_commit_comes_with_its_interval(hw, name):
    """With `commit="50ms"` the cursor is there soon after the record is done, while the reader goes on."""
    stream = await filled(hw, name, 3, partitions=1)
    async with stream.group(name).read(commit="50ms") as reader:
        assert await drain(reader, 3) == ["0", "1", "2"]
        assert await reader.get(timeout="1s") is None
        async with stream.group(name).read() as second:
            assert await second.get(timeout="300ms") is None


async def test_manual_commit_is_the_programs_word(hw, name):
    """Only what was committed is done; an older commit after a newer one changes nothing."""
    stream = await filled(hw, name, 5, partitions=1)
    async with stream.group(name).read(commit="manual") as reader:
        records = [await reader.get(timeout="10s") for _ in range(4)]
        await records[2].commit()
        await records[0].commit()
    async with stream.group(name).read(commit="manual") as reader:
        assert await drain(reader, 2) == ["3", "4"]
    async with stream.group(name).read(commit="manual") as reader:
        assert await drain(reader, 2) == ["3", "4"]


async def test_groups_do_not_share(hw, name):
    """Another group gets every record again."""
    stream = await filled(hw, name, 10)
    for group in (f"{name}-a", f"{name}-b"):
        async with stream.group(group).read() as reader:
            assert len(set(await drain(reader, 10))) == 10


async def test_start_at_the_end_reads_only_what_comes(hw, name):
    """A group that begins at the end gets what is published once it has joined, also by its next member."""
    stream = await filled(hw, name, 10)
    async with stream.group(name).read(start="end") as reader:
        await stream.publish("new")
        assert await drain(reader, 1) == ["new"]
    async with stream.group(name).read(start="end") as reader:
        assert await drain(reader, 1) == ["new"]
    await stream.publish_many(["x", "y"])
    async with stream.group(name).read(start="end") as reader:
        assert sorted(await drain(reader, 3)) == ["new", "x", "y"]


async def test_members_split_the_partitions_and_nobody_reads_twice(hw, name):
    """Three members of one group read everything once between them, while they come and go."""
    stream = await filled(hw, name, 400)
    seen: Counter[str] = Counter()

    async def member(count: int) -> None:
        async with stream.group(name).read() as reader:
            for _ in range(count):
                record = await reader.get(timeout="3s")
                if record is None:
                    return
                seen[record.value] += 1
                await asyncio.sleep(0.002)
            await reader.get(timeout=0)  # the last one is done too

    async with asyncio.TaskGroup() as tasks:
        for count in (1000, 20, 1000):
            tasks.create_task(member(count))
    async with stream.group(name).read() as reader:
        while (record := await reader.get(timeout="2s")) is not None:
            seen[record.value] += 1
    assert set(seen) == {str(n) for n in range(400)}
    # A member that left handed back at most what it had in hand.
    assert sum(seen.values()) <= 402


async def test_one_reader_too_many_waits_and_takes_over(hw, name):
    """With one partition the second member idles, and reads on when the first leaves."""
    stream = await filled(hw, name, 4, partitions=1)
    async with stream.group(name).read() as first:
        assert await drain(first, 2) == ["0", "1"]
        async with stream.group(name).read() as second:
            if (record := await second.get(timeout="300ms")) is None:
                idle, busy = second, first
            else:
                assert record.value in {"0", "1", "2"}
                idle, busy = first, second
            await busy.__aexit__(None, None, None)
            record = await idle.get(timeout="20s")
            assert record is not None


async def test_a_commit_for_a_partition_that_went_away_is_refused(hw, name):
    """A member that lost its partition cannot move the cursor of the one who has it now."""
    stream = await filled(hw, name, 8, partitions=1)
    async with stream.group(name).read(commit="manual") as first:
        record = await first.get(timeout="10s")
        async with stream.group(name).read(commit="manual") as second:
            other = await second.get(timeout="2s")
            if other is None:  # the first member kept the partition: then its record is still its own
                await record.commit()
                return
            for _ in range(3):
                other = await second.get(timeout="10s")
            await other.commit()
            with pytest.raises(IllegalGeneration, match="went to another member"):
                await record.commit()


async def test_a_record_pickles_as_a_plain_record(hw, name):
    """What a reader gave can be sent to another process; who read it stays here."""
    stream = await filled(hw, name, 1)
    async with stream.group(name).read() as reader:
        record = await reader.get(timeout="10s")
    copy = pickle.loads(pickle.dumps(record))
    assert type(copy) is Record
    assert (copy.value, copy.offset, copy.timestamp) == (record.value, record.offset, record.timestamp)


async def test_a_value_that_is_not_the_model_names_its_place(hw, name):
    """A reader meets a record of another kind: stream, partition, offset, and what is wrong; asking again goes on."""
    await Stream(name, partitions=1).create()
    await Stream[bytes](name).publish_many([b'{"id": 7}', b"{", b'{"id": "good"}'])
    async with Stream[Order](name).group(name).read() as reader:
        for offset in (0, 1):
            with pytest.raises(InvalidValue, match=rf"no Order.*partition 0, offset {offset}"):
                await reader.get(timeout="10s")
        record = await reader.get(timeout="10s")
        assert record is not None
        assert record.value == Order(id="good")


async def test_reading_a_missing_stream_names_create(hw, name):
    """Both ways of reading say that the stream is not there, and make none."""
    with pytest.raises(StreamNotFound, match=r"create\(\)"):
        async with Stream(name).group(name).read():
            pass
    with pytest.raises(StreamNotFound, match=r"create\(\)"):
        await Stream(name).group(name).subscribe(print)
    assert not await hw.exists(name)


async def test_a_reader_is_used_inside_of_async_with(hw, name):
    """A reader that is not open says how to open it; options that cannot be are named."""
    stream = await filled(hw, name, 0)
    with pytest.raises(InvalidOption, match="async with"):
        await stream.group(name).read().get()
    with pytest.raises(InvalidOption, match="start is 'beginning' or 'end'"):
        stream.group(name).read(start="earliest")
    with pytest.raises(InvalidOption, match="on_lost"):
        stream.group(name).read(on_lost="ignore")
    with pytest.raises(InvalidOption, match="commit"):
        stream.group(name).read(commit="sometimes")


async def test_cancelling_a_get_loses_no_record(hw, name):
    """A wait that was cancelled while records came in gave nothing away."""
    stream = await filled(hw, name, 0, partitions=1)
    async with stream.group(name).read() as reader:
        for n in range(20):
            task = asyncio.create_task(reader.get())
            await asyncio.sleep(0) if n % 2 else await asyncio.wait({task}, timeout=0.002)
            published = asyncio.create_task(stream.publish(str(n)))
            await asyncio.wait({task, published}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
            await published
            if task.done() and not task.cancelled():
                value = (await task).value
            else:
                await asyncio.gather(task, return_exceptions=True)
                value = (await reader.get(timeout="10s")).value
            assert value == str(n)


async def test_closing_the_client_ends_its_readers(address, name):
    """A reader that waits when its client closes ends, instead of waiting for ever."""
    async with headwater.connect(address) as hw:
        stream = await filled(hw, name, 0)
        reader = stream.group(name).read()
        await reader.__aenter__()
        waiting = asyncio.create_task(reader.get())
    assert await asyncio.wait_for(waiting, 10) is None


async def test_a_reader_may_end_after_its_client(address, name):
    """A reader whose client was closed first closes without an error."""
    async with headwater.connect(address) as client:
        reader = (await filled(client, name, 1)).group(name).read()
        await reader.__aenter__()
    await reader.__aexit__(None, None, None)


def test_a_group_has_a_name_that_travels():
    """Text that the library would cut, or crash at, is refused by name."""
    for wrong in ("", "a\0b", "\ud800", 5, None):
        with pytest.raises(InvalidOption, match="cannot be called"):
            Stream("s").group(wrong)  # type: ignore[arg-type]


async def test_members_that_begin_at_the_end_at_once(hw, name):
    """Many join a new group together, while it rebalances again and again: each record from then on, once."""
    stream = await filled(hw, name, 8, partitions=8)
    seen: list[str] = []
    group = stream.group(name)
    await asyncio.gather(*(group.subscribe(seen.append, start="end") for _ in range(5)))
    await stream.publish_many([f"new-{n}" for n in range(40)])
    await until(lambda: len(seen) >= 40)
    assert sorted(seen) == sorted(f"new-{n}" for n in range(40))


class NotText(str):
    """What a careless client sends as a header's name."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff"


async def test_a_header_name_that_is_no_text_is_an_error_with_its_place(hw, address, name):
    """Read by group or without one: where it stands, and the reader goes on behind it."""
    stream = await filled(hw, name, 0, partitions=1)
    writer = KafkaProducer(bootstrap_servers=address)
    for _ in range(50):  # often enough for Python to specialise the calls
        writer.send(name, b"bad", headers=[(NotText("x"), b"1")])
    writer.send(name, b"good", headers=[("x", b"1")])
    await asyncio.to_thread(writer.close)
    async with stream.group(name).read() as reader:
        for offset in range(50):
            with pytest.raises(InvalidValue, match=rf"not UTF-8 .partition 0, offset {offset}"):
                await reader.get(timeout="10s")
        record = await reader.get(timeout="10s")
        assert record is not None
        assert record.headers == {"x": "1"}
    with pytest.raises(InvalidValue, match=r"not UTF-8 .partition 0, offset 0"):
        await anext(stream.records())


async def test_a_group_whose_members_assign_otherwise_is_an_error(hw, address, name):
    """Another client's group that shares partitions in a way of its own: said at once, with the way out."""
    stream = await filled(hw, name, 0)
    other = KafkaConsumer(
        group_id=name, bootstrap_servers=address, partition_assignment_strategy=[StickyPartitionAssignor]
    )
    try:
        await asyncio.to_thread(other.partitions_for_topic, name)  # what it learns after joining, it may miss
        other.subscribe([name])
        for _ in range(200):
            if other.assignment():
                break
            await asyncio.to_thread(other.poll, 100)
        with pytest.raises(GroupKindMismatch, match="take another name"):
            async with stream.group(name).read():
                pass
    finally:
        await asyncio.to_thread(other.close)


async def test_a_backlog_lets_other_tasks_run(hw, name):
    """A program that reads, or a handler that works, without ever waiting does not keep the loop for itself."""
    stream = await filled(hw, name, 1000, partitions=1)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(tick())
    seen: list[int] = []
    async with stream.group(name).read() as reader:
        await until(lambda: len(reader._member._ahead) == 1000)
        for _ in range(1000):
            await reader.get(timeout="10s")
            seen.append(ticks)

    async def handler(value: str) -> None:
        if value == "0":
            await until(lambda: len(subscription._member._ahead) == 999)
            seen.clear()
        seen.append(ticks)

    assert len(set(seen)) >= 1000 // 50
    subscription = await stream.group(f"{name}-2").subscribe(handler)
    await until(lambda: len(seen) == 1000)
    assert len(set(seen)) >= 1000 // 50
    other.cancel()
