"""Too few descriptors: what is open goes on, what is new is refused or waits, and nothing has to be started again."""

import contextlib
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.raw_client import Raw, batch_of, produce_frame
from tests.unit.broker.conftest import create, eventually, produce, publish

LIMIT = 256


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Of a broker that may have 256 open files."""
    process = subprocess.Popen(
        [
            "sh",
            "-c",
            f'ulimit -n {LIMIT}; exec "$@"',
            "sh",
            sys.executable,
            "-m",
            "headwater",
            "up",
            "--data",
            str(tmp_path / "data"),
            "--port",
            "0",
        ],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
    )
    assert process.stdout is not None
    found = re.fullmatch(r"READY (\S+:\d+) pid=(\d+)\n", process.stdout.readline())
    assert found
    yield found[1], int(found[2])
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    process.stdout.close()


@pytest.fixture
def address(started: tuple[str, int]) -> str:
    return started[0]


def written(raw: Raw, name: str, partitions: int) -> int:
    """In how many partitions a record could be written; the others say that it is the storage."""
    codes = [produce(raw, name, batch_of([b"x"]), partition=index).error_code for index in range(partitions)]
    assert set(codes) <= {0, 56}
    return codes.count(0)


def test_logs_leave_descriptors_for_clients_and_for_flushes(address):
    """A directory that could not be opened would fail every log in it until the next start."""
    with Raw(address) as raw:
        create(raw, "before")
        publish(raw, "before", b"x")
        create(raw, "many", partitions=LIMIT)
        some = written(raw, "many", LIMIT)
        assert LIMIT // 4 < some < LIMIT // 2  # two files each
        for number in range(20):
            with Raw(address, timeout=5) as another:
                assert publish(another, "before", b"x") == number + 1
        assert written(raw, "many", LIMIT) == some


def test_clients_leave_descriptors_for_flushes(address):
    """Those that are too many are turned away; when they are gone, new logs can be opened again."""
    host, _, port = address.rpartition(":")
    with Raw(address) as raw, contextlib.ExitStack() as stack:
        create(raw, "before")
        publish(raw, "before", b"x")
        crowd = [stack.enter_context(socket.create_connection((host, int(port)), 5)) for _ in range(LIMIT * 2)]
        crowd[-1].settimeout(5)
        with contextlib.suppress(ConnectionError):
            assert crowd[-1].recv(1) == b""
        assert publish(raw, "before", b"x") == 1
        create(raw, "new", partitions=3)
        assert written(raw, "new", 3) == 0
        stack.close()
        eventually(lambda: written(raw, "new", 3) == 3, "there is room again")
        assert publish(raw, "before", b"x") == 2


def test_a_client_that_resets_its_connection_behind_its_last_bytes_is_noticed(started):
    """Whatever those bytes were: a part of a request, or a whole one that wants no answer."""
    address, pid = started
    quiet = produce_frame("nowhere", 0, batch_of([b"x"]), acks=0)
    host, _, port = address.rpartition(":")
    before = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    for number in range(1000):
        one = socket.create_connection((host, int(port)), 5)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.sendall(quiet[: 1 + number % 100])
        one.close()
    eventually(lambda: len(list(Path(f"/proc/{pid}/fd").iterdir())) <= before, "they are gone", 6)
