"""Clients that announce requests and do not send them: they take memory from nobody for long."""

import contextlib
import os
import struct
import time
from collections.abc import Iterator

import pytest

from bench.raw_client import Raw, batch_of
from tests.unit.broker.conftest import eventually, produce, publish

ANNOUNCED = struct.pack(">ihhih", 90 * 1024**2, 0, 9, 1, -1)


@pytest.fixture
def hoarders(server) -> Iterator[list[Raw]]:
    """More than there is memory for, of which nothing arrives."""
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(Raw(server.address)) for _ in range(12)]
        for one in crowd:
            one.socket.sendall(ANNOUNCED)
        eventually(lambda: server.statistics()["waiting_for_room"], "there is no room left")
        yield crowd
    eventually(lambda: server.statistics()["buffered_bytes"] == 0, "all is given back")


def test_usual_requests_do_not_wait_for_those_that_were_only_announced(server, hoarders, stream):
    """They have room of their own: it took until the others were given up, which is a minute."""
    with Raw(server.address, timeout=5) as raw:
        begun = time.monotonic()
        for size in (10_000, 100_000, 1_000_000):
            publish(raw, stream, os.urandom(size))
        assert time.monotonic() - begun < 1


def test_a_large_request_waits_seconds_for_those_that_were_only_announced(server, hoarders, stream):
    """Room that others wait for has to be filled."""
    with Raw(server.address, timeout=15) as raw:
        assert produce(raw, stream, batch_of([os.urandom(20_000_000)])).error_code == 10
