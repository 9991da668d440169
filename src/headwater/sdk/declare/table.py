"""A table that streams land in, and the mark for a model's key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeAlias, TypedDict, Unpack, get_args, get_origin

from typing_extensions import TypeVar

from headwater.errors import InvalidOption
from headwater.sdk.declare.refusal import refusal

M = TypeVar("M", default=Any)
K = TypeVar("K")

NAMESPACE = "headwater"  # where tables are that name none
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_BUILT = frozenset({"partition_by", "sort_by"})


class KeyMark:
    """Marks the field that identifies a record: the table's identifier field, and the record key."""

    def __repr__(self) -> str:
        return "Key"


Key: TypeAlias = Annotated[K, KeyMark()]


class TableOptions(TypedDict, total=False):
    namespace: str


class Table(Generic[M]):
    """A declared Iceberg table: `Table[Event]("events")`. It does no IO; the pipeline makes it.

    Neither frozen nor slotted: a generic class that is loses `__orig_class__`, and with it the model.
    """

    def __init__(self, name: str, **options: Unpack[TableOptions]) -> None:
        for given in options:
            if given not in TableOptions.__annotations__:
                raise refusal(given, TableOptions.__annotations__, _NOT_BUILT, f"Table {name!r}")
        self.name = _table_name(name, "table")
        self.namespace = _table_name(options.get("namespace", NAMESPACE), "namespace")

    @property
    def model(self) -> Any:
        """What stands in the brackets; None without them."""
        return model_of(self)

    def __repr__(self) -> str:
        return f"Table{brackets(self.model)}({self.name!r}, namespace={self.namespace!r})"


OlapTable = Table


def model_of(declaration: Any) -> Any:
    """The type in the brackets of a declaration. Python sets it only after `__init__`, hence at first use."""
    alias = declaration.__dict__.get("__orig_class__")
    return None if alias is None else get_args(alias)[0]


def brackets(model: Any) -> str:
    return "" if model is None else f"[{getattr(model, '__name__', model)}]"


def key_fields(model: Any) -> tuple[str, ...]:
    """The names of the fields of a pydantic model that are marked `Key[...]`, in order."""
    fields: Mapping[str, Any] = getattr(model, "model_fields", None) or {}
    return tuple(
        name
        for name, field in fields.items()
        if any(isinstance(mark, KeyMark) for mark in field.metadata) or _marked(field.annotation)
    )


def _marked(annotation: Any) -> bool:
    """`Key[str] | None` keeps its mark inside of the union."""
    if get_origin(annotation) is Annotated:
        return any(isinstance(mark, KeyMark) for mark in get_args(annotation)[1:])
    return any(_marked(part) for part in get_args(annotation))


def _table_name(name: str, what: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidOption(f"a {what} cannot be called {name!r}: letters, digits and _, and no digit first")
    return name
