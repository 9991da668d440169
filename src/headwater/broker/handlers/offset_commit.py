"""OffsetCommit (8), versions 2-10.

v2-4 a retention time, which is ignored: cursors never expire; v6 leader epochs; v7 static members; v8 flexible; v9 a
member epoch in the generation's place, for groups that are not served; v10 streams by id. Answered when the cursors
are durable in meta.db. A commit without a generation is taken while the group has no members.

Differs from Kafka: when the disk fails the answer is COORDINATOR_NOT_AVAILABLE, at which clients try again; a member
that the broker does not know is UNKNOWN_MEMBER_ID, even if there never was such a group; the name of a queue is
INCONSISTENT_GROUP_PROTOCOL.
"""

from __future__ import annotations

import logging
import time

from headwater.broker.context import Context
from headwater.errors import (
    CoordinatorNotAvailable,
    CursorMetadataTooLarge,
    GroupKindMismatch,
    InconsistentGroupProtocol,
    StorageFailed,
    UnknownStream,
    UnknownStreamId,
    WireError,
)
from headwater.groups import Identity
from headwater.meta import Place, StreamEntry
from headwater.model import Cursor, Epoch, GroupName, Offset
from headwater.wire.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    Request,
    Response,
)

BY_ID_FROM = 10
log = logging.getLogger("headwater.broker")


async def handle(request: Request, context: Context) -> Response:
    """Cancelling forgets the answer, not the commit."""
    cursors: dict[Place, Cursor] = {}
    response = Response()
    good: list[OffsetCommitResponsePartition] = []
    now_ms = time.time_ns() // 1_000_000
    for topic in request.topics:
        answer = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(answer)
        for one in topic.partitions:
            outcome = OffsetCommitResponsePartition(partition_index=one.partition_index)
            answer.partitions.append(outcome)
            try:
                place = context.broker.place(_entry(topic, context), one.partition_index)
                cursors[place] = _cursor(one, now_ms, context)
                good.append(outcome)
            except WireError as why:
                outcome.error_code = why.code
    if good:  # in the turn in which the streams' ids were found: the shell compares them
        code = await _commit(request, cursors, context)
        for outcome in good:
            outcome.error_code = code
    return response


def _entry(topic: OffsetCommitRequestTopic, context: Context) -> StreamEntry:
    store = context.broker.store
    if context.version >= BY_ID_FROM:
        entry = store.stream_by_id(topic.topic_id)
        if entry is None:
            raise UnknownStreamId("no stream has this id")
    else:
        entry = store.stream(topic.name)
        if entry is None:
            raise UnknownStream(f"there is no stream {topic.name!r}")
    return entry


def _cursor(one: OffsetCommitRequestPartition, now_ms: int, context: Context) -> Cursor:
    metadata = one.committed_metadata or ""
    limit = context.broker.settings.cursor_metadata_bytes_max
    if len(metadata.encode(errors="surrogatepass")) > limit:
        raise CursorMetadataTooLarge(f"a cursor's metadata may have {limit} bytes")
    return Cursor(
        offset=Offset(one.committed_offset),
        epoch=Epoch(one.committed_leader_epoch),
        metadata=metadata,
        committed_ms=now_ms,
    )


async def _commit(request: Request, cursors: dict[Place, Cursor], context: Context) -> int:
    who = Identity(member_id=request.member_id, instance_id=request.group_instance_id)
    group = GroupName(request.group_id)
    try:
        await context.broker.groups.commit(group, who, request.generation_id_or_member_epoch, cursors)
    except StorageFailed as why:
        log.warning("cursors of group %s could not be stored: %s", group, why)
        return CoordinatorNotAvailable.code
    except GroupKindMismatch as why:
        log.warning("cursors of group %s were refused: %s", group, why)
        return InconsistentGroupProtocol.code
    except WireError as why:
        return why.code
    return 0
