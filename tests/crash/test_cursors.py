"""Committed cursors across kills: never behind an acked commit, never beyond what was asked for."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.raw_client import Raw, batch_of, produce_error, produce_frame
from tests.crash.acked import SECONDS, Killable, create, say, seeded, until

KILLS = [3, pytest.param(30, marks=pytest.mark.long)]
RECORDS, BATCH = 200_000, 5_000
GROUPS = ("first", "second")
STREAM = "read"


class Committer(threading.Thread):
    """A reader that does nothing but commit, one offset further each time, through all kills."""

    def __init__(self, address: str, group: str) -> None:
        super().__init__(daemon=True)
        self.group, self.acked, self.asked = group, 0, 0
        self.ending = threading.Event()
        self._consumer = Consumer({
            "bootstrap.servers": address, "group.id": group, "enable.auto.commit": False, "log_level": 0,
            "reconnect.backoff.max.ms": 100, "retry.backoff.max.ms": 100,
        })  # fmt: skip

    def run(self) -> None:
        while not self.ending.is_set():
            self.asked = self.acked + 1
            try:
                self._consumer.commit(offsets=[TopicPartition(STREAM, 0, self.asked)], asynchronous=False)
            except KafkaException:
                self.ending.wait(0.02)  # the broker is away; whether the commit was made nobody knows
            else:
                self.acked = self.asked
        self._consumer.close()

    def until_at(self, goal: int) -> None:
        until(lambda: self.acked >= goal, f"{goal} commits of {self.group}")


def committed(address: str, group: str) -> int:
    """As a client that knows nothing finds it."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    try:
        return int(consumer.committed([TopicPartition(STREAM, 0)], timeout=SECONDS)[0].offset)
    finally:
        consumer.close()


@pytest.mark.parametrize("kills", KILLS)
def test_an_acked_commit_outlives_every_kill(broker: Killable, kills: int) -> None:
    """In all groups, while they go on committing; and with the last commit a clean stop keeps it too."""
    moments = seeded()
    create(broker.address, STREAM, {}, partitions=1)
    with Raw(broker.address) as raw:
        for _ in range(RECORDS // BATCH):
            raw.socket.sendall(produce_frame(STREAM, 0, batch_of([b"x"] * BATCH)))
            assert produce_error(raw.receive_frame()) == 0
    committers = [Committer(broker.address, group) for group in GROUPS]
    for one in committers:
        one.start()
    for _ in range(kills):
        for one in committers:
            one.until_at(one.acked + moments.randint(1, 300))
        broker.kill()
        acked = [one.acked for one in committers]
        broker.start()
        for one, least in zip(committers, acked, strict=True):
            found = committed(broker.address, one.group)
            assert least <= found <= one.asked, (least, found, one.asked)
    for one in committers:
        one.ending.set()
        one.join(SECONDS)
    say(f"{kills} kills, commits acked: {[one.acked for one in committers]}")
    broker.stop()
    broker.start()
    for one in committers:
        assert one.acked <= committed(broker.address, one.group) <= one.asked
    broker.stop()


def test_a_commit_that_was_acked_before_the_log_is_looked_at_holds(broker: Killable) -> None:
    """Right after a kill the cursors are asked for before anybody has opened the stream's log."""
    create(broker.address, STREAM, {}, partitions=1)
    with Raw(broker.address) as raw:
        raw.socket.sendall(produce_frame(STREAM, 0, batch_of([b"x"] * 10)))
        assert produce_error(raw.receive_frame()) == 0
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": GROUPS[0], "log_level": 0})
    consumer.commit(offsets=[TopicPartition(STREAM, 0, 7)], asynchronous=False)
    consumer.close()
    for _ in range(2):
        broker.kill()
        broker.start()
        assert committed(broker.address, GROUPS[0]) == 7
