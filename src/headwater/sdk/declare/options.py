"""The options of a stream: their names and types in one place, for the editor and for run time alike.

`StreamOptions` is what `Stream(...)`, `StreamConfig(...)` and `hw.stream(...)` unpack, so a wrong name is a type error
there; whoever has no type checker gets an error with a suggestion. Only what works is in it. `NOT_BUILT` are names that
are known and refused: an option that is accepted and does nothing would be a lie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, Unpack, cast

from headwater.config import PARTITIONS_MAX
from headwater.errors import InvalidOption
from headwater.sdk.declare.refusal import refusal
from headwater.sdk.declare.table import Table

Persistence = Literal["file_async", "file_sync"]
RawValue = str | int | float | bool


class StreamOptions(TypedDict, total=False):
    """What a stream may be told. What is left out is the server's choice, and never compared."""

    partitions: int  # fixed when the stream is made; left out: what the server says (ours: 4)
    replication_factor: int  # for a cluster; one broker has 1
    persistence: Persistence  # what an ack promises: "file_async" (in the kernel) or "file_sync" (on disk)
    config: Mapping[str, RawValue]  # raw topic configs, passed through
    partition_function: Callable[[Any], int]  # value -> partition; wins over the key's hash
    destination: Table[Any]  # the table this stream lands in


NOT_BUILT = frozenset(
    {
        "retention", "compression", "cleanup_policy", "min_cleanable_dirty_ratio", "batch_size", "batch_timeout",
        "transform", "error_handler", "dead_letter_queue", "monitoring", "health_check", "sync_function",
        "route_function", "schema_registry", "key",
    }
)  # fmt: skip
RAW_TWINS = {"persistence": "flush.messages"}  # option -> the topic config it travels as


class StreamConfig:
    """The same options as an object of its own: `Stream[Event]("events", StreamConfig(destination=events_table))`."""

    def __init__(self, **options: Unpack[StreamOptions]) -> None:
        self.options = checked(options, "StreamConfig")

    def __repr__(self) -> str:
        return f"StreamConfig({spelled(self.options)})"


def joined(name: str, config: StreamConfig | None, options: StreamOptions) -> StreamOptions:
    """The options of stream `name` from both spellings; one option in both is an error."""
    where = f"Stream {name!r}"
    if config is not None and not isinstance(config, StreamConfig):
        raise InvalidOption(f"{where}: the second argument is a StreamConfig, not {config!r}: write options by name")
    mine = checked(options, where)
    if config is None:
        return mine
    for twice in sorted(mine.keys() & config.options.keys()):
        raise InvalidOption(f"{where}: {twice} stands in the StreamConfig and beside it: write it once")
    return cast("StreamOptions", {**config.options, **mine})


def checked(options: Mapping[str, Any], where: str) -> StreamOptions:
    """`options` if each is known, built and of the right type; an `InvalidOption` that names the first that is not."""
    known = StreamOptions.__annotations__
    for name, value in options.items():
        if name not in known:
            raise refusal(name, known, NOT_BUILT, where)
        _CHECKS[name](value, f"{where}: {name}")
    raw = options.get("config", {})
    for name, twin in RAW_TWINS.items():
        if name in options and twin in raw:
            raise InvalidOption(f"{where}: {name} and config[{twin!r}] say the same thing: write one of them")
    return cast("StreamOptions", dict(options))


def raw_configs(options: StreamOptions) -> dict[str, str]:
    """The topic configs that these options travel as. `file_async` is what a log does unasked, and sends nothing."""
    raw = {name: raw_text(value) for name, value in options.get("config", {}).items()}
    if options.get("persistence") == "file_sync":
        raw["flush.messages"] = "1"
    return raw


def raw_text(value: RawValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def spelled(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


def _a_count(value: object, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= PARTITIONS_MAX:
        raise InvalidOption(f"{where} is a number from 1 to {PARTITIONS_MAX}, not {value!r}")


def _a_persistence(value: object, where: str) -> None:
    if value not in {"file_async", "file_sync"}:
        raise InvalidOption(f'{where} is "file_async" or "file_sync", not {value!r}')


def _raw(value: object, where: str) -> None:
    if not isinstance(value, Mapping):
        raise InvalidOption(f'{where} is a mapping of topic configs, such as {{"segment.bytes": 1048576}}')
    for name, raw in value.items():
        if not isinstance(name, str) or not isinstance(raw, str | int | float | bool):
            raise InvalidOption(f"{where}[{name!r}] is a str or a number under a name, not {raw!r}")


def _a_function(value: object, where: str) -> None:
    if not callable(value):
        raise InvalidOption(f"{where} is a function from a value to a partition, not {value!r}")


def _a_table(value: object, where: str) -> None:
    if not isinstance(value, Table):
        raise InvalidOption(f'{where} is a table, such as Table[Event]("events"), not {value!r}')


_CHECKS: dict[str, Callable[[object, str], None]] = {
    "partitions": _a_count,
    "replication_factor": _a_count,
    "persistence": _a_persistence,
    "config": _raw,
    "partition_function": _a_function,
    "destination": _a_table,
}
