"""From a pydantic model to the columns of its table, and from a value of the model to what the columns hold.

A column is named as its field (JSON is by alias, tables are by field name) and holds what `model_dump()` gives: a
column's `convert` turns a field's value into something Arrow takes. What no engine-neutral type fits is JSON text; what
even that would distort is refused at start, by field and type, with the way out.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pydantic
from pydantic import BaseModel, TypeAdapter
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from typing_extensions import TypeAliasType

from headwater.errors import ModelNotSupported
from headwater.sdk.declare import key_fields

Convert = Callable[[Any], Any]

JSON_NOTE = "JSON text"
_PLAIN: dict[Any, IcebergType] = {
    str: StringType(),
    int: LongType(),
    float: DoubleType(),
    bool: BooleanType(),
    bytes: BinaryType(),
    date: DateType(),
    datetime: TimestamptzType(),
    pydantic.EmailStr: StringType(),
    pydantic.AwareDatetime: TimestamptzType(),
    pydantic.NaiveDatetime: TimestamptzType(),
    pydantic.PastDatetime: TimestamptzType(),
    pydantic.FutureDatetime: TimestamptzType(),
    pydantic.PastDate: DateType(),
    pydantic.FutureDate: DateType(),
}
# What people will try next, and what carries it meanwhile.
_INSTEAD = {
    "time": "str or datetime",
    "timedelta": "float (seconds)",
    "UUID": "str",
    "Decimal": "str, or int in the smallest unit",
    "set": "list",
    "frozenset": "list",
    "tuple": "a nested model, or list",
    "Any": "the type it has, or dict[str, Any] for JSON text",
    "object": "the type it has, or dict[str, Any] for JSON text",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its type in Iceberg, and how a field's value becomes what it holds (None: as it is)."""

    name: str
    type: IcebergType
    required: bool
    convert: Convert | None = None
    note: str = ""
    key: bool = False


def columns_of(model: Any) -> tuple[Column, ...]:
    """The columns of a model, or of a union of models: versions of one thing."""
    versions = members_of(model)
    found = _merged([_columns_of_model(one, one.__name__) for one in versions], len(versions))
    by_name: dict[str, str] = {}
    for column in found:
        if column.name.startswith("_"):
            raise ModelNotSupported(
                f"{named(model)}.{column.name}: names that begin with _ are Headwater's own columns: rename the field"
            )
        other = by_name.setdefault(column.name.lower(), column.name)
        if other != column.name:
            raise ModelNotSupported(
                f"{named(model)}: the fields {other} and {column.name} differ only in case, which SQL does not see: "
                "rename one"
            )
    if not found:
        raise ModelNotSupported(f"{named(model)} has no fields, so a table of it would have no columns: declare some")
    return found


def members_of(model: Any) -> tuple[type[BaseModel], ...]:
    """The model, or the models of a union; anything else has no columns."""
    if _is_union(model):
        members = tuple(member for one in get_args(model) for member in members_of(one))
    elif isinstance(model, type) and issubclass(model, BaseModel) and not issubclass(model, pydantic.RootModel):
        members = (model,)
    elif get_origin(model) is Annotated:  # a discriminated union
        members = members_of(get_args(model)[0])
    else:
        raise ModelNotSupported(f"{named(model)} has no columns: a table needs a pydantic model: Stream[Model](...)")
    return members


def named(model: Any) -> str:
    return getattr(model, "__name__", None) or str(model)


def dumps_plainly(model: Any) -> bool:
    """Whether `model_dump()` gives the fields as they are: no serializers of its own, no computed fields."""
    return not any(_serializers(TypeAdapter(model).core_schema))


