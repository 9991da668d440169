from __future__ import annotations

from datetime import timedelta
from typing import Any, Generic, TypeVar

import cloudpickle
import pytest
from pydantic import BaseModel

from headwater.errors import InvalidOption, InvalidStreamName, NotConnected
from headwater.sdk.declare import (
    Key,
    OlapTable,
    Stream,
    StreamConfig,
    Table,
    declared,
    key_fields,
    raw_configs,
    seconds_of,
)


class V1(BaseModel):
    id: Key[str]


class V2(V1):
    at: Key[int] | None = None


def test_the_model_stands_in_the_brackets():
    """A model, a union, raw bytes, or nothing at all."""
    assert Stream[V1]("s").model is V1
    assert Stream[V1 | V2]("s").model == V1 | V2
    assert Stream[bytes]("s").model is bytes
    assert Stream("s").model is None
    assert Table[V1]("t").model is V1
    assert OlapTable is Table
    assert repr(Stream[V1]("s", partitions=2)) == "Stream[V1]('s', partitions=2)"


def test_a_type_variable_is_no_model():
    """A stream declared inside of a generic class has no type of its own: that is said, not guessed."""
    item = TypeVar("item")

    class Box(Generic[item]):
        stream: Any = Stream[item]("s")

    with pytest.raises(InvalidOption, match="type variable"):
        _ = Box.stream.model


def test_a_declaration_pickles_with_its_lambdas():
    """What Spark's workers get is the same declaration, without the client it was bound to."""
    stream = Stream[V1 | V2]("s", partition_function=lambda value: 7, destination=Table[V1]("t"))
    copy = cloudpickle.loads(cloudpickle.dumps(stream))
    assert copy.name == "s"
    assert copy.model == V1 | V2
    assert copy.options["partition_function"](None) == 7
    assert copy.destination.model is V1
    assert copy.destination.namespace == "headwater"


def test_both_spellings_say_the_same():
    """Options by name, or in a StreamConfig; one option in both is an error."""
    table = Table[V1]("t")
    assert Stream[V1]("s", StreamConfig(destination=table)).options == Stream[V1]("s", destination=table).options
    assert Stream("s", StreamConfig(partitions=3), replication_factor=1).options == {
        "partitions": 3,
        "replication_factor": 1,
    }
    with pytest.raises(InvalidOption, match="partitions stands in the StreamConfig and beside it"):
        Stream("s", StreamConfig(partitions=3), partitions=3)
    with pytest.raises(InvalidOption, match="StreamConfig"):
        Stream("s", {"partitions": 3})  # type: ignore[arg-type]


def test_only_what_was_written_is_an_option():
    """Defaults are the server's: a bare stream has no options."""
    assert Stream("s").options == {}
    assert raw_configs(Stream("s", persistence="file_async").options) == {}
    assert raw_configs(Stream("s", persistence="file_sync", config={"x": True, "y": 5}).options) == {
        "x": "true", "y": "5", "flush.messages": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"partitons": 3}, "did you mean 'partitions'"),
        ({"colour": 3}, "there are config, destination"),
        ({"retention": "7d"}, "'retention' is not built yet: leave it out"),
        ({"cleanup_policy": "compact"}, "not built yet"),
        ({"partitions": 0}, "from 1 to"),
        ({"partitions": True}, "from 1 to"),
        ({"partitions": "4"}, "from 1 to"),
        ({"replication_factor": -1}, "from 1 to"),
        ({"persistence": "fsync"}, '"file_async" or "file_sync"'),
        ({"config": "x"}, "mapping"),
        ({"config": {"a": None}}, "a str or a number"),
        ({"partition_function": 3}, "a function"),
        ({"destination": "events"}, "is a table"),
        ({"persistence": "file_sync", "config": {"flush.messages": 1}}, "say the same thing"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options, said):
    """Each error names the stream and the option, and what to write."""
    with pytest.raises(InvalidOption, match=said) as caught:
        Stream("s", **options)
    assert "'s'" in str(caught.value)
    with pytest.raises(InvalidOption, match=said):
        StreamConfig(**options)


def test_names_are_checked_at_once():
    """A stream's name by Kafka's rules, a table's by SQL's."""
    with pytest.raises(InvalidStreamName):
        Stream("not a name")
    for name in ("a-b", "1a", "", "a.b"):
        with pytest.raises(InvalidOption, match="cannot be called"):
            Table(name)
    with pytest.raises(InvalidOption, match="namespace"):
        Table("t", namespace="a b")
    with pytest.raises(InvalidOption, match="not built yet"):
        Table("t", partition_by="day")  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match="did you mean 'namespace'"):
        Table("t", namespce="x")  # type: ignore[call-arg]


def test_declared_streams_are_those_that_land():
    """What an app declares with a destination, in order; others may be as many as there are users."""
    before = len(declared())
    first, _, last = (Stream("a", destination=Table("a")), Stream("b"), Stream("c", destination=Table("c")))
    assert declared()[before:] == (first, last)


def test_key_fields_are_found_in_order():
    """Marked by `Key`, also inside of an optional."""
    assert key_fields(V1) == ("id",)
    assert key_fields(V2) == ("id", "at")
    assert key_fields(bytes) == ()


def test_a_declaration_does_no_io():
    """Without a client its verbs say what to do, and the declaration itself needs none."""
    with pytest.raises(NotConnected, match="no client is open"):
        _ = Stream("s").client


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("10ms", 0.01), ("5s", 5), ("5m", 300), ("1h", 3600), ("7d", 604800), ("1.5s", 1.5), (2, 2), (0.5, 0.5),
     (timedelta(minutes=1), 60), ("forever", float("inf")), ("2 s", 2), (0, 0)],
)  # fmt: skip
def test_durations_in_all_spellings(written, seconds):
    """Text with a unit, seconds, a timedelta, or for ever."""
    assert seconds_of(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written", ["5", "s", "5 parsec", "-5s", -1, timedelta(seconds=-1), None, True, "", float("nan")]
)
def test_what_is_no_duration(written):
    """An error that shows how to write one."""
    with pytest.raises(InvalidOption, match="7d"):
        seconds_of(written)
