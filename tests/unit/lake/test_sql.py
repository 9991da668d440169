from __future__ import annotations

import pytest

from headwater import config
from headwater.errors import QueryFailed, TableNotFound
from headwater.lake import sql
from headwater.lake.plan import needs_of
from headwater.lake.sql import _connected, _duckdb, _Scan
from tests.unit.lake.models import place, records


@pytest.fixture
def filled(lake):
    lake.land(records(0, 20, bad=[3]))
    return lake


def ask(lake, query):
    answer = sql(lake.catalog, query)
    return answer.columns, list(answer.rows)


def test_tables_go_by_both_names(filled):
    """A table of the namespace headwater answers to its name, and to its full name."""
    assert ask(filled, "SELECT count(*) AS n FROM orders") == (("n",), [(19,)])
    assert ask(filled, "SELECT n FROM headwater.orders WHERE id = '7'") == (("n",), [(7,)])
    assert ask(filled, 'select "offset" from ORDERS_dead_letters') == (("offset",), [(3,)])


def test_tables_are_listed(filled):
    """`SHOW TABLES` names what there is to ask."""
    assert ask(filled, "show tables;") == (("table",), [("headwater.orders",), ("headwater.orders_dead_letters",)])


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("SELECT a.id FROM orders a JOIN orders b USING (_offset)", 19),
        ("WITH big AS (SELECT * FROM orders WHERE n > 10) SELECT x.id FROM big x, big y", 81),
        ("SELECT id FROM orders WHERE n = (SELECT max(n) FROM headwater.orders)", 1),
        ("SELECT id FROM orders UNION ALL SELECT id FROM orders", 38),
        ("SELECT * FROM orders NATURAL JOIN (SELECT id, n FROM headwater.orders)", 19),
    ],
)
def test_a_table_can_stand_in_a_query_twice(filled, query, count):
    """Each place that names a table reads it anew, in full."""
    assert len(ask(filled, query)[1]) == count


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT * FROM orders WHERE 1 = 0", 10),
        ("SELECT * FROM orders LIMIT 0", 10),
        ("FROM orders", 10),
        ("SELECT * EXCLUDE (n) FROM orders", 9),
        ("SELECT id FROM (SELECT * FROM orders) WHERE true OR n = 1", 1),
        ("DESCRIBE orders", 6),
        ("SELECT 1", 1),
    ],
)
def test_a_query_means_the_same_with_fewer_columns_read(filled, query, columns):
    """That only the needed columns are read is not seen in any answer."""
    assert len(ask(filled, query)[0]) == columns
    assert len(ask(filled, "DESCRIBE orders")[1]) == 10


@pytest.mark.parametrize(
    ("where", "numbers", "taken"),
    [
        ("_offset = 7", [7], 1),
        ("_offset = 7 AND id = '(n = 5)'", [], 1),
        ("n > 3 AND n <= 6 AND id <> 'x'", [4, 5, 6], 2),
        ("n > 16 OR n < 2", [0, 1, 17, 18, 19], 0),
        ("NOT (n > 2)", [0, 1, 2], 1),
        ("n > 17.5", [18, 19], 0),
        ("n BETWEEN 18 AND 30", [18, 19], 2),
        ("_timestamp > '2020-01-01' AND _timestamp < '2021-01-01'", [], 2),
        ("_timestamp >= TIMESTAMPTZ '2026-01-01 00:00:00.5+02' AND n = 4", [4], 2),
        ("id = '(n = 5) AND (n = 6)'", [], 0),
        ("_timestamp > '2026-09-21 14:13:19.9' AND _timestamp < '2026-09-21 14:13:20.1' AND n < 2", [0, 1], 3),
        ("_key IS NULL AND n = 4", [4], 1),
    ],
)
def test_a_filter_leaves_out_what_it_may(filled, where, numbers, taken):
    """What a query does not want is not read where that can be told, and the answer is always the same."""
    query = f"SELECT n FROM orders WHERE {where} ORDER BY n"
    assert [row[0] for row in ask(filled, query)[1]] == numbers
    connection = _connected(_duckdb(), {"headwater.orders": _Scan(filled.catalog.load_table("headwater.orders"), None)})
    needs = needs_of(connection.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchall()[0][1])
    assert len(needs.comparisons) == taken


def test_files_that_a_filter_excludes_are_not_read(filled):
    """A look for one offset reads the file that holds it, and no other."""
    filled.land(records(20, 40))
    gone = [one for one in filled.directory.rglob("*.parquet") if "orders/data" in str(one) and "-20-" not in one.name]
    for one in gone:
        one.unlink()
    assert ask(filled, "SELECT n FROM orders WHERE _offset = 25")[1] == [(25,)]


def test_deletes_and_renames_are_honoured(filled):
    """A deleted record is gone, and a renamed column keeps its values: what bare files would get wrong."""
    filled.land(records(0, 5), place(1))
    table = filled.catalog.load_table("headwater.orders")
    table.delete("_partition = 1")
    with table.update_schema() as change:
        change.rename_column("n", "number")
    assert ask(filled, "SELECT sum(number) FROM orders")[1] == [(sum(range(20)) - 3,)]


def test_answers_are_fetched_as_they_are_asked_for(filled, monkeypatch):
    """A long answer comes in pieces, complete and in order."""
    monkeypatch.setattr(config, "SQL_FETCH_RECORDS", 4)
    assert [row[0] for row in ask(filled, "SELECT n FROM orders ORDER BY n")[1]] == [n for n in range(20) if n != 3]


def test_times_are_utc(filled):
    """A timestamp is an aware datetime in UTC, whatever the machine's zone."""
    ((moment,),) = ask(filled, "SELECT max(_timestamp) FROM orders")[1]
    assert moment.utcoffset().total_seconds() == 0


@pytest.mark.parametrize(
    ("query", "error", "says"),
    [
        ("SELECT * FROM nope", TableNotFound, "There are: orders, orders_dead_letters"),
        ("SELECT nope FROM orders", QueryFailed, r"(?s)nope(?!.*EXPLAIN)"),
        ("SELEC", QueryFailed, "syntax error"),
        ("", QueryFailed, "these are 0"),
        ("SELECT 1; SELECT 2", QueryFailed, "one statement at a time"),
        ("DELETE FROM orders", QueryFailed, "DELETE is not possible"),
        ("COPY orders TO 'x.csv'", QueryFailed, "COPY is not possible"),
        ("SELECT CAST('x' AS INT) FROM orders", QueryFailed, "Could not convert"),
    ],
)
def test_errors_say_what_to_do(filled, query, error, says):
    """A query that cannot run is one clear error: what is wrong, and which tables there are."""
    with pytest.raises(error, match=says):
        ask(filled, query)


def test_an_empty_lake_says_so(tmp_path):
    """Without any table the answer names what makes them."""
    from headwater.lake import open_catalog

    with pytest.raises(TableNotFound, match="headwater run"):
        sql(open_catalog({}, tmp_path), "SELECT * FROM orders")
