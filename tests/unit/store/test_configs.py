"""Stream configs in Kafka's names: set, fixed, the broker's, or refused by name; described as they are in force."""

from __future__ import annotations

import pytest

from headwater.config import Settings
from headwater.errors import InvalidConfig
from headwater.store.configs import LONG_MAX, StreamOptions, describe, parse


def described(config=None, settings: Settings | None = None) -> dict[str, tuple[str, str, bool]]:
    entries = describe(config or {}, settings or Settings(), created_ms=1, updated_ms=2)
    return {one.name: (one.value, one.source, one.read_only) for one in entries}


def test_nothing_given_means_the_running_brokers_defaults() -> None:
    """Without configs nothing is stored, and every option is left to the broker that runs."""
    assert parse({}) == StreamOptions()


def test_what_can_be_set_reaches_the_log() -> None:
    """The three configs with an effect are parsed to numbers and kept in Kafka's spelling."""
    options = parse({"flush.messages": " 1 ", "segment.bytes": "1048576", "max.message.bytes": "+2000"})
    assert (options.sync, options.segment_bytes) == (True, 1048576)
    assert options.given == {"flush.messages": "1", "segment.bytes": "1048576", "max.message.bytes": "2000"}


def test_kafkas_default_of_flush_messages_is_file_async() -> None:
    """flush.messages at Kafka's default may be given; it flushes in the background."""
    options = parse({"flush.messages": str(LONG_MAX)})
    assert (options.sync, dict(options.given)) == (False, {"flush.messages": str(LONG_MAX)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flush.messages", "2"),
        ("flush.messages", "0"),
        ("flush.messages", ""),
        ("flush.messages", "٣"),
        ("flush.messages", str(LONG_MAX + 1)),
        ("segment.bytes", "1048575"),
        ("segment.bytes", "2147483648"),
        ("segment.bytes", "64MB"),
        ("segment.bytes", "--1048576"),
        ("max.message.bytes", "-1"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("compression.type", "gzip"),
        ("message.timestamp.type", "LogAppendTime"),
        ("min.insync.replicas", "2"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1073741824"),
        ("headwater.retention.bytes", "1"),
        ("headwater.created.ms", "1"),
        ("flush.ms", "50"),
        ("index.interval.bytes", "4096"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("no.such.config", "1"),
        ("segment.bytes", None),
    ],
)
def test_what_has_no_effect_is_refused_by_name(name: str, value: str | None) -> None:
    """A config that is wrong, not built, the broker's or unknown is an error that names it."""
    with pytest.raises(InvalidConfig, match=name):
        parse({"flush.messages": "1", name: value})


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("cleanup.policy", "delete", "delete"),
        ("compression.type", "producer", "producer"),
        ("message.timestamp.type", "createtime", "CreateTime"),
        ("retention.ms", "-1", "-1"),
        ("retention.bytes", "-1", "-1"),
        ("min.insync.replicas", "1", "1"),
        ("unclean.leader.election.enable", "False", "false"),
    ],
)
def test_what_is_in_force_anyway_may_be_said(name: str, value: str, kept: str) -> None:
    """A program that asks for exactly what it gets is not refused, and what it said is kept."""
    assert parse({name: value}).given == {name: kept}
    assert described({name: kept})[name] == (kept, "stream", False)  # not read-only: it may be said


def test_every_config_that_can_be_given_is_described() -> None:
    """DescribeConfigs tells what is in force, where it comes from, and what cannot be changed."""
    found = described({"segment.bytes": "1048576"}, Settings(record_bytes_max=5_000, flush_ms=7))
    assert found["segment.bytes"] == ("1048576", "stream", False)
    assert found["max.message.bytes"] == ("5000", "default", False)
    assert found["flush.messages"] == (str(LONG_MAX), "default", False)
    assert found["flush.ms"] == ("7", "broker", True)
    assert found["retention.ms"] == ("-1", "default", False)
    assert found["headwater.created.ms"] == ("1", "stream", True)
    assert found["headwater.updated.ms"] == ("2", "stream", True)
    assert list(found) == sorted(found)


def test_what_is_described_as_default_may_be_given() -> None:
    """Copying a described stream's settable and fixed configs to a new stream is accepted."""
    for name, (value, source, _) in described().items():
        if source == "default":
            assert parse({name: value}).given == {name: value}
