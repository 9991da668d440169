"""Our codecs against two that others wrote: kio (schemas from Apache Kafka's repository) and kafka-python."""

from __future__ import annotations

import random
import re
from importlib import import_module
from typing import Any

import pytest

from tests.unit.wire import kio_values
from tests.unit.wire.apis import Codec, codecs, data_codecs
from tools.wire_definitions import snake

INSTANCES = 12


def theirs_and_raw(codec: Codec, seed: int) -> tuple[Any, bytes]:
    kind = (
        kio_values.data_schema(snake(codec.api), codec.version)
        if codec.head == "data"
        else kio_values.schema(codec.key, codec.head, codec.version)
    )
    theirs = kio_values.make(random.Random(f"{codec} {seed}"), kind)
    return theirs, kio_values.raw_of(theirs)


@pytest.mark.parametrize("codec", [*codecs(), *data_codecs()], ids=str)
def test_kio(codec: Codec):
    """What kio writes we read, field by field, and write again byte for byte; what we write kio reads as it was."""
    for seed in range(INSTANCES):
        theirs, raw = theirs_and_raw(codec, seed)
        ours = codec.read(raw)
        assert kio_values.alike(theirs, ours), f"seed {seed}: {theirs} was read as {ours}"
        written = codec.write(ours)
        assert written == raw, f"seed {seed}: {ours}"
        assert kio_values.read(type(theirs), written) == theirs


def kafka_python_class(codec: Codec) -> Any:
    found = re.compile(rf"^{codec.api}{codec.head.capitalize()}$")
    for room in ("admin", "consumer", "metadata", "producer"):
        package = import_module(f"kafka.protocol.{room}")
        for name in dir(package):
            if found.match(name):
                return getattr(package, name)
    raise LookupError(f"kafka-python has no {codec}")


@pytest.mark.parametrize("codec", codecs(), ids=str)
def test_kafka_python(codec: Codec):
    """What we write kafka-python reads, and writes again byte for byte."""
    kind = kafka_python_class(codec)
    for seed in range(INSTANCES):
        ours = codec.read(theirs_and_raw(codec, seed)[1])
        if codec.api == "ApiVersions" and codec.head == "response":
            ours.error_code = 0  # kafka-python takes any answer with an error for one of version 0
        raw = codec.write(ours)
        read = kind.decode(raw, version=codec.version, header=False)
        read._header = None  # which its own decode forgets to set
        assert read.encode(version=codec.version, header=False) == raw, f"seed {seed}: {read}"
