"""Makes the tables a stream lands in, or adopts those that are there and fit.

A stream has two: the one it names, with the model's columns, and `<stream>_dead_letters`, with the original bytes and
the facts. Both also say where each record came from (`_stream` ... `_headers`), are split by the day of `_timestamp`
and sorted by (`_partition`, `_offset`). What a task must know of a table travels as a `Target`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from headwater import config
from headwater.errors import LandingRefused, ModelNotSupported
from headwater.lake.catalog import NAMESPACE, ensure_namespace, load_table, patiently
from headwater.lake.columns import Column, columns_of, named

_HEADERS = ListType(
    element_id=0,
    element_type=StructType(NestedField(0, "key", StringType(), required=True), NestedField(0, "value", BinaryType())),
    element_required=True,
)
# Where a record came from. `_stream_id` and `_epoch` are there because names and offsets are used again: without them
# two different records can look like one that landed twice.
FIDELITY = (
    Column(name="_stream", type=StringType(), required=True),
    Column(name="_stream_id", type=StringType(), required=True),
    Column(name="_epoch", type=IntegerType(), required=True),
    Column(name="_partition", type=IntegerType(), required=True),
    Column(name="_offset", type=LongType(), required=True),
    Column(name="_timestamp", type=TimestamptzType(), required=True),
    Column(name="_key", type=BinaryType(), required=False),
    Column(name="_headers", type=_HEADERS, required=True),  # none = empty: readers take a null list for an empty one
)
# The facts of a dead letter, named as the headers `headwater.dlq.*` of those that travel in streams.
FACTS = (
    Column(name="stream", type=StringType(), required=True),
    Column(name="partition", type=IntegerType(), required=True),
    Column(name="offset", type=LongType(), required=True),
    Column(name="timestamp", type=TimestamptzType(), required=True),
    Column(name="reader", type=StringType(), required=True),
    Column(name="error_type", type=StringType(), required=True),
    Column(name="error_message", type=StringType(), required=True),
    Column(name="error_stack", type=StringType(), required=False),
    Column(name="attempts", type=IntegerType(), required=True),
    Column(name="failed_at", type=TimestamptzType(), required=True),
)
VALUE = Column(name="_value", type=BinaryType(), required=False)

_OWNER = "headwater.dead-letters-of"
_NO_RETRY = {"commit.retry.num-retries": "0"}  # pyiceberg's own retry re-bases blindly: two drivers would both land
_PROPERTIES = {
    **_NO_RETRY,
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "commit.manifest.target-size-bytes": str(1024**2),  # bounds what one merge reads and writes: some 5,000 files
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(config.SNAPSHOTS_KEPT),
    "write.parquet.compression-codec": "zstd",
}


class DeclaredTable(Protocol):
    """What is read of a declared table."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def model(self) -> Any: ...


