"""confluent-kafka (librdkafka) and kafka-python write, read, divide and find their way as they do with Kafka."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition as PythonPartition
from kafka.errors import RebalanceInProgressError

from bench.raw_client import Raw, codec
from headwater.batch import Codec, parse

Create = Callable[..., None]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VALUES = [b"value %d " % number + b"x" * 100 for number in range(200)]
SECONDS = 30.0


def publish_librdkafka(address: str, name: str, values: Iterable[bytes], **config: Any) -> None:
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, **config})
    for number, value in enumerate(values):
        producer.produce(
            name, value, key=b"key %d" % number, headers=[("h", b"%d" % number), ("none", None)], timestamp=1_000 + number,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    assert not failed


def publish_python(address: str, name: str, values: Iterable[bytes], **config: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=address, linger_ms=5, **config)
    sent = [
        producer.send(
            name, value, key=b"key %d" % number, headers=[("h", b"%d" % number)], timestamp_ms=1_000 + number
        )
        for number, value in enumerate(values)
    ]  # fmt: skip
    for future in sent:
        future.get(SECONDS)
    producer.close()


def read_librdkafka(address: str, name: str, count: int, *, partitions: Sequence[int] = (0,)) -> list[Any]:
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "none", "check.crcs": True, "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(name, one, 0) for one in partitions])
    records: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        for record in consumer.consume(count - len(records), 0.5):
            assert record.error() is None
            records.append(record)
    consumer.close()
    return records


def read_python(address: str, name: str, count: int) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=address, check_crcs=True, enable_auto_commit=False, group_id=None)
    consumer.assign([PythonPartition(name, 0)])
    consumer.seek_to_beginning()
    records: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        for some in consumer.poll(500).values():
            records += some
    consumer.close()
    return records


def codecs_in_the_log(address: str, name: str) -> set[int]:
    """As the server keeps them, by the headers of its batches."""
    module = codec("fetch")
    part = module.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    topic = module.FetchTopic(topic=name, partitions=[part])
    with Raw(address) as raw:
        answer = raw.ask("fetch", 12, max_wait_ms=100, min_bytes=1, max_bytes=1 << 24, topics=[topic])
    view, found, at = memoryview(bytes(answer.responses[0].partitions[0].records)), set(), 0
    while at < len(view):
        batch = parse(view, at)
        found.add(batch.codec)
        at += batch.length
    return found


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("publish", [publish_librdkafka, publish_python])
def test_every_compression_is_kept_and_read_by_both(address, name, create: Create, publish, compression):
    """Keys, values, headers and times come back as they were; the codec in the log is the writer's."""
    create(name)
    if publish is publish_librdkafka:
        publish(address, name, VALUES, **{"compression.type": compression})
    else:
        publish(address, name, VALUES, compression_type=None if compression == "none" else compression)
    assert codecs_in_the_log(address, name) == {Codec[compression.upper()]}
    found = read_librdkafka(address, name, len(VALUES))
    assert [one.value() for one in found] == VALUES
    assert [one.offset() for one in found] == list(range(len(VALUES)))
    assert [one.key() for one in found[:2]] == [b"key 0", b"key 1"]
    headers = [("h", b"7"), ("none", None)] if publish is publish_librdkafka else [("h", b"7")]  # the other has no None
    assert found[7].headers() == headers
    assert [one.timestamp()[1] for one in found] == [1_000 + number for number in range(len(VALUES))]
    again = read_python(address, name, len(VALUES))
    assert [one.value for one in again] == VALUES
    assert list(again[7].headers) == headers
    assert [one.timestamp for one in again[:2]] == [1_000, 1_001]


def test_idempotent_writers_write_once(address, name, create: Create):
    """Each with an id of its own."""
    create(name)
    publish_librdkafka(address, name, VALUES, **{"enable.idempotence": True})
    publish_python(address, name, VALUES, enable_idempotence=True)
    assert [one.value() for one in read_librdkafka(address, name, 2 * len(VALUES))] == VALUES + VALUES


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_each_level_of_acks_delivers(address, name, create: Create, acks):
    """With 0 too, while nothing goes wrong."""
    create(name)
    publish_librdkafka(address, name, VALUES, acks=acks)
    assert len(read_librdkafka(address, name, len(VALUES))) == len(VALUES)


