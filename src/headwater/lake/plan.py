"""What a query needs of a table, read from DuckDB's plan: which columns, and which records it may leave out.

A filter found here only saves reading: DuckDB applies its own again. So whatever is not understood is left to DuckDB,
and only comparisons of a whole number or a moment with a column are taken, joined by AND, straight above the one place
that reads a table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_LITERAL = r"(-?\d+|'[-0-9:. ]+\+00'::TIMESTAMP WITH TIME ZONE)"
_COMPARISON = re.compile(rf"\(([a-z_]\w*) (=|<|<=|>|>=) {_LITERAL}\)", re.IGNORECASE)
_BETWEEN = re.compile(rf"\(([a-z_]\w*) BETWEEN {_LITERAL} AND {_LITERAL}\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Columns of all tables together, and comparisons (column, sign, literal) that every record wanted fulfils."""

    columns: frozenset[str]
    comparisons: tuple[tuple[str, str, int | str], ...]

    def filter_on(self, schema: Any) -> Any:
        """The comparisons as pyiceberg's filter, as far as they are of columns that they can be held against."""
        from pyiceberg import expressions
        from pyiceberg.types import IntegerType, LongType, TimestamptzType

        signs = {
            "=": expressions.EqualTo,
            "<": expressions.LessThan,
            "<=": expressions.LessThanOrEqual,
            ">": expressions.GreaterThan,
            ">=": expressions.GreaterThanOrEqual,
        }
        kinds = {one.name: one.field_type for one in schema.fields}
        found = expressions.AlwaysTrue()
        for column, sign, literal in self.comparisons:
            fits = (IntegerType, LongType) if isinstance(literal, int) else TimestamptzType
            if isinstance(kinds.get(column), fits):
                found = expressions.And(found, signs[sign](column, literal))
        return found


def needs_of(explained: str) -> Needs:
    """Reads the answer to `EXPLAIN (FORMAT JSON) ...`."""
    steps = list(_steps(json.loads(explained), ""))
    scans = [(step, above) for step, above in steps if step.get("name") == "PYTHON_ARROW_SCAN"]
    columns = frozenset(name for step, _ in scans for name in _said(step, "Projections"))
    comparisons: list[tuple[str, str, int | str]] = []
    if len(scans) == 1:
        for part in _joined_by_and(scans[0][1]):
            if found := _COMPARISON.fullmatch(part):
                comparisons.append((found[1], found[2], _literal(found[3])))
            elif found := _BETWEEN.fullmatch(part):  # said of open bounds too, so it is held to mean closed ones
                comparisons += [(found[1], ">=", _literal(found[2])), (found[1], "<=", _literal(found[3]))]
    return Needs(columns=columns, comparisons=tuple(comparisons))


def _steps(steps: Any, above: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Each step of the plan with the filter straight above it, or ''."""
    for step in steps:
        yield step, above
        expressions = list(_said(step, "Expression")) if step.get("name") == "FILTER" else []
        yield from _steps(step.get("children", ()), expressions[0] if len(expressions) == 1 else "")


def _said(step: dict[str, Any], name: str) -> list[str]:
    said = step.get("extra_info", {}).get(name, [])
    return [said] if isinstance(said, str) else list(said)


def _literal(text: str) -> int | str:
    """A whole number, or a moment as pyiceberg wants it."""
    return f"{text[1:].partition('+')[0].replace(' ', 'T')}+00:00" if text[0] == "'" else int(text)


def _joined_by_and(expression: str) -> list[str]:
    """The parts of `((a) AND (b) AND ...)`, or the expression alone. Quotes and brackets within parts are respected."""
    parts: list[str] = []
    depth, quoted, start = 0, False, 0
    for at, mark in enumerate(expression):
        if mark == "'":
            quoted = not quoted  # a doubled quote turns it twice
        elif not quoted and mark == "(":
            depth += 1
            if depth == 2:
                if parts and expression[start:at] != " AND ":
                    return [expression]
                start = at
        elif not quoted and mark == ")":
            if depth == 2:
                parts.append(expression[start : at + 1])
                start = at + 1
            depth -= 1
    whole = expression[:2] == "((" and expression[start:] == ")"
    return parts if whole and len(parts) > 1 else [expression]
