"""`headwater publish`: values from the command line, or one a line from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from headwater.cli.options import Server, on_server, pairs

CHUNK_RECORDS = 1000  # of standard input; acknowledged before the next are read, so that memory stays bounded


def publish(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    values: Annotated[
        list[str] | None, typer.Argument(help="Values, sent as they are; none: a value a line from stdin.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Records of one key stay in order, in one partition.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; may be repeated.")] = None,
    server: Server = None,
) -> None:
    """Publish values to a stream and wait until they are acknowledged."""
    from headwater import Outgoing, Stream

    headers = pairs(header or [], "--header")
    lines = iter(values) if values else _lines()

    async def work(hw: Any) -> None:
        raw = hw.stream(Stream[bytes](stream))
        sent = 0
        with _progress(shown=not values) as advance:
            while chunk := [
                Outgoing(one.encode("utf-8", "surrogateescape"), key=key, headers=headers)
                for one in islice(lines, CHUNK_RECORDS)
            ]:
                receipts = await raw.publish_many(chunk)
                sent += len(receipts)
                advance(sent)
        if sent == 1:
            print(f"partition {receipts[0].partition}, offset {receipts[0].offset}")
        else:
            print(f"{sent} records acknowledged")

    on_server(server, work)


def _lines() -> Iterator[str]:
    for line in sys.stdin:
        if text := line.rstrip("\n"):
            yield text


class _progress:  # noqa: N801  a context manager that reads like the word
    """Counts on a terminal's stderr while standard input is sent; silent elsewhere."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown and sys.stderr.isatty()

    def __enter__(self) -> Any:
        return self._advance

    def __exit__(self, *_: object) -> None:
        if self._shown:
            print(file=sys.stderr)

    def _advance(self, sent: int) -> None:
        if self._shown:
            print(f"\r{sent} records", end="", file=sys.stderr, flush=True)