def test_values_may_be_nothing(address, name, create: Create):
    """A tombstone stays one, and an empty value empty."""
    create(name)
    producer = Producer({"bootstrap.servers": address})
    producer.produce(name, None, key=b"gone")
    producer.produce(name, b"", key=b"")
    producer.flush(SECONDS)
    assert [(one.key(), one.value()) for one in read_librdkafka(address, name, 2)] == [(b"gone", None), (b"", b"")]


def test_a_record_that_is_too_large_is_refused_by_its_stream(address, name, create: Create):
    """MSG_SIZE_TOO_LARGE, with the stream's own limit; smaller ones pass."""
    create(name, max_message_bytes="10000")
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": address})
    for size in (9_000, 20_000):
        producer.produce(name, b"x" * size, on_delivery=lambda error, _: errors.append(error))
        producer.flush(SECONDS)
    assert [error and error.code() for error in errors] == [None, KafkaError.MSG_SIZE_TOO_LARGE]


def test_large_records_pass_through(address, name, create: Create):
    """Close to Kafka's limit, more than one fetch of them."""
    create(name)
    values = [bytes([number]) * 900_000 for number in range(12)]
    publish_librdkafka(address, name, values, **{"message.max.bytes": 1_000_000})
    assert [one.value() for one in read_librdkafka(address, name, 12)] == values


def test_offsets_are_found_by_time_and_at_the_ends(address, name, create: Create):
    """By both clients; beyond the last record there is none."""
    create(name)
    publish_librdkafka(address, name, VALUES, **{"batch.num.messages": 10})
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none"})
    assert consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=SECONDS) == (0, 200)
    asked = [(1_000, 0), (1_117, 117), (0, 0), (5_000, -1)]
    for time_ms, offset in asked:
        found = consumer.offsets_for_times([TopicPartition(name, 0, time_ms)], timeout=SECONDS)
        assert found[0].offset == offset
    consumer.close()
    python = KafkaConsumer(bootstrap_servers=address)
    place = PythonPartition(name, 0)
    assert python.offsets_for_times({place: 1_117})[place].offset == 117
    assert python.offsets_for_times({place: 5_000})[place] is None
    assert (python.beginning_offsets([place])[place], python.end_offsets([place])[place]) == (0, 200)
    python.close()


def test_an_offset_out_of_range_is_an_error_that_the_client_shows(address, name, create: Create):
    """With auto.offset.reset=error; otherwise it would begin again by itself."""
    create(name)
    publish_librdkafka(address, name, VALUES[:5])
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(name, 0, 1_000)])
    record: Any = consumer.poll(SECONDS)
    assert record.error().code() == KafkaError._AUTO_OFFSET_RESET
    consumer.close()


def test_streams_are_created_described_and_deleted(address, name):
    """With the errors that Kafka gives for what cannot be."""
    admin = AdminClient({"bootstrap.servers": address})

    def creating(topic: NewTopic) -> int | None:
        try:
            admin.create_topics([topic])[topic.topic].result(SECONDS)
        except KafkaException as why:
            return int(why.args[0].code())
        return None

    assert creating(NewTopic(name, 3, 1, config={"flush.messages": "1"})) is None
    assert creating(NewTopic(name, 3, 1)) == KafkaError.TOPIC_ALREADY_EXISTS
    assert creating(NewTopic("not a name", 3, 1)) == KafkaError.TOPIC_EXCEPTION
    assert creating(NewTopic(name + "-a", 3, 3)) == KafkaError.INVALID_REPLICATION_FACTOR
    assert creating(NewTopic(name + "-b", 0, 1)) == KafkaError.INVALID_PARTITIONS
    assert creating(NewTopic(name + "-c", 1, 1, config={"no.such": "1"})) == KafkaError.INVALID_CONFIG
    assert creating(NewTopic(name + "-d", 1, 1, config={"segment.bytes": "x"})) == KafkaError.INVALID_CONFIG
    assert len(admin.list_topics(name, timeout=SECONDS).topics[name].partitions) == 3
    resource = ConfigResource(ResourceType.TOPIC, name)
    described = admin.describe_configs([resource])[resource].result(SECONDS)
    assert described["flush.messages"].value == "1"
    assert not described["flush.messages"].is_default
    assert described["cleanup.policy"].value == "delete"
    cluster = admin.describe_cluster().result(SECONDS)
    assert [(node.id, f"{node.host}:{node.port}") for node in cluster.nodes] == [(1, address)]
    admin.delete_topics([name])[name].result(SECONDS)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        admin.delete_topics([name])[name].result(SECONDS)


