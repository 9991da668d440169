from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from headwater.errors import InvalidValue, ModelNotSupported
from headwater.sdk.codec import codec_of
from headwater.sdk.declare import Key


class Colour(Enum):
    RED = "red"


class Line(BaseModel):
    price: float | None = None
    cost: Decimal = Decimal(0)


class Order(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    id: Key[str]
    user_id: str = Field(default="u", alias="userId")
    at: datetime = datetime(2024, 1, 1, tzinfo=UTC)
    lines: list[Line] = []
    more: dict[str, Any] = {}


class Special(Order):
    discount: int = 0


class Coloured(BaseModel):
    colour: Key[Colour]


class Twice(BaseModel):
    a: Key[str]
    b: Key[str]


@dataclass
class Point:
    x: int


class Pair(TypedDict):
    a: int


def there_and_back(model, value):
    codec = codec_of("s", model)
    return codec.decode("s", codec.encode("s", value)[1])


@pytest.mark.parametrize(
    ("model", "value"),
    [(Order, Order(id="1", userId="ü", lines=[Line(price=1.5)])), (Order | Coloured, Coloured(colour=Colour.RED)),
     (dict, {"a": 1}), (dict[str, int], {"a": 1}), (Point, Point(x=1)), (Pair, {"a": 1}), (None, [1, None, "ü"]),
     (str, "ü\x00"), (bytes, b"\xff"), (list[Order], [Order(id="1")])],
)  # fmt: skip
def test_what_is_written_is_read(model, value):
    """Models, unions, dicts, dataclasses, typed dicts, text and bytes come back as they were."""
    assert there_and_back(model, value) == value


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner)))  # fmt: skip
def test_any_json_goes_there_and_back(value):
    """Without a model any JSON value is the same when it is read."""
    assert there_and_back(None, value) == value


def test_json_is_by_alias():
    """What other programs see is the alias."""
    assert b'"userId":"u"' in codec_of("s", Order).encode("s", Order(id="1"))[1]


@pytest.mark.parametrize(
    "value",
    [Line(price=math.nan), Line(price=math.inf)],
)
def test_numbers_that_json_lacks_are_refused_where_they_stand(value):
    """NaN and infinities come back as null: they never leave. A null that is meant does."""
    with pytest.raises(InvalidValue, match=r"lines\[0\].price"):
        codec_of("s", Order).encode("s", Order(id="1", lines=[value]))
    with pytest.raises(InvalidValue, match=r"more\.x\.1"):
        codec_of("s", Order).encode("s", Order(id="1", more={"x": {"1": -math.inf}}))
    codec_of("s", Order).encode("s", Order(id="1", lines=[Line()], more={"name": "NaN"}))


def test_an_instance_of_another_model_is_refused():
    """Also of a subclass, whose own fields would be lost in silence."""
    codec = codec_of("s", Order)
    for value in (Special(id="1"), Coloured(colour=Colour.RED), "text", 5, None):
        with pytest.raises(InvalidValue, match="takes Order"):
            codec.encode("s", value)


def test_a_broken_instance_is_refused():
    """What was made without validation, or broken after it, is validated on its way out."""
    broken = Order(id="1")
    broken.at = "no time"  # type: ignore[assignment]
    for value in (Order.model_construct(id=7), broken):
        with pytest.raises(InvalidValue, match="takes Order"):
            codec_of("s", Order).encode("s", value)


def test_keys_of_models():
    """One marked field gives the key; an enum its value; two marked fields give none."""
    assert codec_of("s", Order).key_of(Order(id="ü")) == "ü".encode()
    assert codec_of("s", Coloured).key_of(Coloured(colour=Colour.RED)) == b"red"
    assert codec_of("s", Order | Coloured).key_of(Coloured(colour=Colour.RED)) == b"red"
    assert codec_of("s", Twice).key_of(Twice(a="1", b="2")) is None
    assert codec_of("s", bytes).key_of(b"x") is None


def test_records_that_are_not_what_was_declared():
    """The error names the stream, what was declared, and how to read it all the same."""
    for model, raw, said in ((Order, b"{", "no Order"), (Order, None, "no Order"), (str, b"\xff", r"Stream\[bytes\]"),
                             (None, b"{", r"Stream\[bytes\]")):  # fmt: skip
        with pytest.raises(InvalidValue, match=said):
            codec_of("s", model).decode("s", raw)
    assert codec_of("s", bytes).decode("s", None) is None


def test_what_cannot_be_a_model():
    """A class that pydantic knows nothing of is refused with the way out."""

    class Opaque: ...

    with pytest.raises(ModelNotSupported, match="pydantic model, dict, str or bytes"):
        codec_of("s", Opaque)


def test_what_is_nested_too_deeply_is_refused():
    """Deeper than a reader takes, or than Python itself: an error of ours, though the value's repr cannot be had."""
    for depth in (300, 5000):
        value: Any = []
        for _ in range(depth):
            value = [value]
        with pytest.raises(InvalidValue, match="carries JSON"):
            codec_of("s", None).encode("s", value)
    wide = [[n] for n in range(1000)]
    assert codec_of("s", None).encode("s", wide)[0] == wide
