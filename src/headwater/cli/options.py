"""Options that several commands share, and the way from a command to the async SDK."""

from __future__ import annotations

import asyncio
import base64
import json
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
    print(json.dumps(fact, default=_plain, ensure_ascii=False), flush=True)


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
