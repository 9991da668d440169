"""Writes docs/reference/ from the code: what there is to say about a name stands once, where the name is.

    python -m tools.generate_reference            writes the pages
    python -m tools.generate_reference --check    says which page is not what the code says

A test compares (tests/house/test_docs.py).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from kafka.errors import for_code

import headwater
from headwater import errors
from headwater.cli.app import app
from headwater.config import Settings
from headwater.sdk.declare.options import StreamOptions
from headwater.store import configs

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
MADE = "<!-- Made by `make reference` from {source}: change it there. -->\n"


def pages() -> dict[str, str]:
    """File name -> what stands in it."""
    return {
        "cli.md": "".join(_cli()),
        "api.md": "".join(_api()),
        "errors.md": "".join(_errors()),
        "settings.md": "".join(_settings()),
    }


# --- the command line ------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, Any]]:
    """Each command by its whole name; `up` too, whose flags are the settings."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            for inner, one in command.commands.items():
                yield f"{name} {inner}", one
        else:
            yield name, command


def flags(command: Any) -> Iterator[tuple[str, str]]:
    """The options of a command: as they are written, and what they say."""
    for one in command.params:
        if one.opts[0].startswith("-"):
            written = ", ".join(f"`{flag}`" for flag in sorted([*one.opts, *one.secondary_opts], key=len, reverse=True))
            value = f" {one.metavar}" if one.metavar else ""
            yield f"{written}{value}", one.help or ""


def _cli() -> Iterator[str]:
    yield "# The command line\n\n" + MADE.format(source="`src/headwater/cli`")
    yield (
        "\nExit codes: 0 done; 1 it could not be done, with one line on stderr that says what to do; 2 it was asked in a"
        "\nwrong way; 130 Ctrl-C. `headwater --install-completion` completes commands and options in your shell.\n"
    )
    for name, command in sorted(commands(), key=lambda one: _ORDER.index(one[0].split()[0])):
        if name == "up":
            yield f"\n## `headwater up`\n\n{command.help}\n"
            yield "\nIts flags are the [settings](settings.md): `--port 0` for `port`, and so on.\n"
            continue
        arguments = [one for one in command.params if not one.opts[0].startswith("-")]
        usage = " ".join(_bracketed(one) for one in arguments)
        yield f"\n## `headwater {name}{' ' if usage else ''}{usage}`\n\n{command.help}\n\n"
        rows = [(f"`{one.metavar}`", getattr(one, "help", "") or "") for one in arguments]
        yield from _table(("", "means"), [*rows, *flags(command)])


_ORDER = ("up", "stream", "publish", "tail", "run", "sql", "demo")


def _bracketed(argument: Any) -> str:
    shown = str(argument.metavar or argument.name.upper())
    return shown if argument.required or shown.startswith("[") else f"[{shown}]"


# --- the settings ----------------------------------------------------------------------------------


def _settings() -> Iterator[str]:
    yield "# Settings\n\n" + MADE.format(source="`config.Settings` and `store/configs.py`")
    yield (
        "\nOf a broker: a flag of `headwater up` (`--num-partitions 8`) wins over the environment"
        "\n(`HEADWATER_NUM_PARTITIONS=8`), that over `headwater.toml` in the directory it is started in"
        "\n(`num_partitions = 8`), that over the default.\n\n"
    )
    rows = []
    for one in dataclasses.fields(Settings):
        also = f"; also `{one.metadata['env']}`" if one.metadata["env"] else ""
        default = f"`{one.default}`" if one.default != "" else "(none)"
        rows.append((f"`{one.name}`", default, one.metadata["unit"], one.metadata["reason"] + also))
    yield from _table(("setting", "default", "unit", "why, or what it does"), rows)
    yield (
        "\n## Configs of a stream\n\nGiven when it is created (`config={...}`, `headwater stream create --config"
        " NAME=VALUE`, or CreateTopics),\nand not changed afterwards. One that can be *set* has its effect; one that is"
        " *fixed* may be given with exactly this value;\nwhat belongs to the *broker* is refused with the setting's name;"
        " every other name is refused.\n\n"
    )
    found = configs.describe({}, Settings(), created_ms=0, updated_ms=0)
    kinds = {True: "broker, or told", False: "fixed"}
    rows = [
        (
            f"`{one.name}`",
            "(time)" if one.name.startswith("headwater.") else f"`{one.value}`",
            "set"
            if one.name in configs._SETTABLE  # noqa: SLF001  told apart here only
            else kinds[one.read_only],
            one.doc,
        )
        for one in found
    ]
    yield from _table(("config", "default", "", "what it is"), rows)


# --- the public names ------------------------------------------------------------------------------


def _api() -> Iterator[str]:
    yield "# The Python API\n\n" + MADE.format(source="`headwater.__all__` and the docstrings")
    yield (
        "\nEverything public is imported from `headwater`. A name that begins with an underscore, or is not here, is not"
        "\npublic; `headwater.testing` (a broker for tests) and `headwater.lake` (tables from Python) are, beside it.\n"
    )
    for name in sorted(headwater.__all__, key=lambda one: (_RANK.get(one, 99), one)):
        yield from _entry(name, getattr(headwater, name))
    yield "\n## Options of a stream\n\n`Stream(name, **options)`, `StreamConfig(**options)` and `hw.stream(name, **options)` take:\n\n"
    notes = _comments(inspect.getsource(StreamOptions))
    rows = [(f"`{one}`", f"`{hint}`", notes.get(one, "")) for one, hint in StreamOptions.__annotations__.items()]
    yield from _table(("option", "type", ""), [(a, _type(b), c) for a, b, c in rows])
    yield "\nAny other name is refused, with a suggestion; one that is known and not built yet says so.\n"


