"""The broker is killed, at random and at named places, under real writers: what was acked is there, once and in order."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.config import Settings
from headwater.store import Store

STREAM, PARTITIONS, SECONDS = "killed", 2, 60.0
OUTSTANDING_MAX = 20_000  # the writer's queue is finite
DURABILITY = {"file_async": {}, "file_sync": {"flush.messages": "1"}}
SEGMENTS = {"segment.bytes": str(1024**2)}  # the smallest: many rolls
FAILPOINTS = ["after-write-before-ack:300", "mid-roll:2", "mid-flush:5", "mid-checkpoint:1"]


class Killable:
    """`headwater up` on one data directory, which dies and comes back at its address."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.address = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self, failpoint: str = "") -> None:
        port = self.address.rpartition(":")[2] or "0"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater", "up", "--data", str(self.data), "--port", port],
            stdout=subprocess.PIPE,
            env={**os.environ, "HEADWATER_FAILPOINT": failpoint},
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("READY"), line
        self.address = line.split()[1]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.wait_for_its_end()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.wait_for_its_end()

    def dies_before(self, writer: Writer, acked_count: int) -> bool:
        deadline = time.monotonic() + SECONDS
        while writer.acked_count < acked_count:
            assert time.monotonic() < deadline, f"{writer.acked_count} of {acked_count} acked"
            assert self.process is not None
            if self.process.poll() is not None:
                return self.wait_for_its_end() == -signal.SIGKILL
            time.sleep(0.005)
        return False

    def wait_for_its_end(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait(SECONDS)
        self.process.stdout.close()
        return code


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Killable]:
    one = Killable(tmp_path / "data")
    one.start()
    yield one
    if one.process is not None and one.process.poll() is None:
        one.kill()


class Writer(threading.Thread):
    """An idempotent producer that never stops by itself; notes what was acked."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.acked: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.failed = 0
        self.ending = threading.Event()
        self._producer = Producer({
            "bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 1, "reconnect.backoff.max.ms": 100,
            "retry.backoff.max.ms": 100, "log_level": 0,
        })  # fmt: skip

    def run(self) -> None:
        number = 0
        while not self.ending.wait(0.001):
            for _ in range(10 if number - self.acked_count < OUTSTANDING_MAX else 0):
                partition = number % PARTITIONS
                self._producer.produce(
                    STREAM, b"%d " % (number // PARTITIONS) + b"x" * 1000, partition=partition,
                    on_delivery=partial(self._note, partition, number // PARTITIONS),
                )  # fmt: skip
                number += 1
            self._producer.poll(0)
        assert self._producer.flush(SECONDS) == 0

    def _note(self, partition: int, number: int, error: Any, _: Any) -> None:
        if error is None:
            self.acked[partition].add(number)
        else:
            self.failed += 1

    @property
    def acked_count(self) -> int:
        return sum(map(len, self.acked))

    def until_acked(self, count: int) -> None:
        deadline = time.monotonic() + SECONDS
        while self.acked_count < count:
            assert time.monotonic() < deadline, f"{self.acked_count} of {count} acked"
            time.sleep(0.002)

    def finish(self) -> None:
        self.ending.set()
        self.join(2 * SECONDS)
        assert not self.is_alive()


class Reader(threading.Thread):
    """Follows the stream through all kills: what it once saw must be what is there in the end."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.changed: list[tuple[int, int]] = []
        self.ending = threading.Event()
        self._consumer = Consumer({
            "bootstrap.servers": address, "group.id": "none", "check.crcs": True, "log_level": 0,
            "enable.auto.commit": False, "reconnect.backoff.max.ms": 100, "auto.offset.reset": "error",
        })  # fmt: skip
        self._consumer.assign([TopicPartition(STREAM, one, 0) for one in range(PARTITIONS)])

    def run(self) -> None:
        while not self.ending.is_set():
            records: list[Any] = self._consumer.consume(500, 0.05)
            for record in records:
                if record.error() is None:
                    number = int(record.value().split()[0])
                    if self.seen[record.partition()].setdefault(record.offset(), number) != number:
                        self.changed.append((record.partition(), record.offset()))
        self._consumer.close()

    def until_at(self, ends: list[int]) -> None:
        deadline = time.monotonic() + SECONDS
        while [len(one) for one in self.seen] < ends:
            assert time.monotonic() < deadline, f"{[len(one) for one in self.seen]} of {ends} read"
            time.sleep(0.005)
        self.ending.set()
        self.join(SECONDS)


