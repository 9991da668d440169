"""ListOffsets (2), versions 1-11.

v2 isolation level; v4 leader epochs; v6 flexible; v7 the latest timestamp (-3); v8 the earliest local offset (-4);
v9 the latest tiered offset (-5); v10 a timeout; v11 the earliest offset that waits to be tiered (-6).

-1 is the high watermark (what a reader may see), -2 the start. A timestamp answers with the first record at or after it,
found by batch, then by record, so that a reader never begins too late.

Differs from Kafka: nothing is tiered, so -4 is the start and -5 and -6 find nothing. Without transactions both isolation
levels end at the same offset.
"""

from __future__ import annotations

import asyncio

from headwater.broker.context import Context
from headwater.config import ANSWERED_AT_ONCE
from headwater.errors import UnsupportedVersion, WireError
from headwater.log import Partition
from headwater.meta import StreamEntry
from headwater.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
    Request,
    Response,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}


async def handle(request: Request, context: Context) -> Response:
    """Cancelling forgets the wait for partitions that are being opened."""
    response = Response()
    for topic in request.topics:
        entry = context.broker.store.stream(topic.name)
        partitions = []
        for number, asked in enumerate(topic.partitions, 1):
            if number % ANSWERED_AT_ONCE == 0:
                await asyncio.sleep(0)
            partitions.append(await _one(entry, asked, context))
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return response


async def _one(
    entry: StreamEntry | None, asked: ListOffsetsPartition, context: Context
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        partition = await context.broker.partition(entry, asked.partition_index)
        context.broker.check_epoch(asked.current_leader_epoch)
        if context.version < SINCE.get(asked.timestamp, 0) or asked.timestamp < EARLIEST_PENDING:
            raise UnsupportedVersion(f"version {context.version} has no special timestamp {asked.timestamp}")
        found = _find(partition, asked.timestamp, context.broker.store.epoch)
    except WireError as why:
        answer.error_code = why.code
    else:
        if found is not None:
            answer.offset, answer.timestamp, answer.leader_epoch = found
    return answer


def _find(partition: Partition, timestamp: int, epoch: int) -> tuple[int, int, int] | None:
    """Offset, timestamp (-1: not of a record) and leader epoch."""
    if timestamp == LATEST:
        return partition.high_watermark, -1, epoch
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return partition.start, -1, epoch
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING}:
        return None
    found = partition.max_timestamp() if timestamp == MAX_TIMESTAMP else partition.find_timestamp(timestamp)
    if found is None or found[0] >= partition.high_watermark:
        return None
    return found
