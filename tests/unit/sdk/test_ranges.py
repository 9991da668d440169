"""Bounded reads of one partition, and what is said of a log that is not what it was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in its __all__

from headwater import testing
from headwater.errors import ConnectionFailed, RecordsLost, StreamNotFound
from headwater.model import Cursor, Epoch, Offset
from headwater.sdk.ranges import Polled, RangeAdmin, Standing, probe, read_range

Client = dict[str, Any]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with testing.broker() as server:
        yield {"bootstrap.servers": server.address}


@pytest.fixture
def stream(client: Client) -> str:
    name = f"ranges-{uuid4().hex[:8]}"
    create(client, name)
    return name


def create(client: Client, name: str) -> None:
    admin = AdminClient(client)
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(10)


def publish(client: Client, stream: str, first: int, count: int) -> None:
    producer = Producer({**client, "linger.ms": 5})
    for number in range(first, first + count):
        headers: Any = [("n", str(number).encode()), ("none", None)] if number % 2 else None
        producer.produce(
            stream, f"v{number}".encode(), f"k{number}".encode(), 0, timestamp=1000 + number, headers=headers
        )
    assert producer.flush(10) == 0


def read(client: Client, stream: str, start: int, end: int, epoch: int = -1) -> list[Polled]:
    return [one for polled in read_range(client, stream, 0, start, end, epoch, stall_seconds=5) for one in polled]


def test_a_range_is_exactly_its_offsets(client: Client, stream: str) -> None:
    """Half-open, whatever lies behind its end, with all that a record carries."""
    publish(client, stream, 0, 500)
    found = read(client, stream, 100, 203)
    assert [one.offset for one in found] == list(range(100, 203))
    one = found[1]
    assert (one.key, one.value, one.timestamp_ms) == (b"k101", b"v101", 1101)
    assert one.headers == (("n", b"101"), ("none", None))
    assert found[0].headers == ()
    assert read(client, stream, 7, 7) == []


def test_the_end_of_the_log_is_not_waited_for(client: Client, stream: str) -> None:
    """A range up to the log's end returns at once: fewer records remain than a whole chunk."""
    publish(client, stream, 0, 30)
    begun = time.monotonic()
    assert len(read(client, stream, 0, 30)) == 30
    assert time.monotonic() - begun < 3


def test_a_range_beyond_the_log_is_lost_records(client: Client, stream: str) -> None:
    """Neither an endless wait nor a silent jump: the log ends before the range does, or before it begins."""
    publish(client, stream, 0, 10)
    with pytest.raises(RecordsLost):
        list(read_range(client, stream, 0, 5, 20, stall_seconds=0.3))
    with pytest.raises(RecordsLost):
        list(read_range(client, stream, 0, 15, 20, stall_seconds=0.3))


def test_a_stream_that_is_not_there_is_named(client: Client) -> None:
    """librdkafka says nothing at all of such a stream."""
    with pytest.raises(StreamNotFound, match="nobody"):
        list(read_range(client, "nobody", 0, 0, 5, stall_seconds=0.3))
    with pytest.raises(StreamNotFound):
        RangeAdmin(client).ends([("nobody", 0)])


def test_a_server_that_is_away_is_an_error_within_the_limit(stream: str) -> None:
    """Nobody at the address: a short error, no wait for ever."""
    with pytest.raises(ConnectionFailed):
        RangeAdmin({"bootstrap.servers": "127.0.0.1:1"}, answer_seconds=0.5).ends([(stream, 0)])


def test_streams_are_known_by_id_partitions_and_offsets(client: Client, stream: str) -> None:
    """A stream created again under its name has another id; one that is not there is left out."""
    publish(client, stream, 0, 5)
    admin = RangeAdmin(client)
    facts = admin.streams([stream, "nobody"])
    assert list(facts) == [stream]
    assert facts[stream].partitions == 2
    assert facts[stream].id_is_known
    assert len(bytes.fromhex(facts[stream].stream_id)) == 16
    places = [(stream, 0), (stream, 1)]
    assert admin.ends(places) == {(stream, 0): 5, (stream, 1): 0}
    assert admin.starts(places) == {(stream, 0): 0, (stream, 1): 0}
    deleting = AdminClient(client)
    deleting.delete_topics([stream])[stream].result(10)
    create(client, stream)
    assert admin.streams([stream])[stream].stream_id != facts[stream].stream_id


def test_a_log_that_holds_what_was_read_is_whole(client: Client, stream: str) -> None:
    """At its end and before it; the epoch comes from the records."""
    publish(client, stream, 0, 50)
    epoch = read(client, stream, 49, 50)[0].epoch
    assert probe(client, stream, 0, 50, epoch) == Standing(kind="whole", offset=50)
    assert probe(client, stream, 0, 20, epoch) == Standing(kind="whole", offset=20)


def test_a_log_that_is_shorter_was_cut(client: Client, stream: str) -> None:
    """Where it ends now is where to read on; reading from behind the cut is an error, not a jump."""
    publish(client, stream, 0, 50)
    epoch = read(client, stream, 49, 50)[0].epoch
    assert probe(client, stream, 0, 80, epoch) == Standing(kind="cut", offset=50)
    with pytest.raises(RecordsLost):
        list(read_range(client, stream, 0, 80, 90, epoch, stall_seconds=1))


def test_cursors_are_told_for_the_stream_they_belong_to(client: Client, stream: str) -> None:
    """A group without members gets them, with their epoch; not when the stream is another one by now."""
    publish(client, stream, 0, 9)
    admin = RangeAdmin(client)
    group, stream_id = f"headwater.table.headwater.{stream}", admin.streams([stream])[stream].stream_id
    assert admin.commit_cursors(group, stream, stream_id, {0: Cursor(offset=Offset(7), epoch=Epoch(0))})
    assert not admin.commit_cursors(group, stream, "0" * 32, {0: Cursor(offset=Offset(9), epoch=Epoch(0))})
    asking = AdminClient(client)
    (found,) = (
        asking.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(10).topic_partitions
    )
    assert (found.topic, found.partition, found.offset) == (stream, 0, 7)


def test_cursors_are_told_after_the_server_came_back(tmp_path: Path) -> None:
    """A server that restarted under its address takes the next cursors at once, over the same connection object."""
    with testing.broker(data=str(tmp_path)) as server:
        client = {"bootstrap.servers": server.address}
        create(client, "back")
        admin = RangeAdmin(client, 5.0)
        stream_id = admin.streams(["back"])["back"].stream_id
        assert admin.commit_cursors("g", "back", stream_id, {0: Cursor(offset=Offset(0), epoch=Epoch(0))})
        port = server.port
    for _ in range(2):
        with testing.broker(data=str(tmp_path), port=port):
            for _ in range(2):
                assert admin.commit_cursors("g", "back", stream_id, {0: Cursor(offset=Offset(0), epoch=Epoch(0))})


def test_a_range_given_up_lets_its_connection_go(client: Client, stream: str) -> None:
    """A task that fails in the middle of a range leaves nothing open."""
    publish(client, stream, 0, 50)
    with closing(read_range(client, stream, 0, 0, 50)) as reading:
        assert next(reading)
