"""Options that several commands share, and the way from a command to the async SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
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
        help="Any Kafka address; without it the broker of ./.headwater, or one started for this command.",
    ),
]
Data = Annotated[Path | None, typer.Option("--data", help="The data directory; ./.headwater otherwise.")]
Json = Annotated[bool, typer.Option("--json", help="For programs: one JSON object a line.")]


def on_server(server: str | None, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """Runs `work(client)` with a client of `server`."""
    import headwater

    async def session() -> T:
        async with headwater.connect(server) as hw:
            return await work(hw)

    return asyncio.run(session())


def pairs(given: Sequence[str], what: str) -> dict[str, str]:
    """`name=value` arguments as a mapping."""
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise InvalidOption(f"{what} {one!r} is not NAME=VALUE")
        found[name] = value
    return found


def emit(fact: dict[str, Any]) -> None:
    print(json.dumps(fact, default=str, ensure_ascii=False))
