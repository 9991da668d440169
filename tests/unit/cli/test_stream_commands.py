"""`headwater stream ...` against a live broker."""

from __future__ import annotations

import json

from tests.unit.cli.conftest import Run


def test_a_stream_is_made_listed_described_and_deleted(hw: Run, name: str) -> None:
    """The four commands tell, each in a line, what is there."""
    assert hw("stream", "create", name, "--partitions", "2") == (
        0,
        f"{name}: 2 partitions, file_async, 0 records\n",
        "",
    )
    assert name in hw("stream", "list").out.splitlines()
    described = hw("stream", "describe", name).out
    assert described.startswith(f"{name}: 2 partitions")
    assert "created 20" in described
    assert hw("stream", "delete", name, "--yes").out == f"deleted {name} with its 0 records\n"
    assert name not in hw("stream", "list").out.splitlines()


def test_json_is_one_object_a_line(hw: Run, name: str) -> None:
    """With --json each command prints what a program can read, and nothing else."""
    made = hw("stream", "create", name, "--persistence", "file_sync", "--json")
    assert json.loads(made.out)["persistence"] == "file_sync"
    assert {"name": name} in [json.loads(line) for line in hw("stream", "list", "--json").out.splitlines()]
    described = json.loads(hw("stream", "describe", name, "--json").out)
    assert [one["end"] for one in described["partitions"]] == [0, 0, 0, 0]
    assert described["configs"] == {"flush.messages": "1"}
    assert described["created"].startswith("20")
    assert json.loads(hw("stream", "delete", name, "-y", "--json").out) == {"name": name, "deleted": True}
    assert json.loads(hw("stream", "delete", name, "-y", "--json").out) == {"name": name, "deleted": False}


def test_creating_twice_is_fine_and_a_difference_is_named(hw: Run, name: str) -> None:
    """The same words twice do nothing; other words are an error that says what is there."""
    hw("stream", "create", name, "--partitions", "2")
    assert hw("stream", "create", name, "--partitions", "2").code == 0
    assert hw("stream", "create", name).code == 0
    other = hw("stream", "create", name, "--partitions", "3")
    assert other.code == 1
    assert "partitions=2 where the program says 3" in other.err


def test_delete_asks_and_takes_no_answer_for_a_no(hw: Run, name: str) -> None:
    """Without --yes it asks; nothing on stdin, and anything but y, deletes nothing."""
    hw("stream", "create", name)
    for answer in (b"", b"n\n"):
        said = hw("stream", "delete", name, stdin=answer)
        assert said.code == 1
        assert "nothing was deleted" in said.err
        assert "--yes" in said.err
    assert hw("stream", "delete", name, stdin=b"y\n").code == 0
    assert hw("stream", "delete", name, "--yes") == (0, f"there was no stream {name}\n", "")


def test_what_the_server_refuses_is_one_line(hw: Run, name: str) -> None:
    """A config that is not built, an unknown one and a name that cannot be are refused by name."""
    for config in ("retention.ms=1000", "no.such.config=1", "compression.type=gzip"):
        said = hw("stream", "create", name, "--config", config)
        assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
        assert config.partition("=")[0] in said.err
    assert "bad name" in hw("stream", "create", "bad name").err
    missing = hw("stream", "describe", "nowhere")
    assert (missing.code, missing.out) == (1, "")
    assert "headwater stream create nowhere" in missing.err