_RANK = {
    name: rank
    for rank, name in enumerate(
        ["connect", "Client", "Stream", "StreamConfig", "Outgoing", "Receipt", "Group", "Reader", "Record", "GroupRecord",
         "Headers", "Subscription", "Table", "OlapTable", "Key"]
    )
}  # fmt: skip
_BETWEEN_ROOMS = {  # of public classes: what one file of the SDK needs of another, and no program
    "Client": {"member", "let_go", "add", "remove", "require", "create", "publish", "publish_many", "options"},
    "Stream": {"bound", "client"},
    "Subscription": {"joined"},
}


def _type(hint: str) -> str:
    found = re.search(r"ForwardRef\('(.*?)'", hint)
    return f"`{found[1]}`".replace("|", "\\|") if found else hint


def _comments(source: str) -> dict[str, str]:
    return {found[1]: found[2] for found in re.finditer(r"^    (\w+): [^#\n]+#\s*(.+)$", source, re.MULTILINE)}


def _entry(name: str, value: Any) -> Iterator[str]:
    if not inspect.isclass(value) and not inspect.isfunction(value):
        yield f"\n## `{name}`\n\nA type: `{value}`.\n".replace("typing.", "").replace("datetime.timedelta", "timedelta")
        return
    if inspect.isfunction(value):
        yield f"\n## `{_signature(name, value)}`\n\n{_doc(value)}\n"
        return
    alias = "" if value.__name__ == name else f"Another name of `{value.__name__}`.\n"
    yield f"\n## `{name}`\n\n{alias or _doc(value)}\n"
    if alias:
        return
    if dataclasses.is_dataclass(value):
        shown = [one for one in dataclasses.fields(value) if not one.name.startswith("_")]
        yield "\n" + ", ".join(f"`{one.name}: {one.type}`" for one in shown) + "\n"
    rows = [(f"`{said}`", doc) for said, doc in _members(value)]
    if rows:
        yield "\n"
        yield from _table(("", ""), rows)


def _members(value: type) -> Iterator[tuple[str, str]]:
    for name, member in vars(value).items():
        if name.startswith("_") or name in _BETWEEN_ROOMS.get(value.__name__, ()):
            continue
        if isinstance(member, property):
            yield f".{name}", _doc(member.fget, "")
        elif inspect.isfunction(member):
            prefix = "await " if inspect.iscoroutinefunction(member) else ""
            yield f"{prefix}.{_signature(name, member)}", _doc(member, "")


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    given = [
        one.replace(annotation=_Raw(one.annotation)) for one in signature.parameters.values() if one.name != "self"
    ]
    return name + str(signature.replace(parameters=given, return_annotation=_Raw(signature.return_annotation)))


class _Raw:
    """An annotation as it stands in the file, without the quotes that `inspect` puts around it."""

    def __init__(self, text: object) -> None:
        self._text = str(text)

    def __repr__(self) -> str:
        return self._text


def _doc(value: Any, otherwise: str = "") -> str:
    return inspect.cleandoc(getattr(value, "__doc__", None) or otherwise)


# --- the errors ------------------------------------------------------------------------------------


def _errors() -> Iterator[str]:
    yield "# Errors\n\n" + MADE.format(source="`src/headwater/errors.py`")
    yield (
        "\nEverything that Headwater raises is a `headwater.HeadwaterError`; the others are in `headwater.errors`. The"
        "\ntree says who must act. Each message says what happened, why, and what to do.\n"
    )
    for heading, root in _CHAPTERS.items():
        yield f"\n## {heading}\n\n{_doc(root)}\n\n"
        found = [
            one for one in root.__subclasses__() if one is not errors.WireError and one.__module__ == errors.__name__
        ]
        if root is errors.WireError:
            rows = [(f"`{one.__name__}`", str(_code(one)), for_code(_code(one)).message, _line(one)) for one in found]
            yield from _table(("error", "code", "Kafka's name", ""), sorted(rows, key=lambda row: int(row[1])))
        else:
            yield from _table(("error", "when"), [(f"`{one.__name__}`", _line(one)) for one in found])


_CHAPTERS: dict[str, type[errors.HeadwaterError]] = {
    "The caller": errors.CallerError,
    "The caller, in the words of Kafka's protocol": errors.WireError,
    "The other end of a connection": errors.PeerError,
    "The operator": errors.OperatorError,
}


def _code(error: type) -> int:
    assert issubclass(error, errors.WireError)
    return error.code


def _line(value: type) -> str:
    return _doc(value) if value.__doc__ and "__doc__" in vars(value) else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|\n"
    for row in rows:
        yield "| " + " | ".join(_cell(one) for one in row) + " |\n"


def _cell(text: str) -> str:
    """One line; paragraphs are kept apart, and what is no code yet may not end the cell."""
    flat = "<br>".join(" ".join(textwrap.dedent(one).split()) for one in text.split("\n\n"))
    return re.sub(r"(?<!\\)\|", r"\\|", flat)


def main() -> int:
    stale = [name for name, text in pages().items() if _there(name) != text]
    if "--check" in sys.argv:
        print("\n".join(f"docs/reference/{name} is not what the code says: make reference" for name in stale))
        return bool(stale)
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
    print(f"docs/reference: {', '.join(stale) or 'nothing'} changed")
    return 0


def _there(name: str) -> str:
    file = FOLDER / name
    return file.read_text() if file.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
