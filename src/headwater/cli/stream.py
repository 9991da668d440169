"""`headwater stream create | list | describe | delete`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal, cast

import typer

from headwater.cli.options import Data, Json, Kafka, Server, emit, on_server, pairs

app = typer.Typer(help="Make, list, describe and delete streams.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="STREAM", help="1 to 249 characters of A-Za-z0-9._-")]


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Fixed at creation; the server's default otherwise (4).")
    ] = None,
    persistence: Annotated[
        Literal["file_async", "file_sync"] | None,
        typer.Option(help="file_async (flushed within 50 ms) or file_sync (flushed before each ack)."),
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(metavar="COUNT", help="For a cluster; leave it out on one broker.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A raw topic config; may be given several times."),
    ] = None,
    server: Server = None,
    data: Data = None,
    kafka: Kafka = None,
    json_lines: Json = False,
) -> None:
    """Make a stream; one that exists already is fine if it is as you say."""
    from headwater import Stream

    given: dict[str, Any] = {
        "partitions": partitions,
        "persistence": persistence,
        "replication_factor": replication_factor,
        "config": pairs(config, "--config") if config else None,
    }
    stream = Stream[Any](name, **{option: value for option, value in given.items() if value is not None})

    async def work(hw: Any) -> Any:
        return await (await hw.stream(stream).create()).describe()

    found = on_server(server, data, kafka, work)
    if json_lines:
        emit(_facts(found))
    else:
        print(_line(found))


@app.command("list")
def list_streams(server: Server = None, data: Data = None, kafka: Kafka = None, json_lines: Json = False) -> None:
    """List the streams of a server."""

    async def work(hw: Any) -> list[str]:
        return cast("list[str]", await hw.streams())

    names = on_server(server, data, kafka, work)
    for name in names:
        if json_lines:
            emit({"name": name})
        else:
            print(name)
    if not names and not json_lines:
        print("there are no streams yet: `headwater stream create NAME` makes one", file=sys.stderr)


@app.command()
def describe(
    name: Name, server: Server = None, data: Data = None, kafka: Kafka = None, json_lines: Json = False
) -> None:
    """Show a stream's partitions with their offsets, its configs, id and times."""
    found = on_server(server, data, kafka, lambda hw: hw.describe(name))
    if json_lines:
        emit(_facts(found))
        return
    from rich.console import Console
    from rich.table import Table

    print(_line(found))
    print(f"id {found.id}, created {_time(found.created)}, updated {_time(found.updated)}")
    for key, value in found.configs.items():
        print(f"{key}={value}")
    shown = Table("partition", "start", "end", "records")
    for one in found.partitions:
        shown.add_row(str(one.index), str(one.start), str(one.end), str(one.end - one.start))
    Console().print(shown)


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    server: Server = None,
    data: Data = None,
    kafka: Kafka = None,
    json_lines: Json = False,
) -> None:
    """Delete a stream with its records and cursors. Tables that it landed in stay. Deleting twice is fine."""

    async def count(hw: Any) -> int | None:
        return (await hw.describe(name)).record_count if await hw.exists(name) else None

    records = on_server(server, data, kafka, count)
    if records is not None:
        if not yes and not _sure(f"delete {name} with its {records} records and all cursors?"):
            print("nothing was deleted: answer y, or give --yes where nobody can be asked", file=sys.stderr)
            raise typer.Exit(1)
        on_server(server, data, kafka, lambda hw: hw.delete(name))
    if json_lines:
        emit({"name": name, "deleted": records is not None})
    elif records is None:
        print(f"there was no stream {name}")
    else:
        print(f"deleted {name} with its {records} records")


def _sure(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:  # Ctrl-D, Ctrl-C, or no input at all
        print(file=sys.stderr)
        return False


def _facts(found: Any) -> dict[str, Any]:
    return {key: value for key, value in asdict(found).items() if key != "all_configs"}


def _line(found: Any) -> str:
    return f"{found.name}: {len(found.partitions)} partitions, {found.persistence}, {found.record_count} records"


def _time(when: datetime | None) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC" if when is not None else "unknown"
