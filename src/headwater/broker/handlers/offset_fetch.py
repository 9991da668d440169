"""OffsetFetch (9), versions 1-10.

v2 null topics mean all, and an error of the whole answer; v5 leader epochs; v6 flexible; v7 require_stable, which
changes nothing: no transaction can hold a cursor, since there are none; v8 many groups at once; v9 a member's epoch,
for groups that are not served; v10 streams by id. A group or a partition without a cursor is -1 and no error.

Differs from Kafka: when the disk cannot be read the answer is COORDINATOR_NOT_AVAILABLE, at which clients try again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headwater.broker.context import Context
from headwater.errors import CoordinatorNotAvailable, UnknownStreamId, WireError
from headwater.meta import Place, StreamEntry
from headwater.model import Cursor, GroupName, Offset, PartitionIndex
from headwater.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
    Request,
    Response,
)

MANY_FROM = 8
BY_ID_FROM = 10
NONE = Cursor(offset=Offset(-1))
log = logging.getLogger("headwater.broker")


async def handle(request: Request, context: Context) -> Response:
    """Cancelling forgets the answer."""
    if context.version >= MANY_FROM:
        return Response(groups=[await _group(one, context) for one in request.groups])
    topics, asked = request.topics, None
    if topics is not None:
        asked = [OffsetFetchRequestTopics(name=one.name, partition_indexes=one.partition_indexes) for one in topics]
    answer = await _group(OffsetFetchRequestGroup(group_id=request.group_id, topics=asked), context)
    return Response(
        error_code=answer.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        metadata=one.metadata,
                        error_code=one.error_code,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
    )


async def _group(asked: OffsetFetchRequestGroup, context: Context) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group_id=asked.group_id)
    try:
        cursors = await context.broker.groups.cursors(GroupName(asked.group_id))
    except WireError as why:
        log.warning("cursors of group %s could not be read: %s", asked.group_id, why)
        answer.error_code = CoordinatorNotAvailable.code
        return answer
    if asked.topics is None:
        answer.topics = _all(cursors, context)
    else:
        answer.topics = [_topic(topic, cursors, context) for topic in asked.topics]
    return answer


def _all(cursors: Mapping[Place, Cursor], context: Context) -> list[OffsetFetchResponseTopics]:
    topics: dict[bytes, OffsetFetchResponseTopics] = {}
    for (stream_id, index), cursor in cursors.items():
        entry = context.broker.store.stream_by_id(stream_id)
        if entry is not None:  # deleted between the reading of the cursors and now
            topic = topics.setdefault(stream_id, OffsetFetchResponseTopics(name=entry.name, topic_id=stream_id))
            topic.partitions.append(_partition(index, cursor))
    return list(topics.values())


def _topic(
    asked: OffsetFetchRequestTopics, cursors: Mapping[Place, Cursor], context: Context
) -> OffsetFetchResponseTopics:
    entry, code = _entry(asked, context)
    answer = OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id)
    for index in asked.partition_indexes:
        cursor = NONE if entry is None else cursors.get((entry.id, PartitionIndex(index)), NONE)
        answer.partitions.append(_partition(index, cursor, code))
    return answer


def _entry(asked: OffsetFetchRequestTopics, context: Context) -> tuple[StreamEntry | None, int]:
    """By name an unknown stream has no cursors; by id it is an error."""
    if context.version < BY_ID_FROM:
        return context.broker.store.stream(asked.name), 0
    entry = context.broker.store.stream_by_id(asked.topic_id)
    return entry, UnknownStreamId.code if entry is None else 0


def _partition(index: int, cursor: Cursor, code: int = 0) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=cursor.offset,
        committed_leader_epoch=cursor.epoch,
        metadata=cursor.metadata,
        error_code=code,
    )
