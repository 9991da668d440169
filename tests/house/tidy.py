"""The rules of STYLE.md that a program can hold: each is a function from files to complaints.

A complaint is one line: where, what, and what to do. `test_tidy.py` runs every rule over the tree, and over a bad
example of its own, so that a rule that cannot fail is noticed.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
GENERATED = "src/headwater/wire/messages/"
VAGUE = frozenset({"utils", "util", "helpers", "common", "core", "manager", "base", "misc"})
# One word per concept (STYLE.md): what other systems say, and what we say. Held for exported names and doc headings.
FOREIGN_WORDS = {
    "message": "record", "messages": "records", "event": "record", "events": "records", "row": "record",
    "topic": "stream", "topics": "streams", "consumer": "group member", "subscription_group": "group",
    "watermark": "end offset", "ingest": "publish or land", "fsync": "flush",
}  # fmt: skip
WIRE_ROOMS = ("src/headwater/wire/", "src/headwater/broker/", "src/headwater/groups/")  # they speak Kafka's words
# Spelled in pieces, so that this file does not break its own rule.
HOSTS = tuple("".join(parts) for parts in (("pypi", ".org"), ("pythonhosted", ".org"), ("repo1.", "maven"), ("npmjs", ".org")))  # fmt: skip
OUTSIDE = ("../" + "shared", "/" + "work/", "/" + "root/")
PROMISE = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")

Files = Mapping[str, str]
Rule = Callable[[Files], Iterator[str]]


def files_of_the_tree() -> dict[str, str]:
    """Path -> text of each text file that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, str] = {}
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file():
            try:
                found[name] = path.read_text()
            except UnicodeDecodeError:
                continue  # golden bytes
    return found


def _code(files: Files) -> Iterator[tuple[str, str]]:
    for path, text in files.items():
        if path.endswith(".py") and not path.startswith(GENERATED):
            yield path, text


def files_are_short(files: Files) -> Iterator[str]:
    for path, text in _code(files):
        lines = text.count("\n")
        if lines > FILE_LINES_MAX:
            yield f"{path}: {lines} lines, {FILE_LINES_MAX} are allowed: the design asks for a second file"


def functions_are_short(files: Files) -> Iterator[str]:
    for path, text in _code(files):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    yield f"{path}:{node.lineno}: {node.name} has {lines} lines, {FUNCTION_LINES_MAX} are allowed: split it"


def nothing_is_promised(files: Files) -> Iterator[str]:
    for path, text in files.items():
        for number, line in enumerate(text.splitlines(), 1):
            if PROMISE.search(line):
                yield f"{path}:{number}: a promise in code: do it, or write it into UNSUPPORTED.md"


def names_say_something(files: Files) -> Iterator[str]:
    for path in files:
        for part in Path(path).with_suffix("").parts:
            if part in VAGUE:
                yield f"{path}: {part!r} says nothing: name it for what it does"


def nothing_points_outside(files: Files) -> Iterator[str]:
    for path, text in files.items():
        for number, line in enumerate(text.splitlines(), 1):
            for mark in (*HOSTS, *OUTSIDE):
                if mark in line:
                    yield f"{path}:{number}: {mark!r}: the repository names no registry, and nothing outside of itself"


def exported_names_use_our_words(files: Files) -> Iterator[str]:
    for path, text in _code(files):
        if not path.startswith("src/headwater/") or path.startswith(WIRE_ROOMS):
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name[0] != "_":
                for word in _words(node.name):
                    if word in FOREIGN_WORDS:
                        yield f"{path}:{node.lineno}: {node.name}: say {FOREIGN_WORDS[word]!r} for {word!r} (STYLE.md)"


def headings_use_our_words(files: Files) -> Iterator[str]:
    for path, text in files.items():
        if not path.endswith(".md"):
            continue
        for number, line in enumerate(_without_fences(text), 1):
            if line.startswith("#"):
                for word in re.findall(r"[a-z_]+", re.sub(r"`[^`]*`", "", line).lower()):
                    if word in FOREIGN_WORDS:
                        yield f"{path}:{number}: heading says {word!r}: say {FOREIGN_WORDS[word]!r} (STYLE.md)"