class DeclaredStream(Protocol):
    """What is read of a declared stream."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> Any: ...
    @property
    def destination(self) -> DeclaredTable | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One table, as far as a task needs to know it. Pickles, and holds no connection."""

    table: str  # full name: namespace.table
    kind: Literal["table", "dead_letters"]
    reader: str  # what dead letters name as their reader: the table the record was meant for
    uuid: str
    location: str
    schema_json: str
    spec_id: int
    by_day: bool
    io: dict[str, str] = field(repr=False, hash=False)  # may hold a store's credentials

    @property
    def schema(self) -> Schema:
        """The Iceberg schema, with its field ids."""
        return _schema_of(self.schema_json)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The same for Arrow, with `PARQUET:field_id` on each field."""
        return _arrow_schema_of(self.schema_json)


def ensure_targets(catalog: Any, stream: DeclaredStream) -> tuple[Target, Target]:
    """(table, dead letters) of a stream with a destination, made or adopted. Refuses what cannot be landed."""
    table, columns = check_stream(stream)
    namespace = table.namespace or NAMESPACE
    ensure_namespace(catalog, namespace)
    full = f"{namespace}.{table.name}"
    letters = f"{namespace}.{dead_letters_name(stream.name)}"
    if letters == full:
        raise LandingRefused(f"stream {stream.name}: {full} is the name of its dead letters too: rename the table")
    landed = _ensure(catalog, full, (*columns, *FIDELITY), {})
    dead = _ensure(catalog, letters, (*FACTS, *FIDELITY, VALUE), {_OWNER: stream.name})
    owner = dead.properties.get(_OWNER)
    if owner != stream.name:
        raise LandingRefused(
            f"{letters} holds the dead letters of stream {owner}, and {stream.name} would use the same table: "
            "rename one of the streams, or give its table another namespace"
        )
    return (
        _target(catalog, landed, "table", reader=full),
        _target(catalog, dead, "dead_letters", reader=full),
    )


def check_stream(stream: DeclaredStream) -> tuple[DeclaredTable, tuple[Column, ...]]:
    """The table a stream declares and its columns, without IO: what can be refused before anything is made."""
    table = stream.destination
    if table is None:
        raise LandingRefused(f"stream {stream.name} has no destination: declare it with destination=Table[Model](...)")
    if stream.model is None:
        raise ModelNotSupported(
            f"stream {stream.name} has a destination and no model: a table needs columns: "
            f'declare Stream[Model]("{stream.name}", ...) with a pydantic model'
        )
    columns = columns_of(stream.model)
    if table.model is not None and table.model != stream.model:
        raise ModelNotSupported(
            f"stream {stream.name} holds {named(stream.model)} and table {table.name} {named(table.model)}: "
            f"a record lands as it is, so both must name the same: Table[{named(stream.model)}]"
        )
    return table, columns


def dead_letters_name(stream: str) -> str:
    return f"{stream.replace('.', '_').replace('-', '_')}_dead_letters"


def _ensure(catalog: Any, name: str, columns: tuple[Column, ...], properties: dict[str, str]) -> Any:
    from pyiceberg.exceptions import TableAlreadyExistsError

    def create() -> None:
        if not catalog.table_exists(name):
            schema = _schema(columns)
            catalog.create_table(
                name,
                schema=schema,
                partition_spec=_by_day(schema),
                sort_order=_by_place(schema),
                properties={**_PROPERTIES, **properties},
            )

    with suppress(TableAlreadyExistsError):  # another process was faster: adopted like any other
        patiently(create, f"making the table {name}")
    table = load_table(catalog, name)
    differences = _differences(columns, table)
    if differences:
        raise LandingRefused(
            f"table {name} is there, and does not fit: {'; '.join(differences)}. Headwater adds no columns by itself "
            "yet: change the table with pyiceberg's update_schema(), change the model, or land in another table"
        )
    return _adopted(table)


def _adopted(table: Any) -> Any:
    """Sets the properties that exactly-once rests on, on a table that others made."""
    missing = {name: text for name, text in _PROPERTIES.items() if name not in table.properties}
    missing |= {name: text for name, text in _NO_RETRY.items() if table.properties.get(name) != text}
    if missing:
        with table.transaction() as change:
            change.set_properties(missing)
    return table


def _schema(columns: tuple[Column, ...]) -> Schema:
    fields = [NestedField(0, one.name, one.type, required=one.required, doc=one.note or None) for one in columns]
    numbered = assign_fresh_schema_ids(Schema(*fields))
    keys = [numbered.find_field(one.name).field_id for one in columns if one.key]
    return Schema(*numbered.fields, identifier_field_ids=keys)


def _by_day(schema: Schema) -> PartitionSpec:
    source = schema.find_field("_timestamp").field_id
    return PartitionSpec(PartitionField(source, 1000, DayTransform(), "_timestamp_day"))


def _by_place(schema: Schema) -> SortOrder:
    return SortOrder(
        *(SortField(schema.find_field(name).field_id, IdentityTransform()) for name in ("_partition", "_offset"))
    )


def _differences(columns: tuple[Column, ...], table: Any) -> list[str]:
    there = {one.name: one for one in table.schema().fields}
    found = []
    for column in columns:
        one = there.pop(column.name, None)
        if one is None:
            found.append(f"it has no column {column.name} ({column.type})")
        elif _shape(one.field_type) != _shape(column.type):
            found.append(f"its column {column.name} is {one.field_type}, the model wants {column.type}")
        elif one.required and not column.required:
            found.append(f"its column {column.name} is required, and the model's may be None")
    found += [f"its column {one.name} is required, and the model has none" for one in there.values() if one.required]
    if not (_is_by_day(table) or table.spec().is_unpartitioned()):
        found.append(f"it is partitioned by {table.spec()}, and files are written by day(_timestamp) or not at all")
    return found


def _shape(kind: IcebergType) -> Any:
    """A type without its ids and notes, to compare."""
    if isinstance(kind, ListType):
        return ("list", _shape(kind.element_type), kind.element_required)
    if isinstance(kind, StructType):
        return ("struct", *((one.name, _shape(one.field_type), one.required) for one in kind.fields))
    return str(kind)


def _is_by_day(table: Any) -> bool:
    fields = table.spec().fields
    return (
        len(fields) == 1
        and isinstance(fields[0].transform, DayTransform)
        and table.schema().find_column_name(fields[0].source_id) == "_timestamp"
    )


def _target(catalog: Any, table: Any, kind: Literal["table", "dead_letters"], *, reader: str) -> Target:
    return Target(
        table=".".join(table.name()),
        kind=kind,
        reader=reader,
        uuid=str(table.metadata.table_uuid),
        location=table.location(),
        schema_json=table.schema().model_dump_json(),
        spec_id=table.spec().spec_id,
        by_day=_is_by_day(table),
        io={name: str(value) for name, value in table.io.properties.items()},
    )


@lru_cache(maxsize=256)
def _schema_of(schema_json: str) -> Schema:
    schema: Schema = Schema.model_validate_json(schema_json)
    return schema


@lru_cache(maxsize=256)
def _arrow_schema_of(schema_json: str) -> pa.Schema:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(_schema_of(schema_json))