def _serializers(schema: Any) -> Iterator[bool]:
    if isinstance(schema, dict):
        if schema.get("serialization") or schema.get("computed_fields"):
            yield True
        for name, part in schema.items():
            if name != "metadata":
                yield from _serializers(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _serializers(part)


def _columns_of_model(model: type[BaseModel], path: str) -> list[Column]:
    if model.model_config.get("extra") == "allow":
        raise ModelNotSupported(
            f'{path} has extra="allow": a table has no columns for fields that nobody declared: '
            "declare a field of type dict[str, Any] for them"
        )
    keys = set(key_fields(model))
    columns = []
    for name, field in model.model_fields.items():
        if field.exclude:
            continue  # model_dump() leaves it out, so does the table
        column = _column(name, field.annotation, f"{path}.{name}")
        if name in keys:
            column = _as_key(column, f"{path}.{name}")
        columns.append(column)
    for name, computed in model.model_computed_fields.items():
        columns.append(_column(name, computed.return_type, f"{path}.{name}"))
    return columns


def _as_key(column: Column, path: str) -> Column:
    if not column.required or not column.type.is_primitive or isinstance(column.type, DoubleType | FloatType):
        raise ModelNotSupported(
            f"{path}: a table's key must always be there, and be neither a float, a list nor a model: "
            "use Key[str] or Key[int], or mark another field"
        )
    return replace(column, key=True)


def _merged(versions: list[list[Column]], count: int) -> tuple[Column, ...]:
    """One table for all versions: a field that some lack is optional, one whose types differ is JSON text."""
    by_name: dict[str, list[Column]] = {}
    for columns in versions:
        for column in columns:
            by_name.setdefault(column.name, []).append(column)
    found = []
    for name, ones in by_name.items():
        required = len(ones) == count and all(one.required for one in ones)
        first = ones[0]
        if any(one.type != first.type or one.note != first.note for one in ones):
            first = _json(name, None)
        found.append(replace(first, required=required, key=required and all(one.key for one in ones)))
    return tuple(found)


def _column(name: str, annotation: Any, path: str) -> Column:
    inner, optional = _unwrap(annotation)
    if _is_json(inner, optional=optional, path=path):
        return replace(_json(name, annotation), required=not optional)
    kind, convert = _native(inner, path)
    return Column(name=name, type=kind, required=not optional, convert=_or_none(convert, optional=optional))


def _unwrap(annotation: Any) -> tuple[Any, bool]:
    """The type without Annotated, aliases, NewType and `| None`, and whether None was among it."""
    optional = False
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, TypeAliasType):
            annotation = annotation.__value__
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        elif _is_union(annotation) and types.NoneType in get_args(annotation):
            optional = True
            rest = tuple(one for one in get_args(annotation) if one is not types.NoneType)
            annotation = rest[0] if len(rest) == 1 else Union[rest]  # noqa: UP007  built at run time
        elif get_origin(annotation) is Literal and None in get_args(annotation) and len(get_args(annotation)) > 1:
            optional = True
            annotation = Literal[tuple(one for one in get_args(annotation) if one is not None)]
        else:
            return annotation, optional


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in {Union, types.UnionType}


def _is_json(inner: Any, *, optional: bool, path: str) -> bool:
    if inner is dict or get_origin(inner) is dict:
        return True
    # pyiceberg reads a null list of structs as an empty list: such a list would come back changed.
    return optional and get_origin(inner) is list and _holds_model(inner)


def _holds_model(annotation: Any) -> bool:
    inner, _ = _unwrap(annotation)
    if get_origin(inner) is list:
        return any(_holds_model(one) for one in get_args(inner))
    return isinstance(inner, type) and issubclass(inner, BaseModel)


def _json(name: str, annotation: Any) -> Column:
    """JSON as pydantic writes it, by field name, as `model_dump(mode="json")` gives it."""
    adapter: TypeAdapter[Any] = TypeAdapter(Any if annotation is None else annotation)

    def convert(value: Any) -> str | None:
        return None if value is None else adapter.dump_json(value, by_alias=False, warnings=False).decode()

    return Column(name=name, type=StringType(), required=True, convert=convert, note=JSON_NOTE)


