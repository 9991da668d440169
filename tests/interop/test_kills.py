"""A server is killed in the middle and comes back: clients find it again by themselves, and nothing acked is lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer

from tests.interop.conftest import Victim
from tests.interop.test_clients import read_librdkafka

SECONDS = 60.0
OUTSTANDING_MAX = 20_000  # a client's queue is finite, and a server may take a while to come back

Client = tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]  # begin -> send, hear of acks, flush


class Writer(threading.Thread):
    """Publishes numbered records until it is told to end; notes which were acked."""

    def __init__(self, begin: Callable[[], Any], hear: Callable[[], Any], pause: float) -> None:
        super().__init__(daemon=True)
        self._begin, self._hear, self._pause = begin, hear, pause
        self.acked: set[bytes] = set()
        self.failed: set[bytes] = set()
        self.sent_count = 0
        self.ending = threading.Event()

    def run(self) -> None:
        send = self._begin()
        while not self.ending.wait(self._pause):
            self._hear()
            for _ in range(20 if self.sent_count - len(self.acked) < OUTSTANDING_MAX else 0):
                value = b"%d" % self.sent_count
                self.sent_count += 1
                send(value, lambda acked, value=value: (self.acked if acked else self.failed).add(value))

    def acked_more_than(self, count: int) -> None:
        deadline = time.monotonic() + SECONDS
        while len(self.acked) <= count:
            assert time.monotonic() < deadline, f"{len(self.acked)} acked, {len(self.failed)} failed"
            time.sleep(0.01)


def librdkafka(address: str, name: str, **config: Any) -> Client:
    producer = Producer({
        "bootstrap.servers": address, "acks": "all", "message.timeout.ms": 60_000, "reconnect.backoff.max.ms": 200,
        "retry.backoff.max.ms": 200, "linger.ms": 1, **config,
    })  # fmt: skip

    def begin() -> Any:
        def send(value: bytes, done: Callable[[bool], None]) -> None:
            producer.produce(name, value, on_delivery=lambda error, _: done(error is None))

        return send

    return begin, lambda: producer.poll(0), lambda: producer.flush(SECONDS)


def python(address: str, name: str, **config: Any) -> Client:
    producer = KafkaProducer(
        bootstrap_servers=address, acks="all", retries=1000, linger_ms=1, reconnect_backoff_max_ms=200,
        retry_backoff_ms=50, max_block_ms=60_000, **config,
    )  # fmt: skip

    def begin() -> Any:
        def send(value: bytes, done: Callable[[bool], None]) -> None:
            future = producer.send(name, value)
            future.add_callback(lambda _: done(True))
            future.add_errback(lambda _: done(False))

        return send

    return begin, lambda: None, lambda: producer.flush(SECONDS)


@pytest.mark.parametrize(
    ("client", "config", "exactly"),
    [
        (librdkafka, {"enable.idempotence": True}, True),
        (librdkafka, {}, False),
        (python, {"enable_idempotence": True}, True),
        (python, {"enable_idempotence": False}, False),
    ],
    ids=["librdkafka-idempotent", "librdkafka-plain", "kafka-python-idempotent", "kafka-python-plain"],
)
def test_nothing_acked_is_lost_when_the_server_is_killed(victim: Victim, name, create, client, config, exactly):
    """Twice, under writes. Idempotent writers: nothing doubled either. The same client goes on afterwards."""
    create(name, at=victim.address)
    begin, hear, flush = client(victim.address, name, **config)
    writer = Writer(begin, hear, 0.002)
    writer.start()
    for _ in range(2):
        writer.acked_more_than(len(writer.acked) + 500)
        victim.kill()
        victim.come_back()
        writer.acked_more_than(len(writer.acked) + 200)
    writer.ending.set()
    writer.join(SECONDS)
    flush()
    assert len(writer.acked) + len(writer.failed) == writer.sent_count
    found = [one.value() for one in read_all(victim.address, name, len(writer.acked))]
    counts = Counter(found)
    assert not writer.acked - counts.keys(), "lost"
    if exactly:
        assert max(counts.values()) == 1, "doubled"
        assert found == sorted(found, key=int), "out of order"


def read_all(address: str, name: str, at_least: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none"})
    _, end = consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=30)
    consumer.close()
    assert end >= at_least
    return read_librdkafka(address, name, end)


def test_a_reader_goes_on_where_it_was_when_the_server_comes_back(victim: Victim, name, create):
    """From its committed cursor: nothing that was committed is read again, and nothing is left out."""
    create(name, at=victim.address)
    producer = Producer({"bootstrap.servers": victim.address, "reconnect.backoff.max.ms": 200})
    consumer = Consumer({
        "bootstrap.servers": victim.address, "group.id": name, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "reconnect.backoff.max.ms": 200, "session.timeout.ms": 6000,
    })  # fmt: skip
    consumer.subscribe([name])
    committed = 0
    for turn in range(3):
        for number in range(100):
            producer.produce(name, b"%d" % (turn * 100 + number))
        assert producer.flush(SECONDS) == 0
        read: set[int] = set()
        deadline = time.monotonic() + SECONDS
        while committed < (turn + 1) * 100:
            assert time.monotonic() < deadline, f"{committed} committed"
            record: Any = consumer.poll(0.2)
            if record is not None and record.error() is None:
                read.add(record.offset())
            if len(read) == 100:
                committed = _commit(consumer) or committed
        assert read == set(range(turn * 100, turn * 100 + 100))
        if turn < 2:
            victim.kill()
            victim.come_back()
    consumer.close()


def _commit(consumer: Consumer) -> int | None:
    """The offset that is committed now; None while the member has yet to find out that it must join again."""
    try:
        return int(consumer.commit(asynchronous=False)[0].offset)
    except KafkaException as why:
        assert why.args[0].code() in {
            KafkaError.UNKNOWN_MEMBER_ID, KafkaError._NO_OFFSET, KafkaError.REBALANCE_IN_PROGRESS,
            KafkaError.ILLEGAL_GENERATION,
        }, why  # fmt: skip
        return None
