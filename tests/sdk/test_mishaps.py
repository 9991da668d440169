from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import headwater
from headwater import HeadwaterError, Stream
from headwater.errors import IllegalGeneration, OutOfOrderSequence, RecordsLost
from tests.sdk.live import TARGET, start, until


async def filled(hw, name, count, partitions=1):
    stream = hw.stream(Stream[str](name, partitions=partitions))
    await stream.create()
    await stream.publish_many([str(n) for n in range(count)])
    return stream


async def test_a_reader_waits_for_its_deleted_stream_and_goes_on(hw, name, caplog):
    """Deleted under a live reader: said once, and when it is created again the reader begins at its beginning."""
    stream = await filled(hw, name, 5)
    with caplog.at_level(logging.WARNING, logger="headwater"):
        async with stream.group(name).read() as reader:
            for _ in range(5):
                assert await reader.get(timeout="10s")
            await stream.delete()
            assert await reader.get(timeout="2s") is None
            await stream.create()
            await stream.publish_many(["new-0", "new-1"])
            assert [(await reader.get(timeout="20s")).value for _ in range(2)] == ["new-0", "new-1"]
    said = [one.message for one in caplog.records if "was deleted" in one.message]
    assert len(said) <= 1, said


async def test_no_old_commit_reaches_a_stream_made_again(hw, name):
    """Deleted and made again at once: a live member reads all of the new one, its old cursor reaches it nowhere."""
    stream = await filled(hw, name, 50)
    async with stream.group(name).read(commit="manual") as reader:
        old = [await reader.get(timeout="10s") for _ in range(50)][-1]
        await old.commit()
        await stream.delete()
        await stream.create()
        await stream.publish_many([f"new-{n}" for n in range(5)])
        seen = [(await reader.get(timeout="20s")).value for _ in range(5)]
        assert seen == [f"new-{n}" for n in range(5)]
        with pytest.raises(IllegalGeneration, match="its records are read again"):
            await old.commit()
    async with stream.group(name).read(commit="manual") as reader:
        assert (await reader.get(timeout="10s")).value == "new-0"


async def test_a_subscription_outlives_its_streams_deletion(hw, name):
    """The handler gets the records of the stream that was made again."""
    stream = await filled(hw, name, 3)
    seen: list[str] = []
    await stream.group(name).subscribe(seen.append)
    await until(lambda: len(seen) == 3)
    await stream.delete()
    await stream.create()
    await stream.publish("new")
    await until(lambda: seen[3:] == ["new"])


async def test_a_cursor_beyond_the_log_is_an_error(address, hw, name):
    """A group that stands where the log has nothing: an error that names the place, and nothing skipped in silence."""
    stream = await filled(hw, name, 5)
    await commit_plainly(address, name, 100)
    with pytest.raises(RecordsLost, match=r"stands at offset 100 of partition 0.*0 to 5.*on_lost"):
        async with stream.group(name).read() as reader:
            await reader.get(timeout="20s")


async def test_with_on_lost_skip_reading_goes_on_and_counts(address, hw, name):
    """With on_lost="skip" the reader goes on at the nearest offset that is there."""
    stream = await filled(hw, name, 5)
    await commit_plainly(address, name, 100)
    async with stream.group(name).read(on_lost="skip") as reader:
        asked = asyncio.create_task(reader.get(timeout="20s"))
        while not asked.done():
            await stream.publish("later")
            await asyncio.sleep(0.05)
        assert (await asked).value == "later"
        assert reader.skipped == 0


async def test_records_that_retention_took_are_counted(address, hw, name):
    """A prefix that is gone while the group was away: an error, or counted and skipped."""
    if TARGET == "headwater":
        pytest.skip("only Kafka takes a prefix away when it is asked to: DeleteRecords is not served by ours")
    stream = await filled(hw, name, 5)
    async with stream.group(name).read(commit="manual") as reader:
        await (await reader.get(timeout="10s")).commit()
    await delete_records(address, name, 4)
    with pytest.raises(RecordsLost, match=r"stands at offset 1 of partition 0.*4 to 5"):
        async with stream.group(name).read() as reader:
            await reader.get(timeout="20s")
    async with stream.group(name).read(on_lost="skip") as reader:
        assert (await reader.get(timeout="20s")).value == "4"
        assert reader.skipped == 3


@pytest.mark.only_headwater("it sets a data directory back, as a power cut does, by copying files of ours")
async def test_publishing_outlives_a_log_that_lost_records(tmp_path):
    """After a power cut took acknowledged records one publish fails, at once and in words; then it goes on."""
    data, earlier = tmp_path / "data", tmp_path / "earlier"
    first = start("headwater", data)
    port = first.address.split(":")[1]
    async with headwater.connect(first.address) as hw:
        stream = await filled(hw, "s", 2)
        await asyncio.to_thread(first.end)
        await asyncio.to_thread(shutil.copytree, data, earlier)
        second = start("headwater", data, "--port", port)
        for value in "abc":
            await stream.publish(value)
        second.kill()
        third = start("headwater", earlier, "--port", port)
        try:
            async with asyncio.timeout(20):
                failures = [await outcome(stream.publish(str(n))) for n in range(5)]
                assert failures[-1] is None
                assert [type(one) for one in failures if one is not None] == [OutOfOrderSequence]
                assert (await stream.describe()).record_count == 2 + failures.count(None)
        finally:
            await asyncio.to_thread(third.end)


async def outcome(publishing: Awaitable[object]) -> Exception | None:
    try:
        await publishing
    except HeadwaterError as error:
        return error
    return None


async def commit_plainly(address: str, name: str, offset: int) -> None:
    """A cursor set from outside, as an operator's tool would."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    admin = AdminClient({"bootstrap.servers": address})
    asked = ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0, offset)])
    await asyncio.wrap_future(admin.alter_consumer_group_offsets([asked])[name])


async def delete_records(address: str, name: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    place = TopicPartition(name, 0, before)
    await asyncio.wrap_future(admin.delete_records([place])[place])
