"""Judged records as Arrow batches in the very shape of a table: its columns, its types, its field ids.

A chunk is built column by column, which is fast; only where Arrow refuses one (an integer beyond 64 bits, text that is
no UTF-8, a None that a validator slipped in) each record is tried alone, and those that do not fit become dead letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from headwater.lake.columns import Column
from headwater.lake.judge import Letter, Polled
from headwater.lake.tables import Target
from headwater.lake.token import Place

# What Arrow raises for values that its types cannot hold.
REFUSALS = (ValueError, TypeError, OverflowError, pa.ArrowException)
# Publishers choose timestamps; these are the ends of what every reader of a timestamptz can show.
_TIMESTAMP_MIN_MS, _TIMESTAMP_MAX_MS = -62_135_596_800_000, 253_402_300_799_999
# Arrow would make 1 of 1.5, "61" of b"a", and a day of a moment: a column takes its own type only.
_TAKES: tuple[tuple[Any, tuple[type, ...], tuple[type, ...]], ...] = (
    (pa.types.is_integer, (int,), (bool,)),
    (pa.types.is_floating, (float, int), (bool,)),
    (pa.types.is_large_string, (str,), ()),
    (pa.types.is_large_binary, (bytes,), ()),
    (pa.types.is_date, (date,), (datetime,)),
)


class NotOfColumn(ValueError):
    """A value that is not of its column's type, though the model let it pass."""


def of_values(
    target: Target, columns: Sequence[Column], records: Sequence[Polled], values: Sequence[Sequence[Any]], place: Place
) -> tuple[pa.RecordBatch, list[Polled], list[Letter]]:
    """The valid records as a batch; those that are in it; letters for those that fit no column after all."""
    schema = target.arrow_schema
    letters: list[Letter] = []
    try:
        arrays = _arrays(schema, columns, values)
    except REFUSALS:
        records, values, letters = _sifted(schema, columns, records, values)
        arrays = _arrays(schema, columns, values)
    arrays.update(_fidelity(schema, records, place))
    return _batch(schema, arrays, len(records)), list(records), letters


def of_letters(target: Target, letters: Sequence[Letter], place: Place) -> pa.RecordBatch:
    """Dead letters: the original bytes, and the facts."""
    schema = target.arrow_schema
    records = [letter.record for letter in letters]
    arrays = _fidelity(schema, records, place)
    arrays["_value"] = pa.array([one.value for one in records], schema.field("_value").type)
    for fact, column in (
        ("stream", "_stream"),
        ("partition", "_partition"),
        ("offset", "_offset"),
        ("timestamp", "_timestamp"),
    ):
        arrays[fact] = arrays[column]
    for fact, said in (
        ("reader", [target.reader] * len(letters)),
        ("error_type", [one.error_type for one in letters]),
        ("error_message", [one.error_message for one in letters]),
        ("error_stack", [one.error_stack for one in letters]),
        ("attempts", [1] * len(letters)),
        ("failed_at", [one.failed_at for one in letters]),
    ):
        arrays[fact] = pa.array(said, schema.field(fact).type)
    return _batch(schema, arrays, len(letters))


def timestamp_ms_of(record: Polled) -> int:
    """A record's timestamp as tables hold it: within the years 1 to 9999."""
    return min(max(record.timestamp_ms, _TIMESTAMP_MIN_MS), _TIMESTAMP_MAX_MS)


def _arrays(schema: pa.Schema, columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> dict[str, pa.Array]:
    return {
        column.name: _array(schema.field(column.name), column, said)
        for column, said in zip(columns, values, strict=True)
    }


def _array(field: pa.Field, column: Column, values: Sequence[Any]) -> pa.Array:
    for is_kind, takes, but in _TAKES:
        if is_kind(field.type):
            for kind in set(map(type, values)) - {*takes, type(None)}:
                if not issubclass(kind, takes) or issubclass(kind, but):
                    raise NotOfColumn(
                        f"{column.name}: the column holds {column.type}, and the value is {kind.__name__}"
                    )
    try:
        array = pa.array(values, field.type)
    except REFUSALS as error:  # Arrow does not know whose value it was
        error.add_note(f"{column.name}: the column holds {column.type}")
        raise
    if column.required and array.null_count:
        raise NotOfColumn(f"{column.name} is None, which its type does not allow")
    return array


def _sifted(
    schema: pa.Schema, columns: Sequence[Column], records: Sequence[Polled], values: Sequence[Sequence[Any]]
) -> tuple[list[Polled], list[tuple[Any, ...]], list[Letter]]:
    kept: list[Polled] = []
    rows: list[tuple[Any, ...]] = []
    letters: list[Letter] = []
    for record, row in zip(records, zip(*values, strict=True), strict=True):
        try:
            _arrays(schema, columns, [(one,) for one in row])
        except REFUSALS as error:
            letters.append(Letter.of(record, error))
        else:
            kept.append(record)
            rows.append(row)
    by_column = list(zip(*rows, strict=True)) if rows else [() for _ in columns]
    return kept, by_column, letters


def _fidelity(schema: pa.Schema, records: Sequence[Polled], place: Place) -> dict[str, pa.Array]:
    count = len(records)

    def repeated(name: str, value: Any) -> pa.Array:
        return pa.repeat(pa.scalar(value, schema.field(name).type), count)

    moments = pa.array([timestamp_ms_of(one) * 1000 for one in records], pa.int64())
    return {
        "_stream": repeated("_stream", place.stream),
        "_stream_id": repeated("_stream_id", place.stream_id),
        "_epoch": pa.array([one.epoch for one in records], pa.int32()),
        "_partition": repeated("_partition", place.partition),
        "_offset": pa.array([one.offset for one in records], pa.int64()),
        "_timestamp": moments.cast(schema.field("_timestamp").type),
        "_key": pa.array([one.key for one in records], schema.field("_key").type),
        "_headers": _headers(schema.field("_headers").type, records),
    }


def _headers(kind: pa.DataType, records: Sequence[Polled]) -> pa.Array:
    if not any(one.headers for one in records):  # the common case, at a tenth of the price
        return pa.LargeListArray.from_arrays(
            pa.repeat(pa.scalar(0, pa.int64()), len(records) + 1), pa.array([], kind.value_type), type=kind
        )
    return pa.array(
        [[{"key": _text(name), "value": value} for name, value in one.headers or ()] for one in records], kind
    )


def _text(name: str) -> str:
    """A header's name as UTF-8 can hold it: other bytes show as escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _batch(schema: pa.Schema, arrays: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    """All columns in the table's order; those that the table has and the model has not are null."""
    return pa.record_batch(
        [arrays[one.name] if one.name in arrays else pa.nulls(count, one.type) for one in schema], schema=schema
    )
