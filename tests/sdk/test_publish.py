from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

import headwater
from headwater import Key, Outgoing, Stream, murmur2
from headwater.errors import (
    InvalidOption,
    InvalidStreamName,
    InvalidValue,
    PublishFailed,
    RecordTooLarge,
    StreamNotFound,
)


class Order(BaseModel):
    id: Key[str]
    total: float = 0.0


class Other(BaseModel):
    id: str


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    user_id: str = Field(alias="userId")


async def everything(stream, count):
    """The first `count` records of a stream, read by a group of their own."""
    found: list[Any] = []
    async with stream.group(f"{stream.name}-everything").read() as reader:
        while len(found) < count:
            record = await reader.get(timeout="10s")
            assert record is not None, f"{len(found)} of {count}"
            found.append(record)
    return found


async def test_a_receipt_says_where_the_record_stands(hw, name):
    """Partition, offset and time of the record, as a reader will see them."""
    stream = Stream[Order](name, partitions=1)
    await stream.create()
    first = await stream.publish(Order(id="1"))
    second = await stream.publish(Order(id="2"))
    assert (first.partition, first.offset, second.offset) == (0, 0, 1)
    assert abs(datetime.now(UTC) - first.timestamp) < timedelta(seconds=30)
    record = (await everything(stream, 2))[0]
    assert record.timestamp == first.timestamp


async def test_key_headers_and_timestamp_arrive_as_they_were_sent(hw, name):
    """Text and bytes, none and repeated headers: what was sent is what is read."""
    stream = Stream[bytes](name, partitions=1)
    await stream.create()
    when = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
    pairs = [("a", "1"), ("b", None), ("a", b"\xff")]
    await stream.publish(b"v", key=b"\xffk", headers=pairs, timestamp=when)
    await stream.publish(b"v", key="ü", headers={"source": "checkout"})
    await stream.publish(b"")
    raw, text, bare = await everything(stream, 3)
    assert raw.key_bytes == b"\xffk"
    assert raw.headers.raw == [("a", b"1"), ("b", None), ("a", b"\xff")]
    assert raw.timestamp == when
    assert (text.key, text.headers["source"]) == ("ü", "checkout")
    assert (bare.key, bare.value, dict(bare.headers)) == (None, b"", {})


async def test_one_key_one_partition_as_java_hashes(hw, name):
    """The partition of a key is Kafka's murmur2, so every client with that hash agrees."""
    stream = Stream[str](name, partitions=5)
    await stream.create()
    for key in ("u1", "order_123", "", "ü"):
        receipts = [await stream.publish("x", key=key) for _ in range(2)]
        assert {one.partition for one in receipts} == {murmur2(key) % 5}


async def test_without_a_key_partitions_take_turns(hw, name):
    """Four single publishes touch four partitions, whatever the program does in between."""
    stream = Stream[str](name)
    await stream.create()
    assert {(await stream.publish("x")).partition for _ in range(4)} == {0, 1, 2, 3}


async def test_the_models_key_is_the_records_key(hw, name):
    """A field marked `Key` gives the record's key, unless the program says another."""
    stream = Stream[Order](name, partitions=1)
    await stream.create()
    await stream.publish(Order(id="o-1"))
    await stream.publish({"id": "o-2"})
    await stream.publish(Order(id="o-3"), key="mine")
    assert [one.key for one in await everything(stream, 3)] == ["o-1", "o-2", "mine"]


async def test_an_own_function_decides_the_partition(hw, name):
    """`partition_function` gets the value; a partition that is not there is an error."""
    stream = Stream[Order](name, partitions=3, partition_function=lambda order: int(order.total))
    await stream.create()
    assert (await stream.publish(Order(id="a", total=2))).partition == 2
    with pytest.raises(InvalidOption, match="gave 3, and there are partitions 0 to 2"):
        await stream.publish(Order(id="a", total=3))


async def test_json_is_by_alias_both_ways(hw, name):
    """On the wire stands the alias; a reader gets the model back."""
    await Stream[Aliased](name, partitions=1).create()
    await Stream[Aliased](name).publish(Aliased(userId="u1"))
    assert (await everything(Stream[dict](name), 1))[0].value == {"userId": "u1"}


async def test_many_come_back_in_their_order(hw, name):
    """Receipts of publish_many stand in the order of the values, bare or with a key."""
    stream = Stream[Order](name)
    await stream.create()
    receipts = await stream.publish_many([Outgoing(Order(id=str(n)), key=f"k{n % 7}") for n in range(500)])
    for n, receipt in enumerate(receipts):
        assert receipt.partition == murmur2(f"k{n % 7}") % 4
    records = {(one.partition, one.offset): one.value.id for one in await everything(stream, 500)}
    assert [records[one.partition, one.offset] for one in receipts] == [str(n) for n in range(500)]
    assert await stream.publish_many([]) == []


async def test_one_wrong_value_and_none_is_sent(hw, name):
    """Values are validated before the first is sent."""
    stream = Stream[Order](name)
    await stream.create()
    with pytest.raises(InvalidValue, match="Order"):
        await stream.publish_many([Order(id="1"), {"id": 7}])
    assert (await stream.describe()).record_count == 0


