"""The command line: one file per command, each of which parses, calls and prints. Errors are one line with the remedy.

`up` is not parsed here (see `headwater.__main__`): the broker must be ready before this library would be imported.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

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
    """Start a broker here and serve until SIGTERM or Ctrl-C."""
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
    """Runs one command; what the caller or the operator must mend is said in one line.

    Exit codes: 0 done, 1 it could not be done, 2 it was asked in a wrong way, 130 Ctrl-C.
    """
    try:
        code = app(args=arguments, prog_name="headwater", standalone_mode=False)
        sys.stdout.flush()
    except HeadwaterError as why:
        return _complain(str(why), 1)
    except typer.Abort:
        return _complain("given up", 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `headwater tail x | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter's last flush succeeds
        return 0
    except Exception as why:
        if not hasattr(why, "format_message"):
            raise
        return _usage(why)
    return code if isinstance(code, int) else 0


def _usage(why: Any) -> int:
    """An error of the option parser, which typer would draw as a box over five lines."""
    context, said = getattr(why, "ctx", None), why.format_message().replace("Value error, ", "")
    path = context.command_path if context is not None else "headwater"
    if type(why).__name__ == "NoArgsIsHelpError":  # its message is the help, which is what was wanted
        print(said)
        return 2
    return _complain(f"{said.rstrip('.')[:1].lower()}{said.rstrip('.')[1:]}: see `{path} --help`", 2)


def _complain(said: str, code: int) -> int:
    print(f"headwater: {said}", file=sys.stderr)
    return code
