"""Answers leave in order, whole, and a slow reader costs no memory for what lies in files."""

import contextlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from headwater.broker.outbox import Outbox
from headwater.config import GATHERED_BYTES, SENDFILE_BYTES_MIN
from headwater.errors import StorageFailed


@dataclass
class Range:
    file: IO[bytes]
    position: int
    length: int

    def fileno(self) -> int:
        return self.file.fileno()

    def bytes(self) -> bytes:
        self.file.seek(self.position)
        return self.file.read(self.length)


@pytest.fixture
def pair():
    one, other = socket.socketpair()
    one.setblocking(False)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    other.setblocking(False)
    yield one, other
    one.close()
    other.close()


def drain(outbox: Outbox, one: socket.socket, other: socket.socket) -> bytes:
    received = bytearray()
    done = False
    while not done:
        done = outbox.send(one)
        with contextlib.suppress(BlockingIOError):
            while piece := other.recv(100_000):
                received += piece
    return bytes(received)


def test_bytes_and_ranges_of_files_arrive_in_order(pair, tmp_path: Path):
    """Whatever the socket takes at once."""
    content = bytes(range(256)) * 4000
    (tmp_path / "log").write_bytes(content)
    with (tmp_path / "log").open("rb") as file:
        outbox = Outbox()
        short, long = Range(file, 5, 100), Range(file, 1000, 500_000)
        assert long.length >= SENDFILE_BYTES_MIN > short.length
        outbox.put([b"head", bytearray(b" of "), short, memoryview(b"more"), long, b"tail"])
        expected = b"head of " + content[5:105] + b"more" + content[1000:501_000] + b"tail"
        assert drain(outbox, *pair) == expected
        assert not outbox


def test_a_file_range_that_waits_holds_no_memory(pair, tmp_path: Path):
    """Only its place: a hundred slow readers of 50 MB each must not cost 5 GB."""
    (tmp_path / "log").write_bytes(bytes(10_000_000))
    with (tmp_path / "log").open("rb") as file:
        outbox = Outbox()
        outbox.put([b"head", Range(file, 0, 10_000_000)])
        assert not outbox.send(pair[0])
        assert outbox.held_bytes <= 4


def test_a_thousand_short_ranges_that_wait_hold_little_memory(pair, tmp_path: Path):
    """A fetch of many partitions has one for each, and they are read when they are about to leave."""
    content = bytes(range(250)) * 40
    (tmp_path / "log").write_bytes(content)
    with (tmp_path / "log").open("rb") as file:
        outbox = Outbox()
        outbox.put([part for _ in range(1000) for part in (b"head", Range(file, 0, 10_000))])
        assert not outbox.send(pair[0])
        assert outbox.held_bytes < 2 * GATHERED_BYTES
        assert drain(outbox, *pair).endswith(b"head" + content)


def test_a_file_that_was_cut_from_outside_is_an_error_and_not_an_endless_loop(pair, tmp_path: Path):
    """The rest of the answer cannot be sent, and the client must not take something else for it."""
    (tmp_path / "log").write_bytes(bytes(100))
    with (tmp_path / "log").open("rb") as file:
        outbox = Outbox()
        for length in (SENDFILE_BYTES_MIN, SENDFILE_BYTES_MIN - 1):
            outbox.put([Range(file, 0, length)])
            with pytest.raises(StorageFailed):
                drain(outbox, *pair)
            outbox.clear()
