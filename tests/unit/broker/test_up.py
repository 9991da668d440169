"""`headwater up` as its operator sees it: one line when it answers, one line when it cannot, an end within bounds."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.raw_client import Raw, batch_of, codec, produce_frame
from headwater.cli.up import read_settings
from headwater.errors import CannotListen, InvalidSetting
from headwater.store import directory
from headwater.testing import broker
from tests.unit.broker.conftest import create, eventually, fetch, fetch_fields, publish, values_of

Start = Callable[..., "Up"]


class Up:
    """`headwater up` in a process of its own."""

    def __init__(self, data: Path, *flags: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headwater", "up", "--data", str(data), *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environ},
            cwd=data.parent,
            text=True,
        )

    @property
    def ready(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    @property
    def address(self) -> str:
        found = re.fullmatch(r"READY (\S+:\d+) pid=(\d+)", self.ready)
        assert found, self.process.stderr
        assert int(found[2]) == self.process.pid
        return found[1]

    def end(self, seconds: float = 20) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Start]:
    started: list[Up] = []

    def start(*flags: str, data: str = "data", **environ: str) -> Up:
        started.append(Up(tmp_path / data, *flags, **environ))
        return started[-1]

    yield start
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            one.process.kill()
        one.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_ready_once_it_answers_and_ends_at_a_signal(up: Start, number: int) -> None:
    """With exit code 0 and nothing else said; what was acked is there at the next start."""
    first = up("--port", "0")
    with Raw(first.address) as raw:
        create(raw, "kept")
        publish(raw, "kept", b"one")
    first.process.send_signal(number)
    assert first.end() == (0, "", "")
    second = up("--port", "0")
    with Raw(second.address) as raw:
        found = fetch(raw, "kept")
        assert values_of(found) == [b"one"]
        assert raw.ask("metadata", 12, topics=None).topics[0].partitions[0].leader_epoch == 0


def test_a_kill_loses_nothing_that_was_acked_and_moves_the_epoch(up: Start) -> None:
    """The next start recovers, and says so in the leader epoch."""
    first = up("--port", "0")
    with Raw(first.address) as raw:
        create(raw, "killed")
        for number in range(100):
            publish(raw, "killed", b"%d" % number)
    first.process.kill()
    first.process.wait()
    with Raw(up("--port", "0").address) as raw:
        assert values_of(fetch(raw, "killed")) == [b"%d" % number for number in range(100)]
        assert raw.ask("metadata", 12, topics=None).topics[0].partitions[0].leader_epoch == 1
        module = codec("offset_for_leader_epoch")  # neither epoch was cut: a reader at its end may go on
        for epoch, expected in ((0, (0, 100)), (1, (1, 100)), (2, (-1, -1))):
            part = module.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
            topic = module.OffsetForLeaderTopic(topic="killed", partitions=[part])
            end = raw.ask("offset_for_leader_epoch", 4, topics=[topic]).topics[0].partitions[0]
            assert (end.leader_epoch, end.end_offset) == expected
        assert fetch(raw, "killed", 100, last_fetched_epoch=1).error_code == 0


def test_what_is_in_hand_is_answered_before_the_end(up: Start) -> None:
    """A long poll with what there is, and a write with its ack; then the connection closes."""
    one = up("--port", "0")
    address = one.address
    with Raw(address) as raw, Raw(address) as reader:
        create(raw, "drained")
        reader.send("fetch", 12, **fetch_fields("drained", max_wait_ms=30_000))
        raw.ask("metadata", 12, topics=[])
        one.process.send_signal(signal.SIGTERM)
        assert reader.receive("fetch", 12).responses[0].partitions[0].error_code == 0
        assert reader.socket.recv(1) == b""
    assert one.end(5)[0] == 0


def test_a_second_signal_ends_it_at_once(up: Start) -> None:
    """Whatever it waits for."""
    one = up("--port", "0")
    address = one.address
    with Raw(address) as raw:
        create(raw, "stuck")
        for _ in range(20):
            publish(raw, "stuck", bytes(1_000_000))
        with Raw(address) as slow:  # its answer never leaves, so the drain cannot end
            slow.send("fetch", 12, **fetch_fields("stuck", partition_max_bytes=1 << 26, max_bytes=1 << 26))
            raw.ask("metadata", 12, topics=[])
            one.process.send_signal(signal.SIGTERM)
            assert raw.socket.recv(1) == b""
            one.process.send_signal(signal.SIGTERM)
            assert one.end(5)[0] == 1


def test_a_held_directory_names_its_holder(up: Start) -> None:
    """Process and address, in one line, with what to do."""
    first = up("--port", "0")
    address = first.address
    code, out, err = up("--port", "0").end()
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert f"is held by process {first.process.pid} ({address}): connect to it, stop it, or choose --data" in err


def test_a_taken_port_is_named_with_what_to_do(up: Start) -> None:
    """And with exit code 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, out, err = up("--port", str(taken.getsockname()[1])).end()
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "is taken" in err
    assert "--port" in err


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--host", "0.0.0.0"), 1, "--insecure"),
        (("--host", "0.0.0.0", "--insecure"), 2, "--advertise"),
        (("--host", "no.such.host.invalid"), 1, "--host"),
        (("--port", "many"), 2, "port wants a int"),
        (("--port", "70000"), 2, "--port"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(up: Start, flags: tuple[str, ...], code: int, said: str) -> None:
    """That names the remedy; nobody beyond this machine is let in by accident."""
    found, out, err = up(*flags).end()
    assert (found, out, len(err.splitlines())) == (code, "", 1), err
    assert said in err


def test_beyond_loopback_it_advertises_what_it_is_told(up: Start) -> None:
    """Bound everywhere, known under one name."""
    one = up("--host", "0.0.0.0", "--insecure", "--advertise", "broker.test:1234", "--port", "0")
    port = one.address.rpartition(":")[2]
    with Raw(f"127.0.0.1:{port}") as raw:
        node = raw.ask("metadata", 12, topics=[]).brokers[0]
        assert (node.host, node.port) == ("broker.test", 1234)


def test_flags_win_over_the_environment_over_the_file_over_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each for itself."""
    file = tmp_path / "headwater.toml"
    file.write_text('port = 1\nlinger = 1.5\nauto_create = true\nflush_ms = 7\n[catalog]\nuri = "x"\n')
    monkeypatch.setenv("HEADWATER_PORT", "2")
    monkeypatch.setenv("HEADWATER_LINGER", "2.5")
    monkeypatch.setenv("STREAM_DEFAULT_FLUSH_MS", "9")
    settings = read_settings(["--port", "3", "--no-auto-create"], file)
    assert (settings.port, settings.linger, settings.auto_create, settings.flush_ms) == (3, 2.5, False, 9)
    assert settings.num_partitions == 4
    file.write_text("prot = 1\n")
    with pytest.raises(InvalidSetting, match="prot"):
        read_settings([], file)
    file.write_text("port = = 1\n")
    with pytest.raises(InvalidSetting, match=r"headwater\.toml"):
        read_settings([], file)


def test_an_embedded_broker_ends_when_its_last_client_is_gone(up: Start, tmp_path: Path) -> None:
    """Neither while a client process holds its lock, nor while a connection is open."""
    clients = directory.Clients(tmp_path / "data")
    assert clients.join(1)
    one = up("--embedded", "--linger", "0.2")
    with Raw(one.address) as raw:
        where = directory.address(tmp_path / "data")
        assert where is not None
        assert (where.kind, where.pid) == ("embedded", one.process.pid)
        create(raw, "embedded")
        clients.leave()
        for _ in range(3):  # three looks of the broker, with a connection and without a client
            assert raw.ask("metadata", 12, topics=[]).cluster_id
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(0.4)
        assert one.process.poll() is None
    assert one.end(10) == (0, "", "")


def test_an_embedded_broker_takes_its_port_again_unless_it_is_taken(up: Start, tmp_path: Path) -> None:
    """So that clients find it where it was."""
    first = up("--embedded")
    address = first.address
    first.process.kill()
    first.process.wait()
    second = up("--embedded")
    assert second.address == address
    second.process.kill()
    second.process.wait()
    host, _, port = address.rpartition(":")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((host, int(port)))
        taken.listen()
        third = up("--embedded")
        assert third.address != address
        assert str(directory.address(tmp_path / "data")) != address


def test_the_broker_of_headwater_testing_can_be_kept_and_refuses_like_the_other(tmp_path: Path) -> None:
    """A given directory stays; a host beyond loopback is refused there as well."""
    data = str(tmp_path / "kept")
    for expected in (0, 1):
        with broker(data=data) as server, Raw(server.address) as raw:
            if not expected:
                create(raw, "s")
            assert fetch(raw, "s").high_watermark == expected
            publish(raw, "s", b"x")
    with pytest.raises(CannotListen), broker(host="0.0.0.0"):
        pass


def test_the_pytest_fixture_is_a_running_broker(headwater_broker: Any) -> None:
    """Once the package is installed, in anybody's tests."""
    with Raw(headwater_broker.address) as raw:
        assert raw.ask("metadata", 12, topics=[]).cluster_id


def test_ten_starts_answer_their_first_produce(tmp_path: Path) -> None:
    """On a fresh connection, right after READY."""
    with broker(data=str(tmp_path / "data")) as server, Raw(server.address) as raw:
        create(raw, "ready")
    frame = produce_frame("ready", 0, batch_of([b"x"]))
    for number in range(10):
        with broker(data=str(tmp_path / "data")) as server, Raw(server.address) as raw:
            raw.socket.sendall(frame)
            raw.receive_frame()
            assert eventually(lambda raw=raw: fetch(raw, "ready"), "answers").high_watermark == number + 1  # type: ignore[misc]
