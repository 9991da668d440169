"""Headwater beside Apache Kafka in one run: the same client, the same disk, the same durability, in alternation.

    python -m bench.broker [--rounds 6] [--only publish,read,lone,crowd,sync]

Each case runs on both, one after the other, `--rounds` times; the first pair does not count (Kafka's JIT, cold memory),
and the order within a pair changes. What is printed is the median of the pairs' ratios, with the medians behind it.
Trust the ratios, not the numbers: below 20 % a difference on a shared machine means nothing.

    publish   1 KB records by librdkafka, 4 partitions, acks=all, not flushed before the ack   (more is better)
    read      the same records by librdkafka                                                   (more is better)
    lone      one record at a time on one connection, raw client: median latency               (less is better)
    crowd     200 connections with one-record requests, raw client                             (more is better)
    sync      as lone, flushed before the ack                                                  (less is better)
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peers import Peer, headline, kafka_version, peer
from bench.raw_client import batch_of, crowd, lone, produce_frame

RECORDS = 150_000
VALUE = bytes(range(256)) * 4
PARTITIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    unit: str
    more_is_better: bool
    wanted: float  # the ratio ours / Kafka that has to be held
    run: Callable[[Peer, str], float]
    config: tuple[tuple[str, str], ...] = ()
    partitions: int = 1


def publish(server: Peer, stream: str) -> float:
    producer = Producer({
        "bootstrap.servers": server.address, "acks": "all", "linger.ms": 5, "compression.type": "none",
        "queue.buffering.max.messages": RECORDS + 1, "queue.buffering.max.kbytes": 1 << 20,
    })  # fmt: skip
    producer.list_topics(stream, timeout=10)
    begun = time.perf_counter()
    for number in range(RECORDS):
        producer.produce(stream, VALUE, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    return RECORDS / (time.perf_counter() - begun)


def read(server: Peer, stream: str) -> float:
    publish(server, stream)
    consumer = Consumer({
        "bootstrap.servers": server.address, "group.id": "bench", "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 10, "queued.max.messages.kbytes": 1 << 20,
    })  # fmt: skip
    consumer.assign([TopicPartition(stream, partition, 0) for partition in range(PARTITIONS)])
    count = 0
    begun = time.perf_counter()
    while count < RECORDS:
        count += len(consumer.consume(10_000, 5.0))
        assert time.perf_counter() - begun < 60, f"{count} of {RECORDS} records read"
    rate = count / (time.perf_counter() - begun)
    consumer.close()
    return rate


def one_by_one(server: Peer, stream: str) -> float:
    frame = produce_frame(stream, 0, batch_of([VALUE[:100]]))
    return statistics.median(lone(server.address, frame, 5_000)) * 1e6


def two_hundred(server: Peer, stream: str) -> float:
    frame = produce_frame(stream, 0, batch_of([VALUE[:100]]))
    return crowd(server.address, frame, 200, 2.0)


CASES = (
    Case(name="publish", unit="records/s", more_is_better=True, wanted=1.0, run=publish, partitions=PARTITIONS),
    Case(name="read", unit="records/s", more_is_better=True, wanted=0.9, run=read, partitions=PARTITIONS),
    Case(name="lone", unit="us", more_is_better=False, wanted=1.0, run=one_by_one),
    Case(name="crowd", unit="requests/s", more_is_better=True, wanted=1.2, run=two_hundred),
    Case(
        name="sync", unit="us", more_is_better=False, wanted=1.0, run=one_by_one, config=(("flush.messages", "1"),)
    ),
)  # fmt: skip


def measure(case: Case, server: Peer, round_number: int) -> tuple[float, float]:
    """The case's number and the server's CPU seconds, on a stream of its own that is deleted afterwards."""
    stream = f"bench-{case.name}-{round_number}"
    admin = AdminClient({"bootstrap.servers": server.address})
    admin.create_topics([NewTopic(stream, case.partitions, 1, config=dict(case.config))])[stream].result(30)
    time.sleep(0.3)  # Kafka answers before all of it knows the stream
    before = server.cpu_seconds()
    found = case.run(server, stream)
    used = server.cpu_seconds() - before
    admin.delete_topics([stream])[stream].result(30)
    return found, used


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="the first does not count")
    parser.add_argument("--only", default="", help="names of cases, with commas")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.only or case.name in options.only.split(",")]
    print(headline())
    print(f"Apache Kafka {kafka_version()}; not flushed before the ack unless the case is called sync")
    missed = 0
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = [stack.enter_context(peer(name, scratch / name)) for name in ("headwater", "kafka")]
        for case in cases:
            missed += not compare(case, servers, options.rounds)
    return 1 if missed else 0


def compare(case: Case, servers: list[Peer], rounds: int) -> bool:
    pairs = []
    for round_number in range(rounds):
        order = servers if round_number % 2 else servers[::-1]
        found = {server.name: measure(case, server, round_number) for server in order}
        if round_number:
            pairs.append((found["headwater"], found["kafka"]))
    ratio = statistics.median(ours[0] / theirs[0] for ours, theirs in pairs)
    cpu = statistics.median(ours[1] / max(theirs[1], 0.01) for ours, theirs in pairs)
    ours, theirs = (statistics.median(pair[side][0] for pair in pairs) for side in (0, 1))
    held = ratio >= case.wanted if case.more_is_better else ratio <= case.wanted
    spread = ", ".join(f"{ours[0] / theirs[0]:.2f}" for ours, theirs in pairs)
    print(
        f"{case.name:8} {ratio:5.2f}x (wanted {'>=' if case.more_is_better else '<='} {case.wanted}:"
        f" {'held' if held else 'MISSED'})  ours {ours:,.0f} kafka {theirs:,.0f} {case.unit};"
        f" broker CPU {cpu:.2f}x; pairs {spread}",
        flush=True,
    )
    return held


if __name__ == "__main__":
    sys.exit(main())
