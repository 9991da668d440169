"""`headwater publish`: values from the command line, or one a line from standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

import typer

from headwater.cli.lines import lines_of
from headwater.cli.options import Data, Json, Kafka, Server, StreamArgument, emit, on_server, pairs
from headwater.errors import PublishFailed

CHUNK_RECORDS = 1000  # acknowledged before the next are sent, so that memory stays bounded


def publish(
    stream: StreamArgument,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VALUE]...", help="Sent as they are; none: each line of stdin that is not empty."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Records of one key stay in order, in one partition.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="May be given several times.")] = None,
    server: Server = None,
    data: Data = None,
    kafka: Kafka = None,
    json_lines: Json = False,
) -> None:
    """Publish values to a stream and wait until they are acknowledged."""
    headers = pairs(header or [], "--header")

    async def work(hw: Any) -> None:
        from headwater import Outgoing, Stream

        raw = hw.stream(Stream[bytes](stream))
        await hw.require(stream)  # before the first line is typed, not after
        counted = _Count(shown=not values and sys.stderr.isatty())
        try:
            async for lines in _given(values):
                for at in range(0, len(lines), CHUNK_RECORDS):
                    chunk = lines[at : at + CHUNK_RECORDS]
                    receipts = await raw.publish_many([Outgoing(one, key=key, headers=headers) for one in chunk])
                    counted.add(receipts)
                    for receipt in receipts if json_lines else ():
                        emit(_facts(receipt))
        except BaseException as why:
            counted.end_early(why)
            raise
        if not json_lines:
            counted.tell()

    on_server(server, data, kafka, work)


async def _given(values: list[str] | None) -> AsyncIterator[list[bytes]]:
    if values:
        yield [os.fsencode(one) for one in values]
        return
    async for lines in lines_of(sys.stdin.fileno()):
        yield lines


def _facts(receipt: Any) -> dict[str, Any]:
    return {"partition": receipt.partition, "offset": receipt.offset, "timestamp": receipt.timestamp}


class _Count:
    """How many are acknowledged: shown on a terminal while they are sent, and told at the end, a bad one too."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._sent = 0
        self._last: Any = None

    def add(self, receipts: Sequence[Any]) -> None:
        self._sent += len(receipts)
        self._last = receipts[-1]
        if self._shown:
            print(f"\r{self._sent} records acknowledged", end="", file=sys.stderr, flush=True)

    def tell(self) -> None:
        if self._shown and self._sent:
            print(file=sys.stderr)
        if self._sent == 1:
            print(f"partition {self._last.partition}, offset {self._last.offset}")
        else:
            print(f"{self._sent} records acknowledged")

    def end_early(self, why: BaseException) -> None:
        sent = self._sent
        if isinstance(why, PublishFailed):
            sent += sum(one is not None for one in why.receipts)
        if sent:
            print(f"{self._shown * chr(10)}{sent} records were acknowledged by then", file=sys.stderr)
