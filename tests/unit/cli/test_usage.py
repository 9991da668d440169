"""What the command line says when it was asked in a wrong way, or cannot do it: one line, with the remedy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run

COMMANDS = ["publish", "tail", "run", "sql", "demo", "stream create", "stream list", "stream describe", "stream delete"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("bogus", "no such command 'bogus': see `headwater --help`"),
        ("stream create", "missing argument 'STREAM': see `headwater stream create --help`"),
        ("stream create x --persistence fast", "'fast' is not one of 'file_async', 'file_sync'"),
        ("stream create x --partitions many", "'--partitions'"),
        ("stream list --nope", "no such option: --nope"),
        ("run", "missing argument 'APP.PY'"),
    ],
)
def test_wrong_usage_is_one_line(run: Run, arguments: str, says: str) -> None:
    """What the option parser refuses is told in one line that names the help; the exit code is 2."""
    said = run(*arguments.split())
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith("headwater: ")
    assert says in said.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("stream create x --partitions 0", "partitions is a number from 1 to"),
        ("stream create x --config foo", "--config 'foo' is not NAME=VALUE"),
        ("stream list --server h:1 --data d", "leave one of them out"),
        ("stream list --kafka ssl", "--kafka 'ssl' is not NAME=VALUE"),
        ("stream list --kafka group.id=x", "the SDK decides this itself"),
        ("run nowhere.py", "there is no app nowhere.py"),
        ("sql nonsense", "syntax error"),
    ],
)
def test_what_cannot_be_is_said_before_any_broker_starts(run: Run, arguments: str, says: str, tmp_path: Path) -> None:
    """An option that cannot be is refused without a broker, so no directory is made."""
    said = run(*arguments.split())
    assert said.code == 1
    assert says in said.err
    assert not (tmp_path / ".headwater" / "lock").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(run: Run, command: str) -> None:
    """--help and -h say what the command does."""
    for flag in ("--help", "-h"):
        said = run(*command.split(), flag)
        assert said.code == 0
        assert f"headwater {command}" in said.out


def test_help_lists_every_command(run: Run) -> None:
    """`headwater` alone, and `headwater --help`, list what there is."""
    assert run("--help").code == 0
    for said in (run(), run("--help")):
        for command in ("up", "stream", "publish", "tail", "run", "sql", "demo"):
            assert f" {command} " in said.out
    assert run("--version").out.startswith("headwater 0.")


def test_no_server_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address where nobody listens is named, with what to do."""
    monkeypatch.setattr("headwater.sdk.client.SDK_CONNECT_SECONDS", 0.3)
    said = run("stream", "list", "--server", "127.0.0.1:1")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "127.0.0.1:1" in said.err
    assert "headwater up" in said.err


def test_options_of_the_kafka_client_pass_through(run: Run, address: str) -> None:
    """--kafka takes what the client library knows, and an unknown one is named."""
    assert run("stream", "list", "--server", address, "--kafka", "client.id=me").code == 0
    said = run("stream", "list", "--server", address, "--kafka", "no.such=1")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "no.such" in said.err


def test_a_bad_settings_file_is_named(run: Run, tmp_path: Path) -> None:
    """A headwater.toml that cannot be read stops each command that needs it, with its name."""
    (tmp_path / "headwater.toml").write_text("port = \n")
    for command in (("stream", "list"), ("sql", "select 1")):
        said = run(*command)
        assert (said.code, said.err.count("\n")) == (1, 1)
        assert "headwater.toml cannot be read" in said.err


def test_commands_share_the_embedded_broker_of_a_directory(tmp_path: Path) -> None:
    """Without an address the first command starts a broker, the next ones find it, and a second `up` names it.

    Ctrl-C ends `publish` while it waits for its input.
    """
    environ = {**os.environ, "HEADWATER_LINGER": "2"}

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "headwater", *arguments], cwd=tmp_path, env=environ, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    assert start("stream", "create", "orders", "--partitions", "1").communicate(timeout=30)[0].startswith("orders: 1")
    publishing = start("publish", "orders", "--json")
    assert publishing.stdin is not None
    assert publishing.stdout is not None
    publishing.stdin.write("live\n")
    publishing.stdin.flush()
    assert '"offset": 0' in publishing.stdout.readline()  # acknowledged though the input goes on
    held = start("up", "--port", "0")
    assert "is held by process" in held.communicate(timeout=30)[1]
    assert held.returncode == 1
    publishing.send_signal(signal.SIGINT)
    assert "1 records were acknowledged" in publishing.communicate(timeout=30)[1]
    assert publishing.returncode == 130
    assert "live" in start("tail", "orders", "--from-start", "--no-follow").communicate(timeout=30)[0]
    deadline = time.monotonic() + 20
    from headwater.store import directory

    while directory.holder(tmp_path / ".headwater") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
