"""Produce (0), versions 3-13.

v9 flexible; v10 tells a new leader (never here: there is one node); v13 by topic id. Advertised from 0 (`apis.py`).

acks=1 and acks=-1 mean the same here, what the stream's durability says: written (`file_async`) or on disk
(`file_sync`). acks=0 gets no answer; a refusal closes the connection. Each partition answers for itself.

Differs from Kafka: a batch is judged by its header and its checksum alone, records stay closed; the answer's log append
time is always -1, since streams keep the times of their writers. A transactional id is refused: no transactions yet.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from headwater.batch import check, split
from headwater.broker.connection import Connection, Reply
from headwater.broker.gather import Pending, Share
from headwater.errors import (
    InvalidAcks,
    InvalidRecord,
    TransactionsNotServed,
    UnknownStream,
    UnknownStreamId,
    WireError,
)
from headwater.meta import StreamEntry
from headwater.wire.messages.produce import (
    PartitionProduceResponse,
    Request,
    Response,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

BY_ID_FROM = 13


def begin(broker: Broker, connection: Connection, reply: Reply, request: Request) -> None:
    """Takes a request up; it is answered at the end of the turn, or when its records are durable."""
    response = Response()
    acks = request.acks
    if acks == 0:
        pending = Pending(connection, None, response)
    else:
        connection.expect(reply, alone=False)
        pending = Pending(connection, reply, response)
    refused = _refusal(request, acks)
    now_ms = time.time_ns() // 1_000_000
    by_id = reply.version >= BY_ID_FROM
    for topic in request.topic_data:
        row = broker.store.stream_by_id(topic.topic_id) if by_id else broker.store.stream(topic.name)
        results: list[PartitionProduceResponse] = []
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)
        )
        for part in topic.partition_data:
            result = PartitionProduceResponse(index=part.index, base_offset=-1)
            results.append(result)
            try:
                if refused is not None:
                    raise refused
                _take(broker, pending, row, part, result, now_ms, by_id)
            except WireError as why:
                pending.refuse(result, why)
    broker.gather.taken_up(pending)


def _take(
    broker: Broker,
    pending: Pending,
    row: StreamEntry | None,
    part: Any,
    result: PartitionProduceResponse,
    now_ms: int,
    by_id: bool,
) -> None:
    if row is None:
        raise UnknownStreamId("no stream has this id") if by_id else UnknownStream("there is no such stream: create it")
    if not 0 <= part.index < row.partitions:
        raise UnknownStream(f"the stream {row.name!r} has {row.partitions} partitions, none is {part.index}")
    batches = split(part.records)
    if len(batches) != 1:
        raise InvalidRecord(f"{len(batches)} batches for one partition: a Produce request has one")
    batch = batches[0]
    limit = row.config.get("max.message.bytes")
    check(batch, bytes_max=int(limit) if limit else broker.settings.record_bytes_max, now_ms=now_ms)
    broker.gather.add((row.id, part.index), Share(pending, batch, result, sync=row.config.get("flush.messages") == "1"))


def _refusal(request: Request, acks: int) -> WireError | None:
    """What is wrong with the request as a whole."""
    if acks not in {-1, 0, 1}:
        return InvalidAcks(f"acks={acks}: -1, 0 or 1 are allowed")
    if request.transactional_id is not None:
        return TransactionsNotServed("transactions are not served: publish without a transactional id")
    return None
