"""`headwater sql` on tables that have landed, the queries that pages show among them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from headwater import Key, Stream, Table
from tests.unit.cli.conftest import Run
from tests.unit.lake.models import Lake, Polled

ROOT = Path(__file__).resolve().parents[3]


class Order(BaseModel):
    id: Key[str]
    country: str
    total: float


@pytest.fixture
def landed(tmp_path: Path) -> None:
    """Two orders, one of them with a country that a terminal should not be shown, and something that is no order."""
    stream = Stream[Order]("orders", destination=Table[Order]("orders"))
    values = [
        {"id": "a", "country": "[red]DE[/]", "total": 1.5},
        {"id": "b", "country": "\x1b[2J", "total": 2.0},
        {"id": "c", "country": "DE", "total": "plenty"},
    ]
    records = [Polled(offset, json.dumps(value).encode()) for offset, value in enumerate(values)]
    Lake(tmp_path / ".headwater", stream).land(records)


def test_people_get_a_table(run: Run, landed: None) -> None:
    """Values stand in it as they are, but for what would move the cursor."""
    said = run("sql", "select id, country, total from orders order by id")
    assert (said.code, said.err) == (0, "")
    assert "[red]DE[/]" in said.out
    assert "\x1b[2J" not in said.out
    assert "\\x1b[2J" in said.out


def test_programs_get_json(run: Run, landed: None) -> None:
    """One object a line; times and bytes as text."""
    [dead] = [
        json.loads(line)
        for line in run(
            "sql", "--json", "select _value, _key, _timestamp, error_type from orders_dead_letters"
        ).out.splitlines()
    ]
    assert json.loads(dead["_value"])["total"] == "plenty"
    assert dead["_timestamp"][10] == "T"
    assert dead["error_type"] == "ValidationError"


@pytest.mark.parametrize(
    ("query", "fact"),
    [
        ("select 'nan'::double a, ['-inf'::double] b, {'c': 'inf'::float} d", {"a": "NaN", "b": ["-Infinity"], "d": {"c": "Infinity"}}),
        ("select map{date '2024-02-29': 1.5} m, map{1: 'x'} n", {"m": {"2024-02-29": "1.5"}, "n": {"1": "x"}}),
        ("select 1 a, 2 a, 3 a_1, 4 a", {"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}),
        ("select '\\xff'::blob b, 1.10::decimal(9, 2) d, null n", {"b": {"base64": "/w=="}, "d": "1.10", "n": None}),
    ],
)  # fmt: skip
def test_json_is_json_and_keeps_every_column(run: Run, landed: None, query: str, fact: dict[str, object]) -> None:
    """Numbers that JSON lacks are text, keys are text, and of columns with one name each keeps its value."""
    said = run("sql", "--json", query)
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out, parse_constant=pytest.fail) == fact


def shown_queries() -> Iterator[str]:
    for page in ("README.md", "docs/tutorial.md"):
        for line in re.findall(r'^headwater sql .*"$', (ROOT / page).read_text(), re.MULTILINE):
            yield shlex.split(line)[2]


@pytest.mark.parametrize("query", [*shown_queries()])
def test_what_pages_ask_is_answered(run: Run, landed: None, query: str) -> None:
    """Each query that the README and the tutorial show runs on what they have landed by then."""
    said = run("sql", query)
    assert (said.code, said.err) == (0, "")


def test_a_table_that_is_not_there_is_named(run: Run, landed: None) -> None:
    """With those that are."""
    said = run("sql", "select * from payments")
    assert said.code == 1
    assert "payments" in said.err
    assert "orders" in said.err
