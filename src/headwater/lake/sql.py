"""SQL over landed tables: DuckDB computes, pyiceberg reads.

pyiceberg's readers know about deletes and renamed columns; DuckDB on the bare files would not, and answer wrongly. A
table is read anew for each place in the query that names it (a reader of batches can be read once), and only as far as the query
needs it: DuckDB is first asked for its plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater import config
from headwater.errors import NotInstalled, QueryFailed, TableNotFound
from headwater.lake.catalog import NAMESPACE, load_table, table_names
from headwater.lake.plan import Needs, needs_of

# What answers by a table's columns, and not only by those that its plan reads.
_NEEDS_ALL = re.compile(
    r"\b(summarize|describe|desc|show|explain|pivot|unpivot|columns|natural|by\s+name)\b", re.IGNORECASE
)

_SHOW_TABLES = re.compile(r"\s*show\s+tables\s*;?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a query found: names of the columns, and its lines, fetched as they are asked for."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


def sql(catalog: Any, query: str) -> Answer:
    """Runs one SELECT, or `SHOW TABLES`. Tables go by `namespace.name`, those of the namespace `headwater` by `name` too.

    Each table is read as it was when the query began.
    """
    if _SHOW_TABLES.fullmatch(query):  # DuckDB knows only those that a query names
        return Answer(columns=("table",), rows=iter([(name,) for name in table_names(catalog)]))
    duckdb = _duckdb()
    tables = {name: load_table(catalog, name) for name in _named_in(duckdb, query, table_names(catalog))}
    try:
        connection = _connected(duckdb, {name: _Scan(table, None) for name, table in tables.items()})
        if tables and not _NEEDS_ALL.search(query):
            connection = _narrowed(duckdb, connection, tables, query)
        result = connection.execute(query)
    except duckdb.Error as error:
        raise _failed(duckdb, error, catalog) from error
    return Answer(columns=tuple(one[0] for one in result.description or ()), rows=_fetched(duckdb, result))


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise NotInstalled("SQL needs DuckDB, which comes with: pip install 'headwater[spark]'") from None
    return duckdb


def _named_in(duckdb: Any, query: str, there: Iterable[str]) -> list[str]:
    """The tables that a query may read, by the last part of their names. Refuses what is not one SELECT."""
    connection = duckdb.connect()
    try:
        statements = connection.extract_statements(query)
        if len(statements) != 1:
            raise QueryFailed(f"one statement at a time, and these are {len(statements)}: send them one by one")
        if statements[0].type.name not in {"SELECT", "EXPLAIN"}:
            raise QueryFailed(
                f"{statements[0].type.name} is not possible: SQL here reads tables (SELECT), streams write them"
            )
        said = {name.split(".")[-1].lower() for name in connection.get_table_names(query)}
    except duckdb.ParserException as error:
        raise QueryFailed(str(error)) from None
    except duckdb.Error:
        return list(there)  # DuckDB cannot say (`explain`, say): register them all, reading none
    finally:
        connection.close()
    return [name for name in there if name.split(".")[-1].lower() in said]


class _Scan:
    """A table as DuckDB asks for it: once for its columns, and for a new reader each time it is read."""

    def __init__(self, table: Any, needs: Needs | None) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        names = [one.name for one in table.schema().fields]
        if needs is None:
            self._scan = table.scan()
        else:
            chosen = [one for one in names if one in needs.columns] or _cheapest(names)
            self._scan = table.scan(row_filter=needs.filter_on(table.schema()), selected_fields=tuple(chosen))
        self._schema: pa.Schema = schema_to_pyarrow(self._scan.projection(), include_field_ids=False)

    def __arrow_c_schema__(self) -> Any:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = self._scan.to_arrow_batch_reader()
        if reader.schema != self._schema:
            reader = reader.cast(self._schema)
        return reader.__arrow_c_stream__()


def _cheapest(names: list[str]) -> list[str]:
    """A column to count by: one that holds the same value thousands of times."""
    return ["_partition"] if "_partition" in names else names[:1]


def _connected(duckdb: Any, scans: Mapping[str, _Scan]) -> Any:
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "threads": "2"})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET python_enable_replacements = false")  # a name must not find our own variables
    for at, (name, scan) in enumerate(scans.items()):
        namespace, _, table = name.rpartition(".")
        connection.register(f"__scan_{at}", scan)
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(namespace)}")
        connection.execute(f'CREATE VIEW {_quoted(namespace)}.{_quoted(table)} AS FROM "__scan_{at}"')
        if namespace == NAMESPACE:
            connection.execute(f'CREATE VIEW main.{_quoted(table)} AS FROM "__scan_{at}"')
    return connection


def _narrowed(duckdb: Any, connection: Any, tables: Mapping[str, Any], query: str) -> Any:
    """The same tables with only what the query needs of them, unless it would mean something else then."""
    try:
        needs = needs_of(connection.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchall()[0][1])
    except duckdb.Error:
        return connection  # the query itself says better what is wrong with it
    narrow = _connected(duckdb, {name: _Scan(table, needs) for name, table in tables.items()})
    try:
        same = _described(narrow, query) == _described(connection, query)
    except duckdb.BinderException:
        same = False  # the text names columns that the plan can do without
    return narrow if same else connection


def _described(connection: Any, query: str) -> list[Any]:
    return list(connection.execute(f"DESCRIBE {query}").fetchall())


def _fetched(duckdb: Any, result: Any) -> Iterator[tuple[Any, ...]]:
    try:
        while lines := result.fetchmany(config.SQL_FETCH_RECORDS):
            yield from lines
    except duckdb.Error as error:
        raise QueryFailed(str(error)) from error


def _failed(duckdb: Any, error: Exception, catalog: Any) -> Exception:
    text = str(error)
    if isinstance(error, duckdb.CatalogException) and "Table with name" in text:
        there = [name.removeprefix(f"{NAMESPACE}.") for name in table_names(catalog)]
        first = text.splitlines()[0].removeprefix("Catalog Error: ")
        return TableNotFound(
            f"{first} There are: {', '.join(there) or 'none yet: headwater run lands streams in them'}"
        )
    return QueryFailed(text)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