def create(address: str, name: str, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)])[name].result(SECONDS)


def judge(broker: Killable, writer: Writer, reader: Reader) -> None:
    """Nothing acked is lost, nothing is doubled, all is in order; and the log says of itself that it is whole."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "none", "log_level": 0})
    ends = [consumer.get_watermark_offsets(TopicPartition(STREAM, one), timeout=30)[1] for one in range(PARTITIONS)]
    consumer.close()
    reader.until_at(ends)
    assert not reader.changed
    assert not writer.failed
    for partition in range(PARTITIONS):
        numbers = [reader.seen[partition][offset] for offset in range(ends[partition])]
        assert not writer.acked[partition] - set(numbers), "lost"
        assert numbers == list(range(len(numbers))), "doubled, or out of order"
    broker.stop()
    store = Store.open(Settings(data=str(broker.data)))
    with contextlib.closing(store):
        entry = store.stream(STREAM)
        assert entry is not None
        for index in range(PARTITIONS):
            assert store.partition((entry.id, index)).check() == []  # type: ignore[arg-type]


@pytest.mark.parametrize("durability", DURABILITY)
@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.long)])
def test_killed_at_random_moments_nothing_acked_is_lost(broker: Killable, durability: str, kills: int) -> None:
    """One writer and one reader live through all of it."""
    seed = int(os.environ.get("SEED") or time.time_ns() % 1_000_000)
    sys.stdout.write(f"SEED={seed}\n")  # to run it again as it was
    moments = random.Random(seed)
    create(broker.address, STREAM, DURABILITY[durability] | SEGMENTS)
    writer, reader = Writer(broker.address), Reader(broker.address)
    writer.start()
    reader.start()
    for _ in range(kills):
        writer.until_acked(writer.acked_count + moments.randint(1, 2000))
        broker.kill()
        broker.start()
    writer.until_acked(writer.acked_count + 500)
    writer.finish()
    judge(broker, writer, reader)


@pytest.mark.parametrize("durability", DURABILITY)
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_killed_at_a_named_place_nothing_acked_is_lost(broker: Killable, durability: str, failpoint: str) -> None:
    """The broker itself ends there, and comes back without being asked twice."""
    create(broker.address, STREAM, DURABILITY[durability] | SEGMENTS)
    broker.stop()
    broker.start(failpoint)
    writer, reader = Writer(broker.address), Reader(broker.address)
    writer.start()
    reader.start()
    if failpoint.startswith("mid-checkpoint"):
        writer.until_acked(2000)
        assert broker.process is not None
        broker.process.terminate()  # a clean stop writes the checkpoints
    assert broker.wait_for_its_end() == -signal.SIGKILL
    broker.start()
    writer.until_acked(writer.acked_count + 500)
    writer.finish()
    judge(broker, writer, reader)


@pytest.mark.parametrize("durability", DURABILITY)
def test_killed_during_recovery_again_and_again_the_result_is_the_same(broker: Killable, durability: str) -> None:
    """As if it had recovered at once."""
    create(broker.address, STREAM, DURABILITY[durability] | SEGMENTS)
    writer, reader = Writer(broker.address), Reader(broker.address)
    writer.start()
    reader.start()
    writer.until_acked(3000)
    broker.kill()
    deaths = 0
    broker.start("mid-recovery:1")
    while broker.dies_before(writer, writer.acked_count + 500):  # each attempt gets a little further than the last
        deaths += 1
        broker.start("mid-recovery:1")
    assert deaths >= 2
    broker.kill()
    broker.start()
    writer.until_acked(writer.acked_count + 500)
    writer.finish()
    judge(broker, writer, reader)


@pytest.mark.parametrize("failpoint", ["mid-delete:1", "between-log-and-meta:1"])
def test_killed_in_the_middle_of_a_delete_the_stream_is_gone_after_the_next_start(
    broker: Killable, failpoint: str
) -> None:
    """With its files; and its name is free."""
    create(broker.address, STREAM, {})
    writer = Writer(broker.address)
    writer.start()
    writer.until_acked(500)
    writer.finish()
    broker.stop()
    broker.start(failpoint)
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.delete_topics([STREAM], request_timeout=5)
    assert broker.wait_for_its_end() == -signal.SIGKILL
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.address})
    assert STREAM not in admin.list_topics(timeout=30).topics
    create(broker.address, STREAM, {})
    with pytest.raises(KafkaException):
        create(broker.address, STREAM, {})
    broker.stop()
    assert not [path for path in (broker.data / "streams").rglob("*.log") if path.is_file()]