async def test_many_with_one_too_large_say_what_was_written(hw, name):
    """A record that the server refuses is one error, which lists those that were written."""
    stream = Stream[bytes](name, partitions=1)
    await stream.create()
    with pytest.raises(PublishFailed, match=r"1 of 3 records were not acknowledged.*#0 at 0:0") as caught:
        await stream.publish_many([b"a", b"x" * 2_000_000, b"b"])
    assert [one is not None for one in caught.value.receipts] == [True, False, True]
    with pytest.raises(RecordTooLarge, match=r"max.message.bytes .it has 2000000 bytes, \d+ are allowed"):
        await stream.publish(b"x" * 2_000_000)
    assert (await stream.publish(b"c")).offset == 2


async def test_what_the_model_refuses_is_not_published(hw, name):
    """An instance of another model, a wrong dict, a broken instance, a number that JSON lacks."""
    stream = Stream[Order](name)
    await stream.create()
    broken = Order(id="1")
    broken.total = "no number"  # type: ignore[assignment]
    wrong: tuple[Any, ...] = (Other(id="1"), {"id": 3}, broken, Order(id="1", total=float("nan")), 5, b"{}")
    for value in wrong:
        with pytest.raises(InvalidValue, match=name):
            await stream.publish(value)
    assert (await stream.describe()).record_count == 0


async def test_a_stream_without_a_model_takes_json_only(hw, name):
    """What is not JSON raises and names Stream[bytes]; NaN is not JSON."""
    stream = Stream(name, partitions=1)
    await stream.create()
    wrong: tuple[Any, ...] = (b"raw", {"at": datetime.now(UTC)}, {1, 2}, float("inf"))
    for value in wrong:
        with pytest.raises(InvalidValue, match=r"Stream\[bytes\]"):
            await stream.publish(value)
    values: list[Any] = [{"a": [1, None, "ü"]}, None, "text", 1.5, []]
    for value in values:
        await stream.publish(value)
    assert [one.value for one in await everything(stream, 5)] == values


async def test_a_missing_stream_is_named_and_not_made(hw, name):
    """Publishing to what is not there names create(), also on servers that create by themselves."""
    for _ in range(2):
        with pytest.raises(StreamNotFound, match=r"create\(\)"):
            await Stream(name).publish(1)
    assert not await hw.exists(name)


async def test_publishing_outlives_delete_and_create(address, hw, name):
    """A publisher whose stream another client deletes says so, and goes on when it is made again."""
    stream = hw.stream(Stream[str](name, partitions=3))
    await stream.create()
    await stream.publish("a")
    async with headwater.connect(address) as other:
        await other.delete(name)
        with pytest.raises(StreamNotFound):
            for _ in range(100):
                await stream.publish("b")
        await other.stream(Stream[str](name, partitions=1)).create()
        assert (await stream.publish("c")).partition == 0


async def test_a_full_queue_waits_and_keeps_the_order(address, name):
    """More records than the queue takes: publishers wait in a row, nothing is lost, the order stands."""
    async with headwater.connect(address, kafka={"queue.buffering.max.messages": 10}) as hw:
        stream = hw.stream(Stream[str](name, partitions=1))
        await stream.create()
        receipts = await asyncio.gather(*(stream.publish(str(n)) for n in range(500)))
        assert [one.offset for one in receipts] == list(range(500))


async def test_closing_waits_for_what_is_under_way(address, name):
    """A program that forgot to await its publishes loses none of them by leaving the client."""
    async with headwater.connect(address) as hw:
        stream = hw.stream(Stream[str](name, partitions=1))
        await stream.create()
        await stream.publish("0")
        pending = [asyncio.create_task(stream.publish(str(n))) for n in range(1, 100)]
        await asyncio.wait(pending, timeout=0)  # each has begun
    assert sorted([one.offset for one in await asyncio.gather(*pending)]) == list(range(1, 100))


async def test_cancelling_forgets_the_wait_not_the_write(hw, name):
    """A publish that was given up on is in the log all the same, and later ones are not disturbed."""
    stream = Stream[str](name, partitions=1)
    await stream.create()
    await stream.publish("0")
    task = asyncio.create_task(stream.publish("1"))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    assert (await stream.publish("2")).offset == 2


async def test_arguments_that_cannot_travel_are_refused_in_words(hw, name):
    """Keys, headers, times and functions of the wrong kind: an error of ours each, and nothing is published."""
    stream = await Stream(name, partitions=1).create()
    wrong: tuple[dict[str, Any], ...] = (
        {"key": 5}, {"key": "\ud800"}, {"headers": 5}, {"headers": [1]}, {"headers": {"a": 5}}, {"headers": {"a": "\ud800"}},
        {"headers": {"\udcff": "the library would crash"}}, {"headers": {"a\0b": "the library would cut it"}},
        {"timestamp": "now"}, {"timestamp": datetime(1969, 1, 1, tzinfo=UTC)},
    )  # fmt: skip
    for given in wrong:
        with pytest.raises(InvalidValue, match=name):
            await stream.publish({}, **given)
    with pytest.raises(InvalidValue, match="several values"):
        await stream.publish_many(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="partition_function raised KeyError"):
        await Stream(name, partition_function=lambda value: value["no such"]).publish({})
    assert (await stream.describe()).record_count == 0


async def test_names_that_cannot_be_are_refused_in_words(hw):
    """The client's own verbs check a name as the declaration does."""
    verbs: tuple[Any, ...] = (hw.exists, hw.describe, hw.delete)
    for verb in verbs:
        for wrong in ("", "a b", "x" * 300, 5, None):
            with pytest.raises(InvalidStreamName):
                await verb(wrong)
