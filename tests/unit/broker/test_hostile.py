"""Bytes that are no requests: their connection closes within a limit, memory stays, and others are served."""

import contextlib
import os
import socket
import struct
import time
from pathlib import Path
from random import Random

import pytest

from bench.raw_client import Raw, codec, request_frame
from headwater import testing
from headwater.broker import connection as connection_module
from headwater.broker.apis import APIS
from tests.unit.broker.conftest import create, eventually, fetch_fields, publish


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def is_closed(raw: Raw, seconds: float = 5.0) -> bool:
    """Whether the broker closes it within that time, whatever it answers before."""
    raw.socket.settimeout(seconds)
    with contextlib.suppress(ConnectionError):
        try:
            while raw.socket.recv(65_536):
                pass
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", 2**31 - 1) + bytes(100),
        struct.pack(">i", -1) + bytes(100),
        struct.pack(">i", 0) + bytes(100),
        Random(4711).randbytes(1_000_000),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhih", 10, 0, 2, 1, -1),
        struct.pack(">ihhih", 10, 3, 1, 1, 20_000),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    ],
    ids=["2^31-1", "negative", "zero", "noise", "http", "unknown-api", "new-version", "old-version", "cut", "array"],
)
def test_garbage_closes_its_connection_and_nothing_else(server, raw, garbage):
    """Others go on, and memory does not grow."""
    before = resident_bytes()
    for _ in range(10):
        with Raw(server.address) as hostile:
            with contextlib.suppress(ConnectionError):
                hostile.socket.sendall(garbage)
            assert is_closed(hostile)
    assert raw.ask("metadata", 12, topics=[]).cluster_id
    assert resident_bytes() - before < 50_000_000


def test_a_large_request_takes_memory_as_it_arrives_and_not_before(server, raw):
    """Fifty clients that announce 90 MB each and send nothing."""
    before = resident_bytes()
    hostile = [Raw(server.address) for _ in range(50)]
    for one in hostile:
        one.socket.sendall(struct.pack(">ihhih", 90 * 1024**2, 0, 9, 1, -1))
    eventually(lambda: server.statistics()["buffered_bytes"] > 400 * 1024**2, "the first ones are granted")
    assert server.statistics()["buffered_bytes"] <= server.settings.buffered_bytes_max
    assert server.statistics()["waiting_for_room"] > 0
    assert raw.ask("metadata", 12, topics=[]).cluster_id
    assert resident_bytes() - before < 50_000_000
    for one in hostile:
        one.socket.close()
    eventually(lambda: server.statistics()["buffered_bytes"] == 0, "all is given back")


def test_one_byte_a_second_is_not_waited_for(monkeypatch):
    """A request that has begun has to come at some rate."""
    monkeypatch.setattr(connection_module, "FRAME_GRACE_SECONDS", 0.3)
    with testing.broker() as server, Raw(server.address) as slow, Raw(server.address) as idle:
        begun = time.monotonic()
        deadline = begun + 10
        slow.socket.settimeout(0.1)
        closed = False
        for byte in struct.pack(">ihhih", 1000, 3, 1, 1, -1) * 10:
            assert time.monotonic() < deadline
            try:
                slow.socket.send(bytes([byte]))
                closed = slow.socket.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
            if closed:
                break
        assert closed
        assert idle.ask("metadata", 12, topics=[]).cluster_id


def test_a_request_cut_short_is_forgotten_with_its_connection(server):
    """Half-open connections leave nothing behind."""
    frame = request_frame("metadata", 12, 1, "raw", topics=[])
    before = server.statistics()["connections"]
    for _ in range(20):
        with Raw(server.address) as cut:
            cut.socket.sendall(frame[:-1])
    eventually(lambda: server.statistics()["connections"] <= before, "they are gone")


@pytest.mark.parametrize("name", [api.name for api in APIS.values()])
def test_noise_in_a_body_never_gets_further_than_its_connection(server, raw, name):
    """For each API, in its newest version: an error answer or a closed connection."""
    random = Random(name)
    module = codec(name)
    head = struct.pack(">hhih", module.KEY, module.HIGH, 1, -1) + (
        b"\0" if module.HIGH >= module.FLEXIBLE_FROM else b""
    )
    for size in (0, 1, 12, 50):
        with Raw(server.address) as hostile:
            body = head + random.randbytes(size)
            hostile.socket.sendall(struct.pack(">i", len(body)) + body)
            hostile.socket.shutdown(socket.SHUT_WR)
            assert is_closed(hostile)
    assert raw.ask("metadata", 12, topics=[]).cluster_id


