"""Options that several commands share, and the way from a command to the async SDK."""

from __future__ import annotations

import asyncio
import base64
import json
import math
from collections.abc import Callable, Coroutine, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from headwater.errors import InvalidOption

T = TypeVar("T")

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        envvar="HEADWATER_URL",
        help="Any Kafka address; without it the broker of the data directory, or one started for this command.",
    ),
]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIRECTORY", help="The data directory; ./.headwater otherwise.")
]
Kafka = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka",
        metavar="NAME=VALUE",
        help="An option of the Kafka client, such as security.protocol=SSL; may be given several times.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: one JSON object a line.")]
StreamArgument = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")]


def on_server(
    server: str | None, data: Path | None, kafka: Sequence[str] | None, work: Callable[[Any], Coroutine[Any, Any, T]]
) -> T:
    """Runs `work(client)` with a client of `server`, or of the broker of `data`."""
    import headwater

    if server and data:
        raise InvalidOption(
            "--data and --server (or HEADWATER_URL) both say where the broker is: leave one of them out"
        )

    options = pairs(kafka or (), "--kafka")

    async def session() -> T:
        async with headwater.connect(server, kafka=options, data=data) as hw:
            return await work(hw)

    return asyncio.run(session())


def pairs(given: Sequence[str], what: str) -> dict[str, str]:
    """`name=value` arguments as a mapping."""
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise InvalidOption(f"{what} {one!r} is not NAME=VALUE: write it as in {what} {one.strip('=') or 'a'}=b")
        found[name] = value
    return found


def emit(fact: dict[str, Any]) -> None:
    """One line for programs, there at once: whoever reads it may wait for it."""
    try:
        line = json.dumps(fact, default=_plain, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # rare, and the way around it is slow
        line = json.dumps(_as_json(fact), default=_plain, ensure_ascii=False, allow_nan=False)
    print(line, flush=True)


def _as_json(value: Any) -> Any:
    """What JSON knows: NaN and infinities are text (floats are parsed from it everywhere), and so is every key."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(_plain(key)): _as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _plain(value: object) -> object:
    """What JSON has no word for. Bytes that are no text are an object, so that nobody takes them for text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)