def tests_say_a_behaviour(files: Files) -> Iterator[str]:
    for path, text in _code(files):
        if not path.startswith("tests/"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                said = ast.get_docstring(node) or ""
                if len(said.split()) < 3:
                    yield f"{path}:{node.lineno}: {node.name}: its first line must be a sentence of behaviour"


def tests_do_not_sleep(files: Files) -> Iterator[str]:
    """A poll inside a `while` or `for` is a wait for a condition; anything else is a guess about time."""
    for path, text in _code(files):
        if not path.startswith("tests/"):
            continue
        tree = ast.parse(text)
        waiting = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.While | ast.For | ast.AsyncFor)
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "sleep"
                and id(node) not in waiting
            ):
                yield f"{path}:{node.lineno}: a sleep: wait for the condition, with a deadline"


def modules_are_used(files: Files) -> Iterator[str]:
    """A module that nobody names is dead; entry points are named in pyproject.toml or the Makefile."""
    texts = {path: text for path, text in files.items() if not path.endswith(".md")}
    everything = "\n".join(texts.values())
    for path in files:
        if not path.startswith(("src/", "tools/", "bench/")) or not path.endswith(".py"):
            continue
        stem = Path(path).stem
        if stem in {"__init__", "__main__", "conftest"} or path.startswith(GENERATED):
            continue
        name = re.compile(rf"\b{re.escape(stem)}\b")
        if len(name.findall(everything)) == len(name.findall(texts[path])):
            yield f"{path}: nobody imports or runs it: delete it"


def pages_are_linked(files: Files) -> Iterator[str]:
    pages = "\n".join(text for path, text in files.items() if path.endswith(".md"))
    for path in files:
        if path.startswith("docs/") and path.endswith(".md") and Path(path).name not in pages:
            yield f"{path}: no page links to it: a reader never finds it"


def links_lead_somewhere(files: Files) -> Iterator[str]:
    for path, text in files.items():
        if not path.endswith(".md"):
            continue
        prose = re.sub(r"`[^`\n]*`", "", "\n".join(_without_fences(text)))
        for target in re.findall(r"\]\(([^)#\s]+)", prose):
            if "://" in target:
                continue
            found = (Path(path).parent / target).as_posix()
            place = str(Path(found)) if ".." not in found else _resolved(found)
            if place not in files and not any(name.startswith(place.rstrip("/") + "/") for name in files):
                yield f"{path}: links to {target!r}, which is not there"


def _resolved(path: str) -> str:
    parts: list[str] = []
    for part in Path(path).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _words(name: str) -> list[str]:
    return (
        re.findall(r"[a-z]+|[A-Z][a-z]*", name)
        if "_" in name
        else [w.lower() for w in re.findall(r"[A-Z]?[a-z]+", name)]
    )


def _without_fences(text: str) -> Iterator[str]:
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            yield ""
        else:
            yield "" if fenced else line


RULES: dict[Rule, Files] = {
    files_are_short: {"src/headwater/x.py": "x = 1\n" * (FILE_LINES_MAX + 1)},
    functions_are_short: {"src/headwater/x.py": "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX},
    nothing_is_promised: {"src/headwater/x.py": "# TO" + "DO: later\n"},
    names_say_something: {"src/headwater/utils.py": ""},
    nothing_points_outside: {"README.md": "see ../" + "shared/design\n"},
    exported_names_use_our_words: {"src/headwater/sdk/x.py": "class TopicReader: ...\n"},
    headings_use_our_words: {"docs/x.md": "# Reading messages\n"},
    tests_say_a_behaviour: {"tests/test_x.py": "def test_x():\n    pass\n"},
    tests_do_not_sleep: {"tests/test_x.py": "import time\ntime.sleep(1)\n"},
    modules_are_used: {"src/headwater/orphan.py": ""},
    pages_are_linked: {"docs/lonely.md": "# Alone\n"},
    links_lead_somewhere: {"README.md": "[here](docs/nowhere.md)\n"},
}
