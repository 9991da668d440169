"""`headwater stream create | list | describe | delete`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, cast

import typer

from headwater.cli.options import Json, Server, emit, on_server, pairs

app = typer.Typer(help="Make, list, describe and delete streams.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="1 to 249 characters of A-Za-z0-9._-")]


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option(help="Fixed at creation; the server's default otherwise (4).")
    ] = None,
    persistence: Annotated[
        str | None, typer.Option(help="file_async (flushed within 50 ms) or file_sync (flushed before each ack).")
    ] = None,
    replication_factor: Annotated[int | None, typer.Option(help="For a cluster; leave it out on one broker.")] = None,
    config: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, a raw topic config; may be repeated.")] = None,
    server: Server = None,
) -> None:
    """Make a stream; one that exists already is fine if it is as you say."""
    given: dict[str, Any] = {
        "partitions": partitions,
        "persistence": cast("Literal['file_async', 'file_sync'] | None", persistence),
        "replication_factor": replication_factor,
        "config": pairs(config, "--config") if config else None,
    }
    options = {option: value for option, value in given.items() if value is not None}

    async def work(hw: Any) -> None:
        stream = await hw.stream(name, **options).create()
        print(_line(await stream.describe()))

    on_server(server, work)


@app.command("list")
def list_streams(server: Server = None, json_lines: Json = False) -> None:
    """List the streams of a server."""

    async def work(hw: Any) -> list[str]:
        return cast("list[str]", await hw.streams())

    for name in on_server(server, work):
        if json_lines:
            emit({"name": name})
        else:
            print(name)


@app.command()
def describe(name: Name, server: Server = None, json_lines: Json = False) -> None:
    """Show a stream's partitions with their offsets, its configs, id and times."""
    found = on_server(server, lambda hw: hw.describe(name))
    if json_lines:
        emit({key: value for key, value in asdict(found).items() if key != "all_configs"})
        return
    from rich.console import Console
    from rich.table import Table

    print(_line(found))
    print(f"id {found.id}, created {found.created or 'unknown'}, updated {found.updated or 'unknown'}")
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
) -> None:
    """Delete a stream with its records and cursors. Tables that it landed in stay."""

    async def count(hw: Any) -> int | None:
        return (await hw.describe(name)).record_count if await hw.exists(name) else None

    records = None if yes else on_server(server, count)
    if not yes and records is not None:
        typer.confirm(f"delete {name} with its {records} records and all cursors?", abort=True)
    on_server(server, lambda hw: hw.delete(name))


def _line(found: Any) -> str:
    return f"{found.name}: {len(found.partitions)} partitions, {found.persistence}, {found.record_count} records"
