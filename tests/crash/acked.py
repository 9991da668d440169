"""What the crash tests share: a broker that dies and comes back, a writer that notes what was acked, and who judges.

Everything here is a real end: `headwater up` in a process of its own, librdkafka as writer and reader, and at the end
the log's own check on the files that are left.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.raw_client import batch_of
from headwater.batch import decode, parse
from headwater.config import Settings
from headwater.log import Partition
from headwater.model import Offset, PartitionIndex
from headwater.store import Store

STREAM, PARTITIONS, SECONDS = "killed", 2, 60.0
OUTSTANDING_MAX = 20_000  # the writer's queue is finite
DURABILITY = {"file_async": {}, "file_sync": {"flush.messages": "1"}}
SEGMENTS = {"segment.bytes": str(1024**2)}  # the smallest: many rolls


def seeded(seed: int | None = None) -> random.Random:
    """Printed, so that a run can be had again: `SEED=...` in the environment."""
    chosen = int(os.environ.get("SEED") or (time.time_ns() % 1_000_000 if seed is None else seed))
    say(f"SEED={chosen}")
    return random.Random(chosen)


def say(text: str) -> None:
    """For those who run with `-s`, and beside the failure for everybody."""
    sys.stdout.write(f"{text}\n")


def until(met: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """What `met` says as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (found := met()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.005)
    return found


class Killable:
    """`headwater up` on one data directory, which dies and comes back at its address."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.address = ""
        self.process: subprocess.Popen[str] | None = None
        self.errors = data.with_name(data.name + ".err")

    def start(self, failpoint: str = "", *flags: str) -> None:
        """Returns when it is ready."""
        self._begin(failpoint, *flags)
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("READY"), (line, self.said())
        self.address = line.split()[1]

    def die_while_starting(self, seconds: float) -> None:
        """So long after its start, ready or not."""
        self._begin("")
        assert self.process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        assert self.process.poll() is None, self.said()
        self.kill()

    def _begin(self, failpoint: str, *flags: str) -> None:
        port = self.address.rpartition(":")[2] or "0"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headwater", "up", "--data", str(self.data), "--port", port, *flags],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "HEADWATER_FAILPOINT": failpoint},
                text=True,
            )

    def said(self) -> str:
        """What it had to report, over all of its lives."""
        return self.errors.read_text()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        assert self.wait_for_its_end() == -signal.SIGKILL

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        assert self.wait_for_its_end() == 0, self.said()

    def end(self) -> None:
        """Whatever it does at the moment."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.wait_for_its_end()

    def dies_before(self, writer: Writer, acked_count: int) -> bool:
        """Whether it ends by itself, as its failpoint says, before so much is acked."""
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


class Writer(threading.Thread):
    """An idempotent producer that never stops by itself; notes what was acked."""

    def __init__(self, address: str, *, outstanding: int = OUTSTANDING_MAX) -> None:
        super().__init__(daemon=True)
        self._outstanding = outstanding
        self.acked: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.failed: list[Any] = []
        self.ending = threading.Event()
        self._producer = Producer({
            "bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 1, "reconnect.backoff.max.ms": 100,
            "retry.backoff.max.ms": 100, "log_level": 0,
        })  # fmt: skip

    def run(self) -> None:
        number = 0
        while not self.ending.wait(0.001):
            for _ in range(10 if number - self.acked_count < self._outstanding else 0):
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
            self.failed.append(error)

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
        self.errors: list[Any] = []
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
                if record.error() is not None:
                    self.errors.append((record.partition(), record.error()))
                else:
                    number = int(record.value().split()[0])
                    if self.seen[record.partition()].setdefault(record.offset(), number) != number:
                        self.changed.append((record.partition(), record.offset()))
        self._consumer.close()

    def until_at(self, ends: list[int]) -> None:
        deadline = time.monotonic() + SECONDS
        while [len(one) for one in self.seen] < ends:
            assert time.monotonic() < deadline, f"{[len(one) for one in self.seen]} of {ends} read, after {self.errors}"
            time.sleep(0.005)
        self.ending.set()
        self.join(SECONDS)


def logs(broker: Killable, partition: int) -> list[Path]:
    """Of the partition, oldest first; of the only stream."""
    return sorted(broker.data.glob(f"streams/*/*/{partition}-*.log"))


def tear_the_ends(broker: Killable) -> None:
    """As if a batch had been on its way to each partition when the power went."""
    for partition in range(PARTITIONS):
        with logs(broker, partition)[-1].open("ab") as file:
            file.write(batch_of([b"never acked" * 20])[:150])


def create(address: str, name: str, config: dict[str, str], *, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(SECONDS)


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
    for _ in partitions_of(broker.data, STREAM):
        pass


def partitions_of(data: Path, stream: str) -> Iterator[Partition]:
    """The stream's partitions, one after another, of a directory that nobody holds; each says that it is whole."""
    store = Store.open(Settings(data=str(data)))
    with contextlib.closing(store):
        entry = store.stream(stream)
        assert entry is not None
        for index in range(entry.partitions):
            partition = store.partition((entry.id, PartitionIndex(index)))
            assert partition.check() == []
            yield partition


def values_of(partition: Partition) -> list[bytes]:
    found: list[bytes] = []
    offset = partition.start
    while offset < partition.end:
        for piece in partition.read(offset, 1 << 20, upto=partition.end):
            view, at = memoryview(piece.bytes()), 0
            while at < len(view):
                batch = parse(view, at)
                found += [record.value or b"" for record in decode(batch)]
                at += batch.length
                offset = Offset(batch.next_offset)
    return found
