"""`headwater run app.py`: lands what the app declares, on Spark."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.options import Data, Json, Kafka, Server, emit, pairs


def run(
    app: Annotated[Path, typer.Argument(metavar="APP.PY", help="It declares streams with a destination.")],
    once: Annotated[bool, typer.Option("--once", help="Land what is there now, then end.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="The app's name; the file's stem otherwise.")] = None,
    server: Server = None,
    data: Data = None,
    kafka: Kafka = None,
    json_lines: Json = False,
) -> None:
    """Land the streams of an app in their tables, exactly once, until SIGTERM or Ctrl-C."""
    from headwater.pipeline import Progress, run as land

    def say(progress: Progress) -> None:
        if json_lines:
            emit(asdict(progress))
        else:
            print(progress.text, flush=True)

    options = pairs(kafka or (), "--kafka")
    outcome = land(app, once=once, name=name, server=server, kafka=options, data=data, say=say)
    if outcome.drained and not json_lines:
        landed = any((*outcome.records.values(), *outcome.dead_letters.values()))
        print("all of it has landed" if landed else "nothing new to land")
