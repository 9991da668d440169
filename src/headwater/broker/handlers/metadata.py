"""Metadata (3), versions 0-13.

v0 an empty list means all streams; v1 null does, and tells the controller; v2 the cluster id; v4 whether asking may
create; v9 flexible; v10 topic ids; v12 by id alone; v13 an error of the whole answer (never here).

One node leads everything. Each stream's part of the answer is kept encoded, since a client with many streams asks for
all of them every few minutes, and every client of a busy broker asks for some.

Differs from Kafka: asking creates nothing unless the broker was started with `--auto-create`; a stream that was created
so is told at once, with its leader. Authorized operations are never told: there is nobody to authorize yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from headwater.broker.context import Context
from headwater.broker.server import NODE_ID
from headwater.config import ANSWERED_AT_ONCE
from headwater.errors import InvalidRequest, StreamExists, UnknownStream, UnknownStreamId, WireError
from headwater.meta import StreamEntry
from headwater.model import StreamId, stream_name
from headwater.wire.fields import NO_ID
from headwater.wire.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    Request,
    Response,
    encode_metadata_response_topic,
)

NULL_MEANS_ALL_FROM = 1
BY_ID_FROM = 12


async def handle(request: Request, context: Context) -> Response:
    """Cancelling forgets the answer; a stream that is being created is created."""
    broker = context.broker
    host, port = broker.advertised
    response = Response(
        brokers=[MetadataResponseBroker(node_id=NODE_ID, host=host, port=port)],
        cluster_id=broker.store.cluster_id,
        controller_id=NODE_ID,
    )
    wanted = request.topics
    if wanted is None or (not wanted and context.version < NULL_MEANS_ALL_FROM):
        response.topics.extend(_all(context))
    else:
        if context.version < BY_ID_FROM and any(one.name is None or one.topic_id != NO_ID for one in wanted):
            return _refusal(wanted)
        for number, topic in enumerate({(one.name, one.topic_id): one for one in wanted}.values(), 1):
            if number % ANSWERED_AT_ONCE == 0:
                await asyncio.sleep(0)
            response.topics.append(await _one(topic, context, may_create=request.allow_auto_topic_creation))
    return response


def _refusal(wanted: list[MetadataRequestTopic]) -> Response:
    """Versions 10 and 11 have a field for ids and no way to ask by them: a client that tries is told so by topic."""
    code = InvalidRequest.code
    return Response(
        topics=[MetadataResponseTopic(error_code=code, name=one.name or "", topic_id=one.topic_id) for one in wanted]
    )


async def _one(topic: MetadataRequestTopic, context: Context, *, may_create: bool) -> bytes | MetadataResponseTopic:
    store = context.broker.store
    try:
        if topic.name is None or topic.topic_id != NO_ID:
            entry = store.stream_by_id(StreamId(topic.topic_id))
            if entry is None:
                raise UnknownStreamId("no stream has this id")
        else:
            entry = store.stream(topic.name)
            if entry is None:
                entry = await _create(topic.name, context, allowed=may_create)
    except WireError as why:
        return MetadataResponseTopic(error_code=why.code, name=topic.name, topic_id=topic.topic_id)
    return _encoded(entry, context)


async def _create(name: str, context: Context, *, allowed: bool) -> StreamEntry:
    broker = context.broker
    known = stream_name(name)
    if not (allowed and broker.settings.auto_create):
        raise UnknownStream(f"there is no stream {name!r}")
    try:
        return await broker.durable(
            broker.store.create(known, broker.settings.num_partitions, {}, time.time_ns() // 1_000_000)
        )
    except StreamExists:  # somebody else asked in the same instant
        entry = broker.store.stream(name)
        if entry is None:
            raise
        return entry


def _all(context: Context) -> Iterator[bytes]:
    entries = context.broker.store.streams()
    fragments = context.broker.fragments
    if len(fragments) > 2 * len(entries) * 14:  # of streams that are gone, in as many versions as there are
        fragments.clear()
    for entry in entries:
        yield _encoded(entry, context)


def _encoded(entry: StreamEntry, context: Context) -> bytes:
    """The stream's part of the answer. An entry that changed is another object, so what was kept of it is not used."""
    key = (entry.id, context.version)
    kept = context.broker.fragments.get(key)
    if kept is not None and kept[0] is entry:
        return kept[1]
    epoch = context.broker.store.epoch
    partitions = [
        MetadataResponsePartition(
            partition_index=index, leader_id=NODE_ID, leader_epoch=epoch, replica_nodes=[NODE_ID], isr_nodes=[NODE_ID]
        )
        for index in range(entry.partitions)
    ]
    topic = MetadataResponseTopic(name=entry.name, topic_id=entry.id, partitions=partitions)
    encoded = encode_metadata_response_topic(topic, context.version)
    context.broker.fragments[key] = (entry, encoded)
    return encoded
