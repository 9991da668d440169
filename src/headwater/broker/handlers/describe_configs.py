"""DescribeConfigs (32), versions 1-4.

v1 sources and synonyms; v3 types and documentation; v4 flexible. Of a stream: every config that is in force, with where
its value comes from, and `headwater.created.ms` and `headwater.updated.ms`. Of the broker (1): its settings, in Kafka's
names.

Differs from Kafka: configs that are not built are not listed. Other resources (loggers, groups, client metrics) are
INVALID_REQUEST.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from headwater.broker.context import Context
from headwater.broker.server import NODE_ID, Broker
from headwater.config import ANSWERED_AT_ONCE
from headwater.errors import InvalidRequest, UnknownStream, WireError
from headwater.model import stream_name
from headwater.store import configs
from headwater.store.configs import ConfigEntry
from headwater.wire.messages.describe_configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    Request,
    Response,
)

STREAM, BROKER = 2, 4
SOURCES = {"stream": 1, "broker": 4, "default": 5}
TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "list": 7}
_OURS = (  # Kafka's name, our setting, its type, what it is
    ("auto.create.topics.enable", "auto_create", "boolean", "whether asking for a stream creates it"),
    ("connections.max.idle.ms", "idle_ms", "long", "after which a silent connection is closed"),
    ("group.initial.rebalance.delay.ms", "rebalance_delay_ms", "int", "how long a new group waits for more members"),
    ("group.max.session.timeout.ms", "session_timeout_max_ms", "int", "the longest session a member may ask for"),
    ("group.max.size", "group_members_max", "int", "members of one group"),
    ("group.min.session.timeout.ms", "session_timeout_min_ms", "int", "the shortest session a member may ask for"),
    ("log.flush.interval.ms", "flush_ms", "long", "the longest time an acked record of file_async waits for its flush"),
    ("log.index.interval.bytes", "index_interval_bytes", "int", "bytes of log between two entries of the index"),
    ("log.segment.bytes", "segment_bytes", "int", "the size at which a segment is sealed"),
    ("max.connections", "connections_max", "int", "connections that are held at the same time"),
    ("message.max.bytes", "record_bytes_max", "int", "the largest batch of records"),
    ("num.partitions", "num_partitions", "int", "of a stream that does not say"),
    ("offset.metadata.max.bytes", "cursor_metadata_bytes_max", "int", "the largest note beside a cursor"),
    ("socket.request.max.bytes", "frame_bytes_max", "int", "the largest request"),
    ("socket.send.buffer.bytes", "send_buffer_bytes", "int", "of each connection's socket"),
)


async def handle(request: Request, context: Context) -> Response:
    """A resource that is named twice is answered once: an answer is a hundred times as long as its question."""
    response = Response()
    resources = {(one.resource_type, one.resource_name): one for one in request.resources}
    for number, resource in enumerate(resources.values(), 1):
        if number % ANSWERED_AT_ONCE == 0:
            await asyncio.sleep(0)
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        response.results.append(result)
        try:
            entries, without = _entries(resource, context.broker)
        except WireError as why:
            result.error_code, result.error_message = why.code, str(why)
            continue
        wanted = resource.configuration_keys  # null: all; Kafka's clients also send an empty list for that
        result.configs = [_described(one, without, request) for one in entries if not wanted or one.name in wanted]
    return response


def _entries(resource: DescribeConfigsResource, broker: Broker) -> tuple[Iterable[ConfigEntry], dict[str, ConfigEntry]]:
    """What is in force, and what would be if nothing had been said."""
    if resource.resource_type == STREAM:
        entry = broker.store.stream(resource.resource_name)
        if entry is None:
            stream_name(resource.resource_name)  # a name that cannot be is another error
            raise UnknownStream(f"there is no stream {resource.resource_name!r}")
        times = {"created_ms": entry.created_ms, "updated_ms": entry.updated_ms}
        unsaid = {one.name: one for one in configs.describe({}, broker.settings, **times)}
        return configs.describe(entry.config, broker.settings, **times), unsaid
    if resource.resource_type == BROKER:
        if resource.resource_name not in {"", str(NODE_ID)}:
            raise InvalidRequest(f"there is no broker {resource.resource_name!r}: the only one is {NODE_ID}")
        return _settings(broker), {}
    raise InvalidRequest(f"resources of type {resource.resource_type} have no configs here: ask for streams or brokers")


def _settings(broker: Broker) -> Iterator[ConfigEntry]:
    host, port = broker.advertised
    yield ConfigEntry(
        name="advertised.listeners", value=f"PLAINTEXT://{host}:{port}", source="broker", kind="string",
        read_only=True, doc="what clients are told to connect to",
    )  # fmt: skip
    yield ConfigEntry(
        name="node.id", value=str(NODE_ID), source="broker", kind="int", read_only=True, doc="there is one broker"
    )
    default = type(broker.settings)()
    for name, ours, kind, doc in _OURS:
        value = getattr(broker.settings, ours)
        source = "default" if value == getattr(default, ours) else "broker"
        text = str(value).lower() if kind == "boolean" else str(value)
        yield ConfigEntry(name=name, value=text, source=source, kind=kind, read_only=True, doc=doc)  # type: ignore[arg-type]


def _described(one: ConfigEntry, unsaid: dict[str, ConfigEntry], request: Request) -> DescribeConfigsResourceResult:
    synonyms = []
    if request.include_synonyms:
        chain = [one] if one.source != "stream" or one.name not in unsaid else [one, unsaid[one.name]]
        synonyms = [
            DescribeConfigsSynonym(name=each.name, value=each.value, source=SOURCES[each.source])
            for each in chain
            if each is one or each.source != one.source
        ]
    return DescribeConfigsResourceResult(
        name=one.name,
        value=one.value,
        read_only=one.read_only,
        config_source=SOURCES[one.source],
        synonyms=synonyms,
        config_type=TYPES[one.kind],
        documentation=one.doc if request.include_documentation else None,
    )
