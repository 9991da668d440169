from __future__ import annotations

import decimal
import enum
import uuid
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any, Literal, NewType

import pydantic
import pytest
from pydantic import BaseModel, Field, field_serializer

from headwater.errors import ModelNotSupported
from headwater.lake.columns import JSON_NOTE, columns_of, dumps_plainly
from headwater.sdk.declare import Key
from tests.unit.lake.models import Line, Order

UserId = NewType("UserId", str)


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Mixed(enum.Enum):
    A = 1
    B = "b"


def made(annotation: Any, default: Any = ...) -> type[BaseModel]:
    return pydantic.create_model("Made", field=(annotation, default))


@pytest.mark.parametrize(
    ("annotation", "kind", "required"),
    [
        (str, "string", True),
        (int, "long", True),
        (float, "double", True),
        (bool, "boolean", True),
        (bytes, "binary", True),
        (date, "date", True),
        (datetime, "timestamptz", True),
        (pydantic.AwareDatetime, "timestamptz", True),
        (str | None, "string", False),
        (UserId, "string", True),
        (Annotated[int, Field(gt=0)], "long", True),
        (Annotated[int | None, Field(gt=0)], "long", False),
        (Number, "long", True),
        (Literal["a", "b"], "string", True),
        (Literal["a", None], "string", False),  # noqa: PYI061  what people write
        (Literal[Number.ONE], "long", True),
    ],
)
def test_native_types(annotation, kind, required):
    """A field of a plain type is a column of the type that every engine knows."""
    (column,) = columns_of(made(annotation))
    assert (str(column.type), column.required, column.note) == (kind, required, "")


def test_lists_and_models_are_native():
    """A list is a list column, a nested model a struct, and inside of both None is told from must-be-there."""
    kinds = {one.name: str(one.type) for one in columns_of(Order)}
    assert kinds["numbers"] == "list<long>"
    assert "sku: required string" in kinds["first"]
    assert "price: optional double" in kinds["first"]
    assert kinds["lines"].startswith("list<struct<")


@pytest.mark.parametrize("annotation", [dict[str, Any], dict, dict[str, int] | None, list[Line] | None])
def test_json_text(annotation):
    """What has no column type of its own in every engine is JSON text, and says so."""
    (column,) = columns_of(made(annotation))
    assert str(column.type) == "string"
    assert column.note == JSON_NOTE


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (time, "cannot hold time yet: use str or datetime"),
        (timedelta, "use float"),
        (uuid.UUID, "cannot hold UUID yet: use str"),
        (decimal.Decimal, "cannot hold Decimal yet"),
        (set[str], "cannot hold set yet: use list"),
        (tuple[int, str], "cannot hold tuple yet"),
        (Any, "cannot hold Any yet"),
        (int | str, "is several types"),
        (Mixed, "its values are of the types int, str"),
        (Literal["a", 1], "its values are of the types int, str"),
        (list[time], r"Made.field\[\]: a table cannot hold time"),
        (pydantic.SecretStr, "cannot hold SecretStr"),
    ],
)
def test_refused_types(annotation, says):
    """A type that a table would distort is refused at start, by field and type, with what to use."""
    with pytest.raises(ModelNotSupported, match=says) as caught:
        columns_of(made(annotation))
    assert "Made.field" in str(caught.value)


def test_a_key_is_an_identifier():
    """Key[...] marks the identifier column; what cannot be one is refused."""
    assert [one.name for one in columns_of(Order) if one.key] == ["id"]
    for annotation in (Key[float], Key[str] | None, Key[list[str]]):
        with pytest.raises(ModelNotSupported, match="key must always be there"):
            columns_of(made(annotation))


def test_models_that_are_no_tables():
    """A model whose fields a table cannot name is refused with its reason."""
    with pytest.raises(ModelNotSupported, match="differ only in case"):
        columns_of(pydantic.create_model("Made", Id=(str, ...), id=(str, ...)))
    with pytest.raises(ModelNotSupported, match="no fields"):
        columns_of(pydantic.create_model("Made"))
    with pytest.raises(ModelNotSupported, match='extra="allow"'):
        columns_of(pydantic.create_model("Made", __config__={"extra": "allow"}, id=(str, ...)))
    for model in (dict, str, pydantic.RootModel[list[int]], int | str):
        with pytest.raises(ModelNotSupported, match="needs a pydantic model"):
            columns_of(model)


class Tree(BaseModel):
    children: list[Tree] = []


def test_a_model_that_holds_itself_is_refused():
    """A recursive model has no end, and is told so instead of exhausting the stack."""
    with pytest.raises(ModelNotSupported, match="holds itself"):
        columns_of(Tree)


def test_versions_share_one_table():
    """Fields that a version lacks are optional; those whose types differ are JSON text."""
    first = pydantic.create_model("V1", id=(str, ...), size=(int, ...), old=(str, ...))
    second = pydantic.create_model("V2", id=(str, ...), size=(str, ...), new=(float, ...))
    found = {one.name: one for one in columns_of(first | second)}
    assert found["id"].required
    assert (found["size"].note, found["size"].required) == (JSON_NOTE, True)
    assert [found[name].required for name in ("old", "new")] == [False, False]


def test_serializers_are_noticed():
    """A model with serializers or computed fields, at any depth, is dumped; others are read field by field."""

    class Shouts(BaseModel):
        text: str

        @field_serializer("text")
        def shout(self, text: str) -> str:
            return text.upper()

    assert dumps_plainly(Order)
    assert not dumps_plainly(Shouts)
    assert not dumps_plainly(made(list[Shouts]))
