"""What the Spark tests stand on: a server that can be killed and cut, a writer that keeps what was acknowledged, a
driver in a process of its own, and the one comparison that counts: tables against acknowledged records, as sets.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer

from headwater.lake import open_catalog, sql
from headwater.sdk.ranges import RangeAdmin

ROOT = Path(__file__).resolve().parents[2]
ON_KAFKA = os.environ.get("TARGET") == "kafka"
START_SECONDS = 60.0


class ServerProcess:
    """`headwater up`, or with TARGET=kafka a real Kafka: always under the same address and data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None
        self._pid = 0

    def start(self) -> None:
        program = [str(ROOT / "tools" / "kafka"), "up"] if ON_KAFKA else ["-m", "headwater", "up"]
        with (self.data.parent / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *program, "--data", str(self.data), "--port", str(self.port)],
                stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.data.parent,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("READY"), f"the server did not start: {line!r}, see {self.data.parent / 'server.log'}"
        self._pid = int(line.rpartition("pid=")[2])

    def kill(self) -> None:
        """As a power-off button would, but for what the kernel holds."""
        os.kill(self._pid, signal.SIGKILL)
        self._wait()

    def cut(self, stream_id: str, partition: int) -> None:
        """Takes the last third of a partition's log away, as a power cut would, while nobody serves it."""
        (segment,) = self.data.glob(f"streams/*/{stream_id}/{partition}-*.log")
        os.truncate(segment, segment.stat().st_size * 2 // 3)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait(START_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.address}


@dataclass(frozen=True, slots=True)
class Acked:
    """A record that the server acknowledged, as the tables must have it."""

    stream_id: str
    partition: int
    offset: int
    value: bytes


@dataclass(slots=True)
class Writer:
    """Publishes through another client than ours, and keeps what was acknowledged."""

    server: ServerProcess
    acked: dict[str, list[Acked]] = field(default_factory=dict)  # by stream
    sent: int = 0

    def publish(self, stream: str, values: Iterable[bytes]) -> list[Acked]:
        """Sends all of them and waits for their acks; nothing that fails is forgotten."""
        stream_id = self.stream_id(stream)
        got: list[Acked] = []
        failed: list[str] = []

        def told(error: Any, message: Message) -> None:
            if error is not None:
                failed.append(str(error))
            else:
                got.append(Acked(stream_id, message.partition() or 0, message.offset() or 0, message.value() or b""))

        producer = Producer({**self.server.client(), "enable.idempotence": True, "linger.ms": 5})
        for value in values:
            producer.produce(stream, value, key=str(self.sent).encode(), on_delivery=told)
            self.sent += 1
        left = producer.flush(START_SECONDS)
        assert not failed and not left, f"not acknowledged: {failed[:3]}, {left} unsent"
        self.acked.setdefault(stream, []).extend(got)
        return got

    def stream_id_of(self, stream: str) -> str:
        """Of the stream that the last acknowledged record is in."""
        return self.acked[stream][-1].stream_id

    def stream_id(self, stream: str) -> str:
        return RangeAdmin(self.server.client()).streams([stream])[stream].stream_id


def orders(first: int, count: int, *, mark: str = "") -> list[bytes]:
    """Orders as JSON, each tenth of which is none: text, a wrong type, a missing field."""
    bad = [b"no json at all", b'{"id": "x", "total": "much"}', b'{"total": 1.5}']
    return [
        bad[number // 10 % 3] + f" {mark}{number}".encode() * (number // 10 % 3 == 0)
        if number % 10 == 9
        else json.dumps({"id": f"{mark}{number}", "total": number * 0.5, "tags": [mark, str(number)]}).encode()
        for number in range(first, first + count)
    ]


def is_valid(value: bytes) -> bool:
    try:
        said = json.loads(value)
    except ValueError:
        return False
    return isinstance(said.get("id"), str) and isinstance(said.get("total"), float)


class Tables:
    """The tables of a data directory, read as anybody would."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in sql(open_catalog({}, self._data), query).rows]

    def assert_equal(self, stream: str, acked: list[Acked]) -> None:
        """Nothing lost, nothing doubled: (id, partition, offset, value) of the tables are those of the acked records."""
        good = {(one.stream_id, one.partition, one.offset, _plain(one.value)) for one in acked if is_valid(one.value)}
        letters = {(one.stream_id, one.partition, one.offset, one.value) for one in acked if not is_valid(one.value)}
        landed = [
            (identity, partition, offset, (key, total, tuple(tags)))
            for identity, partition, offset, key, total, tags in self.rows(
                f"select _stream_id, _partition, _offset, id, total, tags from {stream}"
            )
        ]
        dead = self.rows(f"select _stream_id, _partition, _offset, _value from {stream}_dead_letters")
        _assert_same(f"{stream}", landed, good)
        _assert_same(f"{stream}_dead_letters", dead, letters)


def _plain(value: bytes) -> tuple[Any, ...]:
    said = json.loads(value)
    return said["id"], said["total"], tuple(said["tags"])


def _assert_same(table: str, landed: list[tuple[Any, ...]], wanted: set[tuple[Any, ...]]) -> None:
    found = set(landed)
    lost, strange = wanted - found, found - wanted
    assert not lost, f"{table}: {len(lost)} of {len(wanted)} lost, such as {sorted(lost)[:3]}"
    assert not strange, f"{table}: {len(strange)} that nobody published, such as {sorted(strange)[:3]}"
    assert len(landed) == len(found), f"{table}: {len(landed) - len(found)} doubled"


class Driver:
    """`run` in a process of its own, so that it can be killed with its Java."""

    def __init__(self, app: Path, data: Path, server: str, *, once: bool = True, failpoint: str = "") -> None:
        program = (
            "import sys; from headwater.pipeline import run\n"
            "app, data, server, once = sys.argv[1:]\n"
            "run(app, data=data, server=server, once=once == 'once',"
            " say=lambda said: print(said.kind, said, flush=True))"
        )
        self._said = data / f"driver-{time.monotonic_ns()}.log"
        with self._said.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, str(app), str(data), server, "once" if once else "on"],
                env={**os.environ, "HEADWATER_FAILPOINT": failpoint}, stdout=out, stderr=out,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._said.read_text()

    def wait(self, seconds: float = START_SECONDS) -> int:
        return self._process.wait(seconds)

    def running(self) -> bool:
        return self._process.poll() is None

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """The driver and its Java, at once."""
        family = [self._process.pid, *_children(self._process.pid)]
        for one in family:
            with suppress(ProcessLookupError):  # Java ends by itself once the driver is gone
                os.kill(one, signal.SIGKILL)
        self._process.wait(START_SECONDS)

    def until(self, condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited {seconds} s; the driver said: {self.said}"
            assert self.running(), f"the driver ended: {self.said}"
            time.sleep(0.05)


def _children(pid: int) -> list[int]:
    """All processes below `pid`: Java, and the workers that Java started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, look = [], [pid]
    while look:
        children = parents.get(look.pop(), [])
        found += children
        look += children
    return found
