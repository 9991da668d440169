from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.cli.app import main
from headwater.testing import broker

_numbers = itertools.count()


class Said(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Said]


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with broker() as server:
        yield server.address


@pytest.fixture(autouse=True)
def an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("HEADWATER_", "STREAM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """One command as `headwater ...` runs it; `stdin` is what it is fed."""

    def one(*arguments: str, stdin: bytes = b"") -> Said:
        given = tmp_path / "stdin"
        given.write_bytes(stdin)
        with given.open() as fed:
            monkeypatch.setattr(sys, "stdin", fed)
            capfd.readouterr()
            code = main(list(arguments))
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return one


@pytest.fixture
def hw(run: Run, address: str) -> Run:
    """As `run`, on a live broker."""
    return lambda *arguments, stdin=b"": run(*arguments, "--server", address, stdin=stdin)


@pytest.fixture
def name() -> str:
    """A stream's name that nobody used before."""
    return f"s{next(_numbers)}"
