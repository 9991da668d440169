"""OffsetForLeaderEpoch (23), versions 2-4.

v3 replica id; v4 flexible. Where a leader epoch ended: a reader that was ahead of a power cut learns where to go on.

Differs from Kafka: the epoch is one per data directory and moves at each unclean start, so most epochs wrote nothing
into a given partition; as in Kafka the answer is then the last epoch before it that did, and its end.
"""

from __future__ import annotations

from headwater.broker.context import Context
from headwater.errors import WireError
from headwater.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderTopicResult,
    Request,
    Response,
)


async def handle(request: Request, context: Context) -> Response:
    """Cancelling forgets the wait for partitions that are being opened."""
    response = Response()
    for topic in request.topics:
        entry = context.broker.store.stream(topic.topic)
        ends: list[EpochEndOffset] = []
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
        for asked in topic.partitions:
            answer = EpochEndOffset(partition=asked.partition)
            ends.append(answer)
            try:
                partition = await context.broker.partition(entry, asked.partition)
                context.broker.check_epoch(asked.current_leader_epoch)
                found = partition.epoch_end(asked.leader_epoch)
            except WireError as why:
                answer.error_code = why.code
            else:
                answer.leader_epoch, answer.end_offset = found
    return response
