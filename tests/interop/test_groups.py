"""Groups of real clients: static members, killed ones, mixed ones, many at once, and a stream that goes and comes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)  # fmt: skip
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from tests.interop.conftest import Victim

Create = Callable[..., None]
SECONDS = 60.0
RETRIED = {
    KafkaError._NO_OFFSET, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._ASSIGNMENT_LOST, KafkaError._WAIT_COORD, KafkaError._STATE,
}  # fmt: skip
READER = """
import sys
from confluent_kafka import Consumer
address, name = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": address, "group.id": name, "auto.offset.reset": "earliest",
    "session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "partition.assignment.strategy": "range"})
consumer.subscribe([name])
while True:
    record = consumer.poll(1.0)
    if record is not None and record.error() is None:
        print(record.partition(), record.offset(), flush=True)
"""


class Reader:
    """A librdkafka member that notes what it reads, and how often its partitions changed."""

    def __init__(self, address: str, name: str, *, instance: str = "", **config: Any) -> None:
        self.records: list[tuple[Any, Any]] = []
        self.values: list[Any] = []
        self.changes = 0
        self.fatal: KafkaError | None = None
        if instance:
            config["group.instance.id"] = instance
        self.consumer = Consumer({
            "bootstrap.servers": address, "group.id": name, "auto.offset.reset": "earliest", "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300, "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 500,
            "partition.assignment.strategy": "range", "reconnect.backoff.max.ms": 200, **config,
        })  # fmt: skip
        self.consumer.subscribe([name], on_assign=self._changed, on_revoke=self._changed, on_lost=self._changed)

    def _changed(self, *_: object) -> None:
        self.changes += 1

    def poll(self, *, commit: bool = True) -> None:
        fresh = 0
        for record in self.consumer.consume(200, 0.05):
            error = record.error()
            if error is not None and error.code() == KafkaError._FATAL:
                self.fatal = error
            if error is None:
                fresh += 1
                self.records.append((record.partition(), record.offset()))
                self.values.append(record.value())
        if commit and fresh:
            self.commit()

    def commit(self) -> KafkaError | None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as why:
            error: KafkaError = why.args[0]
            assert error.code() in RETRIED, why
            return error
        return None

    @property
    def share(self) -> set[int]:
        return set() if self.fatal else {one.partition for one in self.consumer.assignment()}

    def vanish(self) -> None:
        """Ends without leaving its group, as static members do when they are restarted."""
        self.consumer.close()


def write(address: str, name: str, count: int, partitions: int = 4, *, mark: bytes = b"") -> None:
    writer = Producer({"bootstrap.servers": address})
    for number in range(count):
        writer.produce(name, mark + b"%d" % number, partition=number % partitions)
    assert writer.flush(SECONDS) == 0


def until(members: Iterable[Any], met: Callable[[], Any], what: str, *, seconds: float = SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := met()):
        assert time.monotonic() < deadline, f"{what}: {[sorted(one.share) for one in members]}"
        for one in members:
            one.poll()
    return found


def divided(*members: Any, partitions: int = 4) -> bool:
    shares = [one.share for one in members]
    return all(shares) and set.union(*shares) == set(range(partitions)) and sum(map(len, shares)) == partitions


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_each_way_of_dividing_works(address, name, create: Create, strategy):
    """Three members come one by one and one goes: each time the partitions are divided among those who are there."""
    create(name, 6)
    write(address, name, 600, 6)
    members: list[Reader] = []
    for count in (1, 2, 3):
        members.append(Reader(address, name, **{"partition.assignment.strategy": strategy}))
        until(members, lambda: divided(*members, partitions=6), f"{count} members")
    until(members, lambda: len({one for each in members for one in each.records}) == 600, "all is read")
    members.pop(0).consumer.close()
    until(members, lambda: divided(*members, partitions=6), "two are left")
    for one in members:
        one.consumer.close()


class PythonReader:
    def __init__(self, address: str, name: str) -> None:
        self.consumer = KafkaConsumer(
            name, bootstrap_servers=address, group_id=name, auto_offset_reset="earliest", session_timeout_ms=6000,
            heartbeat_interval_ms=300, enable_auto_commit=False,
        )  # fmt: skip
        self.records: list[tuple[int, int]] = []

    def poll(self) -> None:
        found = self.consumer.poll(50)
        self.records += [(one.partition, one.offset) for some in found.values() for one in some]
        if found:
            self.consumer.commit()

    @property
    def share(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}


def test_clients_of_two_kinds_share_one_group(address, name, create: Create):
    """librdkafka and kafka-python understand each other's subscriptions and assignments."""
    create(name, 4)
    write(address, name, 400)
    one, other = Reader(address, name), PythonReader(address, name)
    until([one, other], lambda: divided(one, other), "both have a share")
    until([one, other], lambda: len(set(one.records + other.records)) == 400, "all is read")
    other.consumer.close()
    until([one], lambda: divided(one), "librdkafka has all")
    other = PythonReader(address, name)
    until([one, other], lambda: divided(one, other), "both again")
    one.consumer.close()
    until([other], lambda: divided(other), "kafka-python has all")
    other.consumer.close()


