"""`headwater tail`: records as they come, without a group, so that nobody's cursor moves."""

from __future__ import annotations

import base64
import sys
from typing import Annotated, Any

import typer

from headwater.cli.options import Data, Json, Kafka, Server, StreamArgument, emit, on_server


def tail(
    stream: StreamArgument,
    from_start: Annotated[bool, typer.Option("--from-start", help="Begin with the oldest record.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after this many records.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for what comes, or end at the end.")
    ] = True,
    server: Server = None,
    data: Data = None,
    kafka: Kafka = None,
    json_lines: Json = False,
) -> None:
    """Print a stream's records as they come, until Ctrl-C."""
    from headwater import Stream

    async def work(hw: Any) -> None:
        seen = 0
        raw = hw.stream(Stream[bytes](stream))
        await hw.require(stream)
        if follow and not from_start and sys.stderr.isatty():
            print(f"waiting for what comes to {stream}: --from-start shows what is there", file=sys.stderr)
        async for record in raw.records(start="beginning" if from_start else "end", follow=follow):
            if json_lines:
                emit(_facts(record))
            else:
                print(_line(record), flush=True)
            seen += 1
            if seen == count:
                return

    on_server(server, data, kafka, work)


def _line(record: Any) -> str:
    key = "" if record.key is None else f" {_shown(record.key_bytes)}"
    value = "(none)" if record.value is None else _shown(record.value)
    return f"{record.timestamp:%Y-%m-%d %H:%M:%S} {record.partition}:{record.offset}{key}  {value}"


def _shown(raw: bytes) -> str:
    """Text as it is; what is no text, or would move the cursor of a terminal, as Python writes it."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return repr(raw)
    return text if text.isprintable() else repr(text)


def _facts(record: Any) -> dict[str, Any]:
    """One record for programs; `value_base64` instead of `value` where the bytes are no text."""
    try:
        value: dict[str, Any] = {"value": None if record.value is None else record.value.decode()}
    except UnicodeDecodeError:
        value = {"value_base64": base64.b64encode(record.value).decode()}
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp.isoformat(),
        "key": None if record.key_bytes is None else record.key_bytes.decode("utf-8", "backslashreplace"),
        "headers": {
            name: None if raw is None else raw.decode("utf-8", "backslashreplace") for name, raw in record.headers.raw
        },
        **value,
    }
