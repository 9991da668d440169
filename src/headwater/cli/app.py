"""The command line: one file per command, each of which parses, calls and prints. Errors are one line with the remedy.

`up` is not parsed here (see `headwater.__main__`): the broker must be ready before this library would be imported.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headwater.cli import demo_command, publish, run, sql, stream, tail
from headwater.errors import HeadwaterError

app = typer.Typer(
    name="headwater",
    help="A durable, Kafka-compatible log that comes with pip install; typed streams; tables on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(stream.app, name="stream")
app.command("publish")(publish.publish)
app.command("tail")(tail.tail)
app.command("run")(run.run)
app.command("sql")(sql.sql)
app.command("demo")(demo_command.demo)


@app.command("up", context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []})
def up(context: typer.Context) -> None:
    """Start a broker here and serve until SIGTERM or Ctrl-C (`headwater up --help` lists its settings)."""
    from headwater.cli.up import main as serve

    raise typer.Exit(serve(context.args))


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(f"headwater {installed('headwater')}")
        raise typer.Exit


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; what the caller or the operator must mend is said in one line."""
    try:
        app(args=arguments, standalone_mode=True)
    except HeadwaterError as why:
        print(f"headwater: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `headwater tail x | head`: the reader has seen enough
        sys.stderr.close()
        return 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0