def test_a_static_member_that_restarts_keeps_its_share(address, name, create: Create):
    """The others notice nothing, it has the same partitions, and goes on at its cursor (KIP-345)."""
    create(name, 4)
    write(address, name, 400)
    stays, restarts = Reader(address, name, instance="a"), Reader(address, name, instance="b")
    until([stays, restarts], lambda: divided(stays, restarts), "both have a share")
    until([stays, restarts], lambda: len(stays.records + restarts.records) >= 400, "all is read")
    share, changes = restarts.share, stays.changes
    restarts.vanish()
    write(address, name, 40, mark=b"later ")
    again = Reader(address, name, instance="b")
    until([stays, again], lambda: divided(stays, again), "it is back")
    until([stays, again], lambda: len(again.records) >= 10 * len(share), "it reads on")
    assert again.share == share
    assert min(offset for _, offset in again.records) == 100
    assert stays.changes == changes
    stays.consumer.close()
    again.consumer.close()


def test_a_second_member_of_one_name_fences_the_first(address, name, create: Create):
    """Two processes with one instance id are a mistake: the older one is told, for good."""
    create(name, 2)
    first = Reader(address, name, instance="a")
    until([first], lambda: divided(first, partitions=2), "the first has all")
    second = Reader(address, name, instance="a")
    fenced = until([first, second], lambda: first.fatal, "the first is fenced")
    assert "fenced" in fenced.str()
    until([second], lambda: divided(second, partitions=2), "the second has all")
    first.consumer.close()
    second.consumer.close()


def test_a_killed_member_is_missed_after_its_session(address, name, create: Create):
    """A member's process is killed: its partitions go to who is left, from the last commit on."""
    create(name, 4)
    write(address, name, 400)
    victim = subprocess.Popen([sys.executable, "-c", READER, address, name], stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    try:
        victim.stdout.readline()
        survivor = Reader(address, name)
        until([survivor], lambda: len(survivor.share) == 2, "both have a share")
    finally:
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
    begun = time.monotonic()
    until([survivor], lambda: divided(survivor), "the survivor has all")
    assert time.monotonic() - begun > 3, "its session is waited for"
    write(address, name, 40, mark=b"later ")
    until([survivor], lambda: len([one for one in survivor.values if one.startswith(b"later")]) == 40, "all is read")
    survivor.consumer.close()


def test_cursors_are_seen_and_set_by_tools(address, name, create: Create):
    """While members live nobody else may set them; afterwards anybody may, and the next member starts there."""
    create(name, 2)
    write(address, name, 20, 2)
    admin = AdminClient({"bootstrap.servers": address})

    def cursors() -> dict[int, int]:
        asked = [ConsumerGroupTopicPartitions(name)]
        found = admin.list_consumer_group_offsets(asked)[name].result(30)
        return {one.partition: one.offset for one in found.topic_partitions}

    def set_cursors(offset: int) -> None:
        wanted = [TopicPartition(name, index, offset) for index in range(2)]
        result = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, wanted)])[name].result(30)
        for one in result.topic_partitions:
            if one.error is not None:
                raise KafkaException(one.error)

    assert cursors() == {}
    reader = Reader(address, name)
    until([reader], lambda: len(reader.records) == 20, "all is read")
    until([reader], lambda: reader.commit() is not None or cursors() == {0: 10, 1: 10}, "the cursors are seen")
    with pytest.raises(KafkaException) as refused:
        set_cursors(3)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    reader.consumer.close()
    set_cursors(7)
    assert cursors() == {0: 7, 1: 7}
    reader = Reader(address, name)
    until([reader], lambda: len(reader.records) == 6, "from there on")
    assert sorted(reader.records) == [(partition, offset) for partition in (0, 1) for offset in (7, 8, 9)]
    reader.consumer.close()


