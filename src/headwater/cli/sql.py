"""`headwater sql`: one query over the landed tables, a table for people or JSON lines for programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from typing import Annotated, Any

import typer

from headwater.cli.options import Data, Json, emit
from headwater.config import Settings, catalog_properties, settings_file

ROWS_SHOWN_MAX = 1000  # on a terminal; beyond it nobody reads, and --json has them all


def sql(
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY", help='Such as "select count(*) from orders"; tables by name or namespace.name.'
        ),
    ],
    data: Data = None,
    json_lines: Json = False,
) -> None:
    """Ask the landed tables. Needs no broker: tables are read where they lie."""
    from headwater.lake import open_catalog, sql as ask

    toml = settings_file()
    home = Settings.resolve({"data": data}, os.environ, toml).data
    answer = ask(open_catalog(catalog_properties(toml), home), query)
    if json_lines:
        names = _distinct(answer.columns)
        for values in answer.rows:
            emit(dict(zip(names, values, strict=True)))
        return
    _show(answer)


def _distinct(columns: Sequence[str]) -> list[str]:
    """A join has columns of one name, and an object would keep the last: the others get `_1`, `_2`, as DuckDB's do."""
    names: list[str] = []
    for name in columns:
        free = (f"{name}_{number}" for number in count(1) if f"{name}_{number}" not in {*columns, *names})
        names.append(name if name not in names else next(free))
    return names


def _show(answer: Any) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text  # as it is: a plain str would be searched for markup

    shown = Table()
    for name in answer.columns:
        shown.add_column(Text(name))
    found = 0
    for values in answer.rows:
        found += 1
        if found <= ROWS_SHOWN_MAX:
            shown.add_row(*(Text(_harmless(value)) for value in values))
    console = Console()
    console.print(shown)
    if found > ROWS_SHOWN_MAX:
        console.print(f"{found} found, the first {ROWS_SHOWN_MAX} shown: --json prints them all")


def _harmless(value: object) -> str:
    """Text as it is, unless it would move the cursor of a terminal; then as Python writes it."""
    text = "" if value is None else str(value)
    return text if all(one.isprintable() or one in "\n\t" for one in text) else repr(text)
