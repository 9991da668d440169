"""Random messages made of kio's classes, and their comparison with ours: an oracle that read Kafka's sources by itself.

kio's schemas are generated from Apache Kafka's repository, ours from what kafka-python ships; kio has its own types for
times, errors and ids, and leaves `_ms` out of a field's name where its type says it.
"""

from __future__ import annotations

import datetime as dt
import io
import random
import uuid
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin

from kio.index import load_entity_schema, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
TEXTS = ("", "a", "orders", "größe-€", "x" * 126, "y" * 127, "z" * 300)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def schema(key: int, head: str, version: int) -> Any:
    return (load_request_schema if head == "request" else load_response_schema)(key, version)


def data_schema(name: str, version: int) -> Any:
    return load_entity_schema(name, version, EntityType.data)


def raw_of(message: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


def read(kind: Any, raw: bytes) -> Any:
    message, size = entity_reader(kind)(raw, 0)
    assert size == len(raw)
    return message


def make(rng: random.Random, kind: Any) -> Any:
    """An instance of one of kio's classes, each field at random: at its bounds, null, empty, long or usual."""
    return kind(**{one.name: _field(rng, one) for one in fields(kind)})


def _field(rng: random.Random, one: Any) -> Any:
    annotation, nullable = one.type, False
    if type(None) in get_args(annotation):
        nullable = True
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if nullable and rng.random() < 0.3:
        return None
    if get_origin(annotation) is tuple:
        inner = get_args(annotation)[0]
        return tuple(_value(rng, inner, one) for _ in range(rng.choice((0, 1, 1, 2, 3))))
    return _value(rng, annotation, one)


def _value(rng: random.Random, annotation: Any, one: Any) -> Any:
    if type(None) in get_args(annotation):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if is_dataclass(annotation):
        return make(rng, annotation)
    return _primitive(rng, one.metadata["kafka_type"])


def _primitive(rng: random.Random, kind: str) -> Any:
    if kind in BITS:
        half = 1 << (BITS[kind] - 1)
        return rng.choice((-half, half - 1, 0, -1, 1, rng.randrange(-half, half)))
    made = {
        "string": lambda: rng.choice(TEXTS),
        "bytes": lambda: rng.randbytes(rng.choice((0, 1, 127, 128, 500))),
        "records": lambda: rng.randbytes(rng.choice((0, 61, 127, 128, 5000))),
        "bool": lambda: rng.random() < 0.5,
        "uint16": lambda: rng.randrange(1 << 16),
        "uuid": lambda: uuid.UUID(bytes=rng.randbytes(16)),
        "error_code": lambda: rng.choice(list(ErrorCode)),
        "timedelta_i32": lambda: dt.timedelta(milliseconds=rng.randrange(1 << 31)),
        "timedelta_i64": lambda: dt.timedelta(milliseconds=rng.randrange(1 << 40)),
        "datetime_i64": lambda: EPOCH + dt.timedelta(milliseconds=rng.randrange(1 << 42)),
    }
    return made[kind]()


def alike(theirs: Any, ours: Any) -> bool:
    """Whether our message says in each field what kio's says."""
    return all(_same(getattr(theirs, one.name), _ours(ours, one.name)) for one in fields(theirs))


def _ours(message: Any, name: str) -> Any:
    return getattr(message, name) if name in message.__slots__ else getattr(message, f"{name}_ms")


def _same(theirs: Any, ours: Any) -> Any:
    if isinstance(theirs, tuple):
        return len(theirs) == len(ours) and all(map(_same, theirs, ours))
    if is_dataclass(theirs) and not isinstance(theirs, type):
        return (ours is None and theirs == type(theirs)()) or alike(theirs, ours)
    if isinstance(theirs, uuid.UUID):
        return theirs.bytes == ours
    if isinstance(theirs, ErrorCode):
        return theirs.value == ours
    if isinstance(theirs, dt.timedelta):
        return round(theirs.total_seconds() * 1000) == ours
    if isinstance(theirs, dt.datetime):
        return round((theirs - EPOCH).total_seconds() * 1000) == ours
    if theirs is None:
        return ours in (None, -1, bytes(16))  # no time, no id
    return theirs == ours
