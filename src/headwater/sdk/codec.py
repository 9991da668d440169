"""Values to bytes and back: JSON by alias for models, bytes as they are for `Stream[str]` and `Stream[bytes]`.

What is published can be read: a value is validated as the stream's model on its way out too. JSON has no NaN and no
infinity; pydantic would write null, which comes back as something else, so they are refused.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import from_json

from headwater.errors import InvalidValue, ModelNotSupported
from headwater.model import bytes_of
from headwater.sdk.declare.table import key_fields

_FAULTS_SHOWN = 3  # of a value that does not validate; the first ones say enough
_DEPTH_UNCHECKED = 100  # brackets in a JSON text that can be read however they are nested
_SUSPECT = (b"null", b"NaN", b"Infinity")  # what a non-finite number can look like in JSON


class Codec:
    """How one model travels. `encode` gives the validated value and its bytes; both ways raise `InvalidValue`."""

    __slots__ = ("decode", "encode", "key_of")

    def __init__(
        self,
        encode: Callable[[str, Any], tuple[Any, bytes]],
        decode: Callable[[str, bytes | None], Any],
        key_of: Callable[[Any], bytes | None],
    ) -> None:
        self.encode, self.decode, self.key_of = encode, decode, key_of


def codec_of(stream: str, model: Any) -> Codec:
    try:
        return _codec_of(model)
    except TypeError:
        raise ModelNotSupported(f"stream {stream!r}: {model!r} is no type: write Stream[Model](...)") from None
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        first = str(error).splitlines()[0]
        raise ModelNotSupported(
            f"stream {stream!r}: {_name(model)} cannot be read or written as JSON ({first}): use a pydantic model, "
            "dict, str or bytes"
        ) from None


@lru_cache(maxsize=1024)
def _codec_of(model: Any) -> Codec:
    if model is bytes:
        return Codec(_bytes_out, _bytes_in, _no_key)
    if model is str:
        return Codec(_text_out, _text_in, _no_key)
    if model is None or model is Any:
        return Codec(_json_out, _json_in, _no_key)
    return _model_codec(model)


def _model_codec(model: Any) -> Codec:
    adapter: TypeAdapter[Any] = TypeAdapter(model)
    wanted = frozenset(part for part in (get_args(model) or (model,)) if _is_model(part))
    name = _name(model)

    def encode(stream: str, value: Any) -> tuple[Any, bytes]:
        if isinstance(value, BaseModel) and wanted and type(value) not in wanted:
            raise InvalidValue(
                f"stream {stream!r} takes {name}, and was given a {type(value).__name__}: {_shown(value)}"
            )
        try:
            if not isinstance(value, BaseModel):
                value = adapter.validate_python(value)
            raw = adapter.dump_json(value, by_alias=True, warnings=False)
            _refuse_non_finite(stream, raw, adapter, value)
            adapter.validate_json(raw)
        except ValidationError as error:
            raise InvalidValue(f"stream {stream!r} takes {name}: {faults(error)}") from error
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidValue(f"stream {stream!r}: {_shown(value)} cannot be written as JSON: {error}") from error
        return value, raw

    def decode(stream: str, raw: bytes | None) -> Any:
        try:
            return adapter.validate_json(b"null" if raw is None else raw)
        except ValidationError as error:
            raise InvalidValue(f"stream {stream!r} carries a record that is no {name}: {faults(error)}") from error

    return Codec(encode, decode, _key_reader(wanted))


def _key_reader(models: frozenset[Any]) -> Callable[[Any], bytes | None]:
    """The record key that a model's `Key` field gives. Two such fields make no key: then `key=` says it."""
    marked = {model: fields[0] for model in models if len(fields := key_fields(model)) == 1}

    def key_of(value: Any) -> bytes | None:
        field = marked.get(type(value))
        if field is None:
            return None
        part = getattr(value, field)
        if isinstance(part, Enum):
            part = part.value
        return None if part is None else bytes_of(part if isinstance(part, str | bytes) else str(part))

    return key_of


def _no_key(value: Any) -> bytes | None:
    return None


def _bytes_out(stream: str, value: Any) -> tuple[Any, bytes]:
    if isinstance(value, bytes):
        return value, value
    if isinstance(value, bytearray | memoryview):
        return value, bytes(value)
    raise InvalidValue(f"stream {stream!r} takes bytes, and was given a {type(value).__name__}: {_shown(value)}")


def _bytes_in(stream: str, raw: bytes | None) -> Any:
    return raw


def _text_out(stream: str, value: Any) -> tuple[Any, bytes]:
    if isinstance(value, str):
        try:
            return value, value.encode()
        except UnicodeEncodeError as error:
            raise InvalidValue(f"stream {stream!r}: this text is not UTF-8 ({error}): use Stream[bytes]") from None
    raise InvalidValue(f"stream {stream!r} takes str, and was given a {type(value).__name__}: {_shown(value)}")


def _text_in(stream: str, raw: bytes | None) -> Any:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidValue(
            f"stream {stream!r} carries a record that is not UTF-8 ({error}): read it as Stream[bytes]({stream!r})"
        ) from None


def _json_out(stream: str, value: Any) -> tuple[Any, bytes]:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_plain)
        raw = text.encode()
        if raw.count(b"[") + raw.count(b"{") > _DEPTH_UNCHECKED:
            from_json(raw)  # its bound on depth is lower than ours on the way out
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(
            f"stream {stream!r} carries JSON, and {_shown(value)} is not ({error}): give the stream a model, or "
            f"publish bytes with Stream[bytes]({stream!r})"
        ) from None
    return value, raw


def _json_in(stream: str, raw: bytes | None) -> Any:
    try:
        return None if raw is None else from_json(raw)
    except ValueError as error:
        raise InvalidValue(
            f"stream {stream!r} carries a record that is not JSON ({error}): read it as Stream[bytes]({stream!r})"
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _refuse_non_finite(stream: str, raw: bytes, adapter: TypeAdapter[Any], value: Any) -> None:
    if not any(mark in raw for mark in _SUSPECT):
        return
    for place, number in _numbers(adapter.dump_python(value, warnings=False), ""):
        if not (number.is_finite() if isinstance(number, Decimal) else math.isfinite(number)):
            raise InvalidValue(f"stream {stream!r}: {place.lstrip('.') or 'the value'} is {number}, and JSON has none")


def _numbers(value: Any, place: str) -> Iterator[tuple[str, float | Decimal]]:
    if isinstance(value, float | Decimal):
        yield place, value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _numbers(part, f"{place}.{name}")
    elif isinstance(value, list | tuple | set | frozenset):
        for number, part in enumerate(value):
            yield from _numbers(part, f"{place}[{number}]")


def faults(error: ValidationError) -> str:
    """The first faults of a value in one line: where, and what."""
    found = error.errors(include_url=False, include_context=False)
    said = [f"{'.'.join(map(str, one['loc'])) or 'value'}: {one['msg']}" for one in found[:_FAULTS_SHOWN]]
    more = len(found) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more > 0 else "")


_short = reprlib.Repr()  # bounded in depth and length, and it takes a value whose own repr raises
_short.maxstring = _short.maxother = 200


def _shown(value: Any) -> str:
    return _short.repr(value)


def _is_model(part: Any) -> bool:
    return isinstance(part, type) and get_origin(part) is None and issubclass(part, BaseModel)


def _name(model: Any) -> str:
    return getattr(model, "__name__", None) or str(model)