def test_an_unknown_version_of_api_versions_gets_the_table(raw):
    """In version 0, so that a client from the future can lower its voice."""
    body = struct.pack(">hhih", 18, 99, 7, -1) + b"\0"
    raw.socket.sendall(struct.pack(">i", len(body)) + body)
    answer = codec("api_versions").decode_response(raw.receive_frame()[4:], 0)
    assert answer.error_code == 35
    assert {one.api_key for one in answer.api_keys} == set(APIS)


@pytest.mark.parametrize("version", range(5))
def test_the_table_says_what_is_served(raw, version):
    """Produce from 0, as Kafka 4 says it; no telemetry, so that nobody asks for it."""
    answer = raw.ask("api_versions", version, client_software_name="test", client_software_version="1.0")
    assert answer.error_code == 0
    table = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert table[0] == (0, 13)
    assert table[1] == (4, 18)
    assert not {71, 72} & set(table)
    if version >= 3:
        assert raw.ask("api_versions", version, client_software_name="-", client_software_version="").error_code == 42


def test_more_connections_than_allowed_are_turned_away():
    """And let in again when others have left."""
    with testing.broker(connections_max=3) as server:
        kept = [Raw(server.address) for _ in range(3)]
        for one in kept:
            assert one.ask("metadata", 12, topics=[]).cluster_id
        with Raw(server.address) as more:
            assert is_closed(more)
        kept.pop().socket.close()
        eventually(lambda: server.statistics()["connections"] == 2, "it has left")
        with Raw(server.address) as again:
            assert again.ask("metadata", 12, topics=[]).cluster_id
        for one in kept:
            one.socket.close()


def test_a_silent_connection_is_closed_after_its_time():
    """But not one that waits for an answer."""
    with testing.broker(idle_ms=1) as server, Raw(server.address) as silent:
        assert silent.ask("metadata", 12, topics=[]).cluster_id

        def gone() -> bool:
            for one in list(server.broker.connections):
                one.active_at = 0.0  # as if its last byte had come long ago
            return not server.statistics()["connections"]

        eventually(gone, "it is closed")
        assert is_closed(silent)


def test_a_hundred_slow_readers_cost_no_memory():
    """What they have asked for stays in its file."""
    with testing.broker() as server, Raw(server.address) as raw:
        create(raw, "slow")
        for _ in range(20):
            publish(raw, "slow", bytes(1_000_000))
        before = resident_bytes()
        readers = [Raw(server.address) for _ in range(100)]
        for one in readers:
            one.send("fetch", 12, **fetch_fields("slow", partition_max_bytes=1 << 26, max_bytes=1 << 26))
        eventually(lambda: server.statistics()["requests"] >= 120, "all have asked")
        assert raw.ask("metadata", 12, topics=[]).cluster_id
        assert resident_bytes() - before < 50_000_000
        for one in readers:
            one.socket.close()


@pytest.mark.parametrize(("name", "broken"), [("describe_cluster", "handle"), ("fetch", "begin")])
def test_a_bug_ends_its_connection_and_nothing_else(server, raw, monkeypatch, name, broken):
    """An UNKNOWN_SERVER_ERROR would make some clients write twice; so would silence."""

    def bug(*_: object) -> None:
        raise RuntimeError("a bug")

    raw.ask("metadata", 12, topics=[])
    monkeypatch.setattr(f"headwater.broker.handlers.{name}.{broken}", bug)
    with Raw(server.address) as unlucky:
        unlucky.send(name, codec(name).HIGH)
        assert is_closed(unlucky)
    assert raw.ask("metadata", 12, topics=[]).cluster_id


def test_answers_that_nobody_takes_hold_the_client_back():
    """A client that asks and never reads is read no further: its own writes block."""
    with testing.broker() as server, Raw(server.address) as raw:
        for number in range(20):
            create(raw, f"stream-{number}", partitions=100)
        with Raw(server.address) as greedy:
            frame = request_frame("metadata", 12, 1, "raw", topics=None)
            greedy.socket.settimeout(0.5)
            sent = 0
            with contextlib.suppress(TimeoutError):
                for _ in range(200_000):
                    greedy.socket.sendall(frame)
                    sent += 1
            assert sent < 200_000
            assert server.statistics()["buffered_bytes"] < 2_000_000
            assert raw.ask("metadata", 12, topics=[]).cluster_id
