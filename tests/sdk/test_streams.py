from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import headwater
from headwater import Stream
from headwater.errors import InvalidConfig, InvalidReplicationFactor, StreamDiffers, StreamNotFound


async def test_a_stream_has_four_partitions_unless_it_says_otherwise(hw, name):
    """A bare stream is made with the server's default, which is four partitions."""
    await Stream(name).create()
    described = await hw.describe(name)
    assert [one.index for one in described.partitions] == [0, 1, 2, 3]
    assert described.record_count == 0
    assert described.persistence == "file_async"
    assert len(bytes.fromhex(described.id)) == 16


async def test_creating_twice_is_fine(hw, name):
    """A stream that exists as the program wrote it is simply there."""
    stream = Stream(name, partitions=2, persistence="file_sync", config={"segment.bytes": 2097152})
    assert await stream.create() is stream
    await stream.create()
    described = await stream.describe()
    assert len(described.partitions) == 2
    assert described.persistence == "file_sync"
    assert described.configs["segment.bytes"] == "2097152"


async def test_programs_that_create_at_once_all_succeed(hw, name):
    """Of several that create the same stream at the same time each finds it made."""
    await asyncio.gather(*(Stream(name, partitions=3).create() for _ in range(5)))
    assert len((await hw.describe(name)).partitions) == 3


async def test_a_difference_is_named(hw, name):
    """Each option that differs is named with what is there and what the program says."""
    await Stream(name, partitions=2).create()
    with pytest.raises(StreamDiffers, match=r"partitions=2 where the program says 3.*persistence='file_async'"):
        await Stream(name, partitions=3, persistence="file_sync").create()
    with pytest.raises(StreamDiffers, match=r"segment.bytes='\d+' where the program says '2097152'"):
        await Stream(name, config={"segment.bytes": 2097152}).create()


async def test_what_is_not_written_is_not_compared(hw, name):
    """A bare declaration fits any stream."""
    await Stream(name, partitions=3, persistence="file_sync").create()
    await Stream(name).create()
    await Stream(name, replication_factor=1).create()


async def test_more_replicas_than_brokers_is_explained(hw, name):
    """Three replicas on one broker: what is needed, what is there, what to do."""
    with pytest.raises(
        InvalidReplicationFactor,
        match="replication_factor=3 needs 3 brokers, this server has 1: leave it out, or connect to a cluster",
    ):
        await Stream(name, replication_factor=3).create()


async def test_an_unknown_config_is_refused_by_the_server(hw, name):
    """A topic config that the server does not know is an error with its name, and makes no stream."""
    with pytest.raises(InvalidConfig, match=r"no.such.config"):
        await Stream(name, config={"no.such.config": 1}).create()
    assert not await hw.exists(name)


async def test_exists_describe_and_list_ask_and_never_create(hw, name):
    """Looking for a stream does not make it, also where the server would create one by itself."""
    stream = Stream(name)
    assert not await stream.exists()
    with pytest.raises(StreamNotFound, match="create"):
        await stream.describe()
    assert name not in await hw.streams()
    await stream.create()
    assert await stream.exists()
    assert name in await hw.streams()


async def test_deleting_twice_is_fine(hw, name):
    """A deleted stream is gone when `delete` returns; deleting it again is no error."""
    stream = Stream(name)
    await stream.create()
    await stream.publish(1)
    await stream.delete()
    assert not await stream.exists()
    await stream.delete()
    await hw.delete(name)


async def test_a_stream_made_again_is_another_one(hw, name):
    """Delete and create: the same name, another id, no records, and publishing goes on."""
    stream = Stream[bytes](name, partitions=1)
    await stream.create()
    await stream.publish(b"old")
    before = await stream.describe()
    await stream.delete()
    await stream.create()
    receipt = await stream.publish(b"new")
    after = await stream.describe()
    assert receipt.offset == 0
    assert before.id != after.id
    assert after.record_count == 1


@pytest.mark.only_headwater("Kafka does not say when a topic was created")
async def test_describe_knows_when_it_was_created(hw, name):
    """Created and updated are times in UTC."""
    await Stream(name).create()
    described = await hw.describe(name)
    assert described.created is not None
    assert described.updated is not None
    assert abs(datetime.now(UTC) - described.created) < timedelta(seconds=30)


async def test_declared_and_bound_in_one_step(hw, name):
    """`hw.stream` declares by name, or binds what is declared."""
    await hw.stream(name, partitions=1).create()
    bound = hw.stream(Stream[str](name))
    assert (await bound.publish("x")).partition == 0
    assert isinstance(await hw.describe(bound), headwater.StreamDescription)