@pytest.mark.only_headwater("Kafka has transactions")
def test_a_transactional_writer_is_told_to_stop(address, name, create: Create):
    """By a fatal error, not by asking again for ever."""
    create(name)
    producer = Producer({"bootstrap.servers": address, "transactional.id": name})
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(10)
    assert not raised.value.args[0].retriable()


class Member:
    """A member of a group, of either client, that notes what it reads."""

    def __init__(self, address: str, name: str, group: str, *, python: bool) -> None:
        self.records: list[tuple[int, int]] = []
        self._python = python
        if python:
            self.consumer: Any = KafkaConsumer(
                name, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", session_timeout_ms=6000,
                heartbeat_interval_ms=500, enable_auto_commit=False,
            )  # fmt: skip
        else:
            self.consumer = Consumer({
                "bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "enable.auto.commit": False,
                "partition.assignment.strategy": "range",
            })  # fmt: skip
            self.consumer.subscribe([name])

    def poll(self) -> None:
        """Reads a little, and commits it."""
        if self._python:
            for some in self.consumer.poll(50).values():
                self.records += [(one.partition, one.offset) for one in some]
            if self.records:
                with contextlib.suppress(RebalanceInProgressError):  # the next commit, or the next owner, has them
                    self.consumer.commit()
            return
        for record in self.consumer.consume(100, 0.05):
            if record.error() is None:
                self.records.append((record.partition(), record.offset()))
        if self.records and self.consumer.assignment():
            try:
                self.consumer.commit(asynchronous=False)
            except KafkaException as why:
                assert why.args[0].code() in {
                    KafkaError._NO_OFFSET, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION,
                }  # fmt: skip

    @property
    def share(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def leave(self) -> None:
        self.consumer.close()


@pytest.mark.parametrize("python", [False, True], ids=["librdkafka", "kafka-python"])
def test_members_come_and_go_and_every_record_is_read(address, name, create: Create, python):
    """The partitions are divided among who is there, and what was committed is not read again by the next ones."""
    create(name, 4)
    writer = Producer({"bootstrap.servers": address})

    def write(count: int) -> None:
        for number in range(count):
            writer.produce(name, b"%d" % number, partition=number % 4)
        assert writer.flush(SECONDS) == 0

    def until(members: list[Member], met: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not met():
            assert time.monotonic() < deadline, f"{what}: {[one.share for one in members]}"
            for one in members:
                one.poll()

    def divided(members: list[Member]) -> bool:
        shares = [one.share for one in members]
        return all(shares) and set.union(*shares) == {0, 1, 2, 3} and sum(map(len, shares)) == 4

    write(400)
    first, second = (Member(address, name, name, python=python) for _ in range(2))
    until([first, second], lambda: divided([first, second]), "two members divide the partitions")
    until([first, second], lambda: len(set(first.records + second.records)) == 400, "all is read")
    first.leave()
    write(400)
    until([second], lambda: divided([second]), "who stays takes all")
    until([second], lambda: len(set(first.records + second.records)) == 800, "what came meanwhile is read")
    second.leave()
    write(4)
    third = Member(address, name, name, python=python)
    until([third], lambda: len(third.records) >= 4, "the next member goes on")
    assert sorted(third.records) == [(partition, 200) for partition in range(4)]
    third.leave()