def test_members_find_each_other_again_after_a_kill(victim: Victim, name, create):
    """The server is killed under a live group: all its members come back, with all cursors that were committed."""
    create(name, 4, at=victim.address)
    write(victim.address, name, 400)
    members = [Reader(victim.address, name) for _ in range(3)]
    until(members, lambda: divided(*members), "three members")
    until(members, lambda: len({one for each in members for one in each.records}) == 400, "all is read")
    admin = AdminClient({"bootstrap.servers": victim.address})

    def committed() -> int:
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(30)
        return sum(one.offset for one in found.topic_partitions)

    until(members, lambda: committed() == 400, "all is committed")
    before = [len(one.values) for one in members]
    victim.kill()
    victim.come_back()
    write(victim.address, name, 40, mark=b"later ")
    wanted = {b"later %d" % number for number in range(40)}
    until(members, lambda: {one for each in members for one in each.values} >= wanted, "all is read")
    again = {value for one, count in zip(members, before, strict=True) for value in one.values[count:]}
    assert again == wanted, "what was committed is not read again"
    until(members, lambda: divided(*members), "three members again")
    for one in members:
        one.consumer.close()


@pytest.mark.only_headwater("Kafka lets a member's old commit reach a stream that is created again under its name")
def test_a_live_group_over_delete_and_create(address, name, create: Create):
    """Every record of the new stream is read, whatever the members committed of the old one, before and after."""
    admin = AdminClient({"bootstrap.servers": address})
    create(name, 2)
    write(address, name, 500, 2, mark=b"0 ")
    members = [Reader(address, name) for _ in range(2)]
    until(members, lambda: sum(len(one.records) for one in members) >= 500, "the first is read")
    for round_number in (1, 2, 3):
        admin.delete_topics([name])[name].result(30)
        create(name, 2)
        for one in members:
            one.commit()  # of what was read of the old stream: refused, or of nothing
        write(address, name, 100 * round_number, 2, mark=b"%d " % round_number)
        until(members, lambda: len(values_of(members, round_number)) == 100 * round_number, "all is read")  # noqa: B023
    for one in members:
        one.consumer.close()


def values_of(members: Iterable[Reader], round_number: int) -> set[bytes]:
    mark = b"%d " % round_number
    return {value for one in members for value in one.values if value.startswith(mark)}


class Churner(threading.Thread):
    """A member that comes and goes, and notes what it has been given and has committed."""

    def __init__(self, address: str, name: str, seed: int, ending: threading.Event) -> None:
        super().__init__(daemon=True)
        self.address, self.name_of_stream, self.random, self.ending = address, name, random.Random(seed), ending
        self.values: list[bytes] = []
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                reader = Reader(self.address, self.name_of_stream)
                until_ms = time.monotonic() + self.random.uniform(0.2, 3)
                while time.monotonic() < until_ms and not self.ending.is_set():
                    reader.poll()
                reader.consumer.close()
                self.values += reader.values
        except BaseException as why:  # noqa: BLE001  it belongs to the test's thread
            self.failed = why


@pytest.mark.parametrize("count", [8, pytest.param(50, marks=pytest.mark.long)])
def test_many_members_come_and_go_and_nothing_is_left_out(address, name, create: Create, count):
    """Under steady churn every record is read at last, and once the churn ends the group settles within 30 s."""
    create(name, 6)
    ending = threading.Event()
    churners = [Churner(address, name, seed, ending) for seed in range(count)]
    for one in churners:
        one.start()
    total = 0
    begun = time.monotonic()
    while time.monotonic() - begun < (6 if count < 50 else 30):
        write(address, name, 60, 6, mark=b"%d " % total)
        total += 60
        time.sleep(0.1)
    ending.set()
    for one in churners:
        one.join(SECONDS)
        assert one.failed is None, one.failed
    last = Reader(address, name)
    until([last], lambda: divided(last, partitions=6), "the last one has all", seconds=30)
    seen = {value for one in churners for value in one.values}
    until([last], lambda: len(seen | set(last.values)) == total, "all is read")
    last.consumer.close()
