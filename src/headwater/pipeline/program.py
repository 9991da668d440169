"""An app file as `headwater run` takes it: the streams it declares, checked before anything is started.

The file is imported under a name of its own, so that `json.py` can be an app, and pickled by value for the workers: they
need no copy of it on their path. Modules that lie beside it are found, here and there.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from headwater.errors import HeadwaterError, InvalidSetting, LandingRefused
from headwater.lake.tables import check_stream, dead_letters_name
from headwater.sdk.declare import Stream, declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A user's app: its name, where it lies, and the streams it lands."""

    name: str
    directory: str
    streams: tuple[Stream[Any], ...]


def load_program(path: str | Path, name: str | None = None) -> Program:
    """Imports the app at `path`. Its name is the file's stem unless `name` says otherwise."""
    file = Path(path).resolve()
    if not file.is_file():
        raise InvalidSetting(f"there is no app {path}: name a Python file that declares streams with a destination")
    chosen = name or file.stem
    if not re.fullmatch(r"[A-Za-z0-9._-]+", chosen):
        raise InvalidSetting(f"an app cannot be called {chosen!r}: use A-Za-z0-9._-, with --name if the file must stay")
    before = len(declared())
    module = _imported(file)
    streams: dict[str, Stream[Any]] = {}
    for one in declared()[before:]:
        other = streams.setdefault(one.name, one)
        if _said_of(other) != _said_of(one):
            raise LandingRefused(
                f"{path} declares the stream {one.name} twice, to land as {_said_of(other)} and as {_said_of(one)}: "
                "a stream lands in one table: take one declaration away"
            )
    for one in vars(module).values():  # declared when another import was faster
        if isinstance(one, Stream) and one.destination is not None:
            streams.setdefault(one.name, one)
    if not streams:
        raise InvalidSetting(
            f"{path} declares no stream that lands: give one a destination, as in "
            'Stream[Event]("events", destination=Table[Event]("events"))'
        )
    _refuse_collisions(tuple(streams.values()))
    return Program(name=chosen, directory=str(file.parent), streams=tuple(streams.values()))


def _imported(file: Path) -> Any:
    name = f"headwater_app_{re.sub(r'[^A-Za-z0-9]', '_', file.stem)}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InvalidSetting(f"{file} is not a Python file: name one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks names up here
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except HeadwaterError:
        raise
    except Exception as error:
        raise InvalidSetting(f"{_where(error, file)}: {_what(error)}: correct it, then run it again") from error
    cloudpickle.register_pickle_by_value(module)
    return module


def _where(error: Exception, file: Path) -> str:
    """The line of the app that went wrong, or of a module beside it: the innermost of the user's own."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{Path(error.filename).name}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if Path(one.filename).parent == file.parent]
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}" if own else file.name


def _what(error: Exception) -> str:
    said = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _said_of(stream: Stream[Any]) -> str:
    """What two declarations of a stream must agree on, as text: a module that is imported twice makes its models twice."""
    return ", ".join(f"{name}={said!r}" for name, said in sorted(stream.options.items()))


def _refuse_collisions(streams: tuple[Stream[Any], ...]) -> None:
    """Two streams may share a table, but a table of dead letters belongs to one stream."""
    owners: dict[str, str] = {}
    tables: dict[str, str] = {}
    for stream in streams:
        table, _ = check_stream(stream)
        tables.setdefault(f"{table.namespace}.{table.name}", stream.name)
        letters = f"{table.namespace}.{dead_letters_name(stream.name)}"
        if letters in owners:
            raise LandingRefused(
                f"the dead letters of the streams {owners[letters]} and {stream.name} would both land in {letters} "
                "('.' and '-' become '_'): rename one of them, or give its table another namespace"
            )
        owners[letters] = stream.name
    for letters, owner in owners.items():
        if letters in tables:
            raise LandingRefused(
                f"the table {letters} of the stream {tables[letters]} is where the dead letters of {owner} land: "
                "rename the table"
            )