def _native(inner: Any, path: str) -> tuple[IcebergType, Convert | None]:
    if inner in _PLAIN if isinstance(inner, type) else False:
        kind = _PLAIN[inner]
        return kind, _utc if isinstance(kind, TimestamptzType) else None
    if get_origin(inner) is list:
        return _native_list(get_args(inner)[0], path)
    if get_origin(inner) is Literal:
        return _native_values(get_args(inner), path), _value
    if isinstance(inner, type) and issubclass(inner, enum.Enum):
        return _native_values([one.value for one in inner], path), _value
    if isinstance(inner, type) and issubclass(inner, BaseModel) and not issubclass(inner, pydantic.RootModel):
        return _native_struct(inner, path)
    raise _refused(inner, path)


def _native_values(values: Any, path: str) -> IcebergType:
    kinds = {type(_value(one)) for one in values}
    if len(kinds) != 1 or kinds.isdisjoint(_PLAIN):
        listed = ", ".join(sorted(one.__name__ for one in kinds))
        raise ModelNotSupported(f"{path}: its values are of the types {listed}: a column holds one of str, int, ...")
    return _PLAIN[kinds.pop()]


def _native_list(element: Any, path: str) -> tuple[IcebergType, Convert | None]:
    column = _column("element", element, f"{path}[]")
    convert = _checked(column, f"{path}[]")
    kind = ListType(element_id=0, element_type=column.type, element_required=column.required)
    return kind, lambda values: [convert(one) for one in values]


def _native_struct(model: type[BaseModel], path: str) -> tuple[IcebergType, Convert]:
    if path.count(".") > 30:
        raise ModelNotSupported(f"{path[:200]}...: a model that holds itself has no end: use dict[str, Any]")
    columns = _columns_of_model(model, path)
    kind = StructType(*(NestedField(0, one.name, one.type, required=one.required, doc=one.note) for one in columns))
    parts = [(one.name, _checked(one, f"{path}.{one.name}")) for one in columns]

    def convert(value: Any) -> dict[str, Any]:
        fields = value if isinstance(value, dict) else value.__dict__  # a dict: its model has serializers
        return {name: part(fields[name]) for name, part in parts}

    if any(one.convert for one in columns):
        return kind, convert
    required = [one.name for one in columns if one.required]

    def as_it_is(value: Any) -> dict[str, Any]:  # twice as fast, and most nested models are plain
        fields: dict[str, Any] = value if isinstance(value, dict) else value.__dict__
        for name in required:
            if fields[name] is None:
                raise ValueError(f"{path}.{name} is None, which its type does not allow")
        return fields

    return kind, as_it_is


def _checked(column: Column, path: str) -> Convert:
    """Inside of lists and models Arrow would write a None that may not be, so it is refused here."""
    convert = column.convert or _as_it_is
    if not column.required:
        return convert

    def checked(value: Any) -> Any:
        if value is None:
            raise ValueError(f"{path} is None, which its type does not allow")
        return convert(value)

    return checked


def _or_none(convert: Convert | None, *, optional: bool) -> Convert | None:
    if convert is None or not optional:
        return convert
    return lambda value: None if value is None else convert(value)


def _as_it_is(value: Any) -> Any:
    return value


def _value(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _utc(value: datetime) -> datetime:
    """A naive datetime means UTC. Raises OverflowError for the few hours at both ends that UTC cannot hold."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _refused(inner: Any, path: str) -> ModelNotSupported:
    name = named(get_origin(inner) or inner)
    if _is_union(inner):
        return ModelNotSupported(
            f"{path}: {inner} is several types, and a column has one: choose one, or wrap it in dict[str, Any]"
        )
    instead = _INSTEAD.get(name, "str, a nested pydantic model, or dict[str, Any] for JSON text")
    return ModelNotSupported(f"{path}: a table cannot hold {name} yet: use {instead}")
