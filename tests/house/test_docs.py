"""The documentation is run, and compared with the code.

Each ```python block of README.md, the tutorial and the guides runs against a broker, page by page. A block whose first
line is a file name is a program: it is saved under that name and started, and SIGTERM ends it once it is in `hw.run()`. Other
blocks share one namespace per page, in which `hw` is an open client. Each `headwater ...` line of a ```sh block must be
a command with options that exist.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import headwater
from headwater.broker.apis import APIS
from headwater.cli.up import read_settings
from headwater.sdk.declare.options import NOT_BUILT
from headwater.testing import broker
from tests.house.tidy import ROOT
from tools.generate_reference import commands, pages

PAGES = ["README.md", "docs/tutorial.md", *sorted(str(one.relative_to(ROOT)) for one in ROOT.glob("docs/guides/*.md"))]
# The guide to tables needs landed tables; the test named here runs its blocks on them.
ELSEWHERE = {"docs/guides/tables.md": "tests/unit/lake/test_guide.py"}
PROGRAM = re.compile(r"# (\w+\.py)\n")


class Block(NamedTuple):
    language: str
    text: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text()
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(found[1], found[2], text.count("\n", 0, found.start()) + 1)


@pytest.fixture
def a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Its address is in the environment, as that of a server would be; the directory is empty."""
    with broker() as server:
        monkeypatch.setenv("HEADWATER_URL", server.address)
        monkeypatch.chdir(tmp_path)
        yield


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_what_a_page_shows_runs(page: str, a_broker: None) -> None:
    """Copied from the page, in its order, each block of Python does what it says."""
    here = types.ModuleType("docs").__dict__
    client = headwater.connect()
    with asyncio.Runner() as runner:
        try:
            for block in blocks(page):
                program = PROGRAM.match(block.text)
                if block.language != "python":
                    continue
                if program:
                    run_program(program[1], block.text)
                    continue
                code = compile("\n" * block.line + block.text, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                if not code.co_flags & inspect.CO_COROUTINE:
                    exec(code, here)
                    continue
                if "hw" not in here:
                    here["hw"] = runner.run(client.__aenter__())
                runner.run(eval(code, here))
        finally:
            if "hw" in here:
                runner.run(client.__aexit__(None, None, None))


def run_program(name: str, text: str) -> None:
    Path(name).write_text(text)
    process = subprocess.Popen([sys.executable, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if "hw.run()" in text:
        end_when_it_runs(process, name)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, f"{name}: {err}"
    shown = re.findall(rf"^python {name} +# ([\d.]+)", (ROOT / "docs/tutorial.md").read_text(), re.MULTILINE)
    assert not shown or shown[0] in out, f"the tutorial says that {name} prints {shown[0]}"


def end_when_it_runs(process: subprocess.Popen[str], name: str) -> None:
    """`hw.run()` catches SIGTERM, which nothing before it does: that tells when it is there."""
    deadline = time.monotonic() + 30
    caught = 0
    while not caught & 1 << signal.SIGTERM - 1:
        assert process.poll() is None, f"{name} ended by itself"
        assert time.monotonic() < deadline, f"{name} does not come to hw.run()"
        time.sleep(0.01)
        said = Path(f"/proc/{process.pid}/status").read_text()
        caught = int(re.findall(r"^SigCgt:\s+(\w+)", said, re.MULTILINE)[0], 16)
    process.terminate()


def shell_lines(page: str) -> Iterator[list[str]]:
    for block in blocks(page):
        if block.language not in {"sh", ""}:
            continue
        for line in block.text.splitlines():
            for part in re.split(r"\s\|\s|&&", line.rstrip("& ")):
                if part.strip().startswith("headwater "):
                    yield shlex.split(part, comments=True)[1:]


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_a_page_shows_exist(page: str) -> None:
    """With these arguments and options."""
    known = dict(commands())
    for words in shell_lines(page):
        if words[-1:] == ["&"]:
            words.pop()
        if words[0] == "up":
            read_settings(words[1:], Path("nowhere.toml"))
            continue
        if words == ["--version"]:
            continue
        name = " ".join(words[:2]) if words[0] == "stream" else words[0]
        assert name in known, f"{page}: there is no command {name!r}"
        known[name].make_context(name, words[len(name.split()) :])


def test_every_command_is_shown_somewhere() -> None:
    """A command that no page for people shows is one that nobody finds."""
    shown = {" ".join(words[:2]) if words[0] == "stream" else words[0] for page in PAGES for words in shell_lines(page)}
    prose = "\n".join((ROOT / page).read_text() for page in PAGES)
    missing = [name for name, _ in commands() if name not in shown and f"`headwater {name}" not in prose]
    assert not missing, f"in no page: {missing}"


@pytest.mark.parametrize("name", pages())
def test_the_reference_is_what_the_code_says(name: str) -> None:
    """docs/reference is generated; `make reference` after a change."""
    assert (ROOT / "docs" / "reference" / name).read_text() == pages()[name], "run `make reference`"


def test_every_public_name_is_in_the_reference() -> None:
    """Each name of `headwater.__all__` has its heading, each command its own."""
    api = (ROOT / "docs/reference/api.md").read_text()
    cli = (ROOT / "docs/reference/cli.md").read_text()
    assert [name for name in headwater.__all__ if not re.search(rf"^## `{name}\b", api, re.MULTILINE)] == []
    assert [name for name, _ in commands() if f"## `headwater {name}" not in cli] == []


@pytest.mark.parametrize("page", ELSEWHERE)
def test_pages_that_run_elsewhere_do(page: str) -> None:
    """The test that runs them names them."""
    assert Path(page).name in (ROOT / ELSEWHERE[page]).read_text()


def names_in(page: str) -> Iterator[tuple[str, str]]:
    """`file.py` beside `name` in a page: what ARCHITECTURE.md says is where."""
    text = (ROOT / page).read_text()
    for path, names in re.findall(r"`(?:src/headwater/)?([\w/]+\.py)`((?:[:,]? `[\w.]+`)+)", text):
        for name in re.findall(r"`([\w.]+)`", names):
            if not name.endswith(".py"):
                yield path, name


def test_what_architecture_names_is_there() -> None:
    """Each file that it names exists, and holds the functions and classes named beside it."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert text.count("\n") <= 200
    for path in re.findall(r"`((?:src/headwater/)?[\w/]+\.py)`", text):
        assert any((ROOT / base / path).exists() for base in ("", "src/headwater")), f"ARCHITECTURE.md: no {path}"
    found = list(names_in("ARCHITECTURE.md"))
    assert len(found) > 20
    for path, name in found:
        file = next(ROOT / base / path for base in ("", "src/headwater") if (ROOT / base / path).exists())
        defined = re.findall(r"^\s*(?:async def|def|class) (\w+)|^(\w+)(?::| =)", file.read_text(), re.MULTILINE)
        flat = {one for pair in defined for one in pair}
        for part in name.split("."):
            assert part in flat, f"ARCHITECTURE.md: {path} has no {name}"


@pytest.mark.parametrize("page", ["docs/guides/guarantees.md", "ARCHITECTURE.md"])
def test_tests_and_mutants_that_a_page_names_are_there(page: str) -> None:
    """A promise that points to its test points to one that exists."""
    text = (ROOT / page).read_text()
    for path in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", text):
        assert (ROOT / path).exists(), f"{page}: {path} is not there"
    for line in text.splitlines():
        if line.startswith("|") and "tests/" in line:
            for mutant in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", line):
                assert (ROOT / "tests" / "mutants" / f"{mutant}.patch").exists(), f"{page}: no mutant {mutant}"


def test_the_runner_sees_a_block_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that ends badly fails its page."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="bad"):
        run_program("bad.py", textwrap.dedent("# bad.py\nraise SystemExit(3)\n"))
    assert os.listdir(tmp_path) == ["bad.py"]  # noqa: PTH208


def test_what_is_not_served_is_named() -> None:
    """Each API of Kafka is in the table of what is served, or in UNSUPPORTED.md; each refused option is named there."""
    text = (ROOT / "UNSUPPORTED.md").read_text()
    missing = [name for key, name in kafka_apis() if key not in APIS and not re.search(rf"\b{name}\b", text)]
    assert not missing, f"UNSUPPORTED.md does not name {missing}"
    assert [option for option in sorted(NOT_BUILT) if f"`{option}=`" not in text] == []


def kafka_apis() -> Iterator[tuple[int, str]]:
    """Key and name of every API that kio knows, which is made from Kafka's own definitions."""
    spec = importlib.util.find_spec("kio.schema")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    for package in pkgutil.iter_modules([str(folder)]):
        newest = max((folder / package.name).glob("v*"), key=lambda one: int(one.name[1:]), default=None)
        if newest is None or not (newest / "request.py").exists():
            continue
        module = importlib.import_module(f"kio.schema.{package.name}.{newest.name}.request")
        for name, one in vars(module).items():
            key = getattr(one, "__api_key__", None)
            if key is not None and name == "".join(part.title() for part in package.name.split("_")) + "Request":
                yield int(key), name.removesuffix("Request")


def test_all_of_kafkas_apis_are_known_to_the_test() -> None:
    """The list that UNSUPPORTED.md is held against has those we serve, and many more."""
    known = dict(kafka_apis())
    assert len(known) > 70
    assert set(APIS) <= set(known)
