"""`headwater publish` and `headwater tail` against a live broker."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import publish, tail
from tests.unit.cli.conftest import Run


def records(hw: Run, name: str) -> list[dict[str, Any]]:
    said = hw("tail", name, "--from-start", "--no-follow", "--json")
    assert said.code == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


def test_a_value_is_published_and_seen(hw: Run, name: str) -> None:
    """Key, headers and value arrive as they were given, and the place is told."""
    hw("stream", "create", name, "--partitions", "1")
    said = hw("publish", name, "hello", "--key", "k", "--header", "a=1", "--header", "b=x=y")
    assert said == (0, "partition 0, offset 0\n", "")
    [one] = records(hw, name)
    assert (one["key"], one["headers"], one["value"]) == ("k", {"a": "1", "b": "x=y"}, "hello")
    assert hw("tail", name, "--from-start", "--no-follow").out.endswith(" 0:0 k  hello\n")


def test_lines_of_stdin_are_records(hw: Run, name: str) -> None:
    """Each line is a record, empty ones are not, and the last one needs no end; receipts come with --json."""
    hw("stream", "create", name, "--partitions", "1")
    assert hw("publish", name, stdin=b"one\r\ntwo\n\nthree").out == "3 records acknowledged\n"
    assert [one["value"] for one in records(hw, name)] == ["one", "two", "three"]
    said = hw("publish", name, "--json", stdin=b"4\n5\n")
    assert [json.loads(line)["offset"] for line in said.out.splitlines()] == [3, 4]
    assert hw("publish", name, stdin=b"").out == "0 records acknowledged\n"


def test_many_lines_are_sent_in_bounded_chunks(hw: Run, name: str) -> None:
    """More lines than one chunk holds all arrive, in order."""
    hw("stream", "create", name, "--partitions", "1")
    count = publish.CHUNK_RECORDS * 2 + 7
    fed = b"".join(b"%d\n" % one for one in range(count))
    assert hw("publish", name, stdin=fed).out == f"{count} records acknowledged\n"
    assert [one["value"] for one in records(hw, name)] == [str(one) for one in range(count)]


def test_bytes_that_are_no_text_pass_through(hw: Run, name: str) -> None:
    """What is no text is published as it is, and shown so that a terminal survives it."""
    hw("stream", "create", name, "--partitions", "1")
    hw("publish", name, stdin=b"\xff\xfe\n\x1b[2J\n")
    first, second = records(hw, name)
    assert first["value_base64"] == "//4="
    assert second["value"] == "\x1b[2J"
    shown = hw("tail", name, "--from-start", "--no-follow").out
    assert "\x1b" not in shown
    assert "b'\\xff\\xfe'" in shown


def test_tail_ends_after_a_count(hw: Run, name: str) -> None:
    """--count ends it though it follows."""
    hw("stream", "create", name, "--partitions", "1")
    hw("publish", name, "a", "b", "c")
    said = hw("tail", name, "--from-start", "--count", "2")
    assert [line.split()[-1] for line in said.out.splitlines()] == ["a", "b"]
    assert said.code == 0


def test_a_stream_that_is_not_there_is_named_before_anything_is_read(hw: Run) -> None:
    """Both commands name the remedy, and publish does so before it takes a line of stdin."""
    for command in (("publish", "nowhere"), ("publish", "nowhere", "x"), ("tail", "nowhere")):
        said = hw(*command)
        assert (said.code, said.out) == (1, "")
        assert "headwater stream create nowhere" in said.err
        assert said.err.count("\n") == 1


def test_what_was_acknowledged_before_an_error_is_told(hw: Run, name: str) -> None:
    """A record that is too large ends the command with the reason, and with the number of those that were written."""
    hw("stream", "create", name, "--partitions", "1")
    said = hw("publish", name, stdin=b"fits\n" * publish.CHUNK_RECORDS + b"x" * 2_000_000)
    assert said.code == 1
    assert f"{publish.CHUNK_RECORDS} records were acknowledged" in said.err
    assert "max.message.bytes" in said.err


def test_a_header_wants_a_name_and_a_value(hw: Run) -> None:
    """A header without = is refused with the way to write it."""
    said = hw("publish", "any", "x", "--header", "trace")
    assert (said.code, said.err) == (
        1,
        "headwater: --header 'trace' is not NAME=VALUE: write it as in --header trace=b\n",
    )


def test_a_pipe_that_closes_ends_tail_quietly(
    hw: Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `| head`: no traceback, exit code 0."""
    hw("stream", "create", name, "--partitions", "1")
    hw("publish", name, "a", "b")

    def closed(record: object) -> str:
        raise BrokenPipeError

    monkeypatch.setattr(tail, "_line", closed)
    stdout = os.dup(1)
    try:
        said = hw("tail", name, "--from-start")
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    assert (said.code, said.err) == (0, "")


def test_tail_waits_for_what_comes(hw: Run, run: Run, address: str, name: str) -> None:
    """Without --from-start it begins at the end and prints what is published from then on."""
    hw("stream", "create", name, "--partitions", "1")
    hw("publish", name, "old")
    done = threading.Event()

    def keep_publishing() -> None:
        import asyncio

        import headwater

        async def go() -> None:
            async with headwater.connect(address) as client:
                while not done.is_set():
                    await client.stream(headwater.Stream[str](name)).publish("new")
                    await asyncio.sleep(0.05)

        asyncio.run(go())

    writer = threading.Thread(target=keep_publishing)
    writer.start()
    try:
        said = hw("tail", name, "--count", "1")
    finally:
        done.set()
        writer.join()
    assert said.out.endswith("  new\n")
