"""A stream's configs, in Kafka's names: which can be set, which cannot move, and what is in force.

None is stored without effect. A config that can be set has its effect on what is taken or kept; one that cannot move may be given
exactly the value that is in force anyway (a program that says `cleanup.policy=delete` gets what it says), and is
refused by name with any other. A config that belongs to the broker is refused with the flag that sets it, and every
other name is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from headwater.config import TIMESTAMP_AHEAD_MAX_MS, Settings
from headwater.errors import InvalidConfig

Source = Literal["stream", "broker", "default"]
Kind = Literal["boolean", "string", "int", "long", "list"]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
SEGMENT_BYTES_MIN = 1024**2  # Kafka's since 4.0: smaller segments only make files


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What a stream's configs mean to its log. `given` is what is stored: only what was said, in Kafka's spelling.

    `max.message.bytes` is not among them: whoever takes a batch from a writer holds it to that, before the log.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    sync: bool = False  # file_sync: an ack means on disk
    segment_bytes: int | None = None  # None: what the running broker says


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One config as DescribeConfigs tells it."""

    name: str
    value: str
    source: Source
    kind: Kind
    read_only: bool
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settable:
    """A config that has its effect on what is taken or kept."""

    doc: str
    kind: Kind
    parse: Callable[[str], int]  # raises ValueError with what is wrong
    default: Callable[[Settings], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fixed:
    """A config with one value only: what is in force until its feature is built."""

    value: str
    doc: str
    kind: Kind = "long"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfBroker:
    """A config that is one for all streams: the broker's setting."""

    value: Callable[[Settings], int]
    flag: str
    doc: str
    kind: Kind = "long"


def parse(config: Mapping[str, str | None]) -> StreamOptions:
    """What `config` means, or InvalidConfig with the name of the first entry that is unknown, not built or wrong."""
    given: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for name, raw in config.items():
        if raw is None:
            raise InvalidConfig(f"{name} has no value: give it one, or leave it out")
        value = raw.strip()
        if name in _SETTABLE:
            numbers[name] = _parsed(name, value)
            given[name] = str(numbers[name])
        else:
            given[name] = _as_in_force(name, value)
    return StreamOptions(
        given=given,
        sync=numbers.get("flush.messages") == 1,
        segment_bytes=numbers.get("segment.bytes"),
    )


def describe(
    config: Mapping[str, str], settings: Settings, *, created_ms: int, updated_ms: int
) -> Iterator[ConfigEntry]:
    """Every config that is in force for a stream that was given `config`, by name."""
    in_force: dict[str, tuple[Kind, str, Source, bool, str]] = {
        "headwater.created.ms": ("long", str(created_ms), "stream", True, "when the stream was created, ms since 1970"),
        "headwater.updated.ms": ("long", str(updated_ms), "stream", True, "when its configs last changed"),
    }
    for name, one in _SETTABLE.items():
        in_force[name] = (one.kind, str(one.default(settings)), "default", False, one.doc)
    for name, fixed in _FIXED.items():
        in_force[name] = (fixed.kind, fixed.value, "default", False, fixed.doc)  # it may be given: as in Kafka
    for name, theirs in _OF_BROKER.items():
        in_force[name] = (theirs.kind, str(theirs.value(settings)), "broker", True, theirs.doc)
    for name in sorted(in_force):
        kind, value, source, read_only, doc = in_force[name]
        if name in config:
            value, source = config[name], "stream"
        yield ConfigEntry(name=name, value=value, source=source, kind=kind, read_only=read_only, doc=doc)


def _parsed(name: str, value: str) -> int:
    try:
        return _SETTABLE[name].parse(value)
    except ValueError as why:
        raise InvalidConfig(f"{name}={value}: {why}") from None


def _as_in_force(name: str, value: str) -> str:
    if name in _OF_BROKER:
        raise InvalidConfig(f"{name} is one for all streams of this broker: start it with {_OF_BROKER[name].flag}")
    if name not in _FIXED:
        raise InvalidConfig(
            f"there is no stream config {name!r} here (UNSUPPORTED.md lists what is not built): remove it"
        )
    fixed = _FIXED[name]
    if value.lower() != fixed.value.lower():
        raise InvalidConfig(
            f"{name}={value} is not built: {name} is {fixed.value} ({fixed.doc}); give that value, or leave it out"
        )
    return fixed.value


def _number(least: int, most: int) -> Callable[[str], int]:
    def parse_number(value: str) -> int:
        digits = value.removeprefix("-").removeprefix("+")
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError("is not a number")
        if not least <= int(value) <= most:
            raise ValueError(f"must be {least} to {most}")
        return int(value)

    return parse_number


def _flush_messages(value: str) -> int:
    number = _number(1, LONG_MAX)(value)
    if number not in {1, LONG_MAX}:
        raise ValueError(f"must be 1 (flushed before the ack) or {LONG_MAX} (flushed in the background)")
    return number


_SETTABLE: Mapping[str, _Settable] = {
    "flush.messages": _Settable(
        kind="long",
        parse=_flush_messages,
        default=lambda _: LONG_MAX,
        doc="1: an ack means on disk (file_sync); 9223372036854775807: flushed in the background (file_async)",
    ),
    "max.message.bytes": _Settable(
        kind="int",
        parse=_number(0, INT_MAX),
        default=lambda settings: settings.record_bytes_max,
        doc="the largest batch of records, as sent, with its header",
    ),
    "segment.bytes": _Settable(
        kind="int",
        parse=_number(SEGMENT_BYTES_MIN, INT_MAX),
        default=lambda settings: settings.segment_bytes,
        doc="the size at which a segment is sealed and the next one begins",
    ),
}

_FIXED: Mapping[str, _Fixed] = {
    "cleanup.policy": _Fixed(value="delete", kind="list", doc="streams are not compacted"),
    "compression.type": _Fixed(value="producer", kind="string", doc="batches are kept as their writer compressed them"),
    "file.delete.delay.ms": _Fixed(value="0", doc="files of a deleted stream are freed at once"),
    "message.timestamp.type": _Fixed(value="CreateTime", kind="string", doc="a record keeps its writer's timestamp"),
    "message.timestamp.after.max.ms": _Fixed(
        value=str(TIMESTAMP_AHEAD_MAX_MS), doc="how far a record's timestamp may be ahead of the broker's clock"
    ),
    "message.timestamp.before.max.ms": _Fixed(value=str(LONG_MAX), doc="a record may be as old as it likes"),
    "min.insync.replicas": _Fixed(value="1", kind="int", doc="there is one broker"),
    "preallocate": _Fixed(value="false", kind="boolean", doc="a log holds nothing but records"),
    "remote.storage.enable": _Fixed(value="false", kind="boolean", doc="segments stay on this disk"),
    "retention.bytes": _Fixed(value="-1", doc="nothing is deleted by size"),
    "retention.ms": _Fixed(value="-1", doc="nothing is deleted by age"),
    "segment.jitter.ms": _Fixed(value="0", doc="segments are sealed by size alone"),
    "segment.ms": _Fixed(value=str(LONG_MAX), doc="segments are not sealed by age"),
    "unclean.leader.election.enable": _Fixed(value="false", kind="boolean", doc="there is one broker"),
}

_OF_BROKER: Mapping[str, _OfBroker] = {
    "flush.ms": _OfBroker(
        value=lambda settings: settings.flush_ms,
        flag="HEADWATER_FLUSH_MS",
        doc="the longest time an acked record of file_async waits for its flush",
    ),
    "index.interval.bytes": _OfBroker(
        value=lambda settings: settings.index_interval_bytes,
        flag="HEADWATER_INDEX_INTERVAL_BYTES",
        doc="bytes of log between two entries of the index",
        kind="int",
    ),
}
