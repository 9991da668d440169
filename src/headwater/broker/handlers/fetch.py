"""Fetch (1), versions 4-18.

v7 sessions (KIP-227); v9 leader epochs; v11 rack; v12 flexible and `last_fetched_epoch`; v13 by topic id; v16 node
endpoints (never here: there is one node); v17 and v18 are for replicas.

Batches leave as they lie in the file. A poll waits up to `max_wait_ms` for `min_bytes`, and looks again whenever one of
its partitions moved, failed or was deleted. The first batch is always returned, alone if it is larger than allowed.

Differs from Kafka: no sessions are kept. Id 0 in the answer says so, and every client then names all its partitions
each time; a request that speaks of a session gets FETCH_SESSION_ID_NOT_FOUND. A wait is `FETCH_WAIT_MS_MAX` at most.
An answer has `FETCH_BYTES_MAX` at most, as with Kafka's fetch.max.bytes. Without transactions, read_committed sees what
read_uncommitted sees.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.broker.connection import Connection, Reply
from headwater.config import FETCH_BYTES_MAX, FETCH_WAIT_MS_MAX
from headwater.errors import (
    FetchSessionNotFound,
    OffsetOutOfRange,
    UnknownStream,
    UnknownStreamId,
    WireError,
)
from headwater.log import Partition
from headwater.meta import Place, StreamEntry
from headwater.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, PartitionData, Request, Response

if TYPE_CHECKING:
    from headwater.broker.server import Broker

log = logging.getLogger("headwater.broker")

BY_ID_FROM = 13
READ_COMMITTED = 1


def begin(broker: Broker, connection: Connection, reply: Reply, request: Request) -> None:
    if request.session_epoch in {0, -1}:  # a whole fetch; 0 asks for a new session in the place of the old one
        _Poll(broker, reply, request).look()
    else:
        reply.send(Response(error_code=FetchSessionNotFound.code))


class _Poll:
    """One Fetch request, until it is answered or its client is gone."""

    __slots__ = (
        "_asked",
        "_broker",
        "_bytes_max",
        "_bytes_min",
        "_final",
        "_opening",
        "_partitions",
        "_refused",
        "_reply",
        "_request",
        "_size",
        "_sizes",
        "_timer",
        "_unopened",
    )

    def __init__(self, broker: Broker, reply: Reply, request: Request) -> None:
        self._broker, self._reply, self._request = broker, reply, request
        self._partitions: list[Partition] = []
        self._refused: dict[Place, WireError] = {}
        self._unopened: set[Place] = set()
        self._opening = 0
        self._bytes_max = min(request.max_bytes, FETCH_BYTES_MAX)
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._asked: dict[Partition, tuple[StreamEntry, Any]] = {}
        self._sizes: dict[Partition, int] = {}
        self._size = 0
        self._final = False
        self._timer: asyncio.TimerHandle | None = None

    def look(self, moved: Partition | None = None) -> None:
        """Reads what there is; answers if that is enough, else waits.

        Called by whatever it waited for: what goes wrong here is told to nobody but its own client.
        """
        try:
            if moved is None or self._is_enough_with(moved):
                self._look()
        except Exception as why:
            log.exception("a fetch could not be answered")
            self.forget()
            self._reply.fail(why)

    def _is_enough_with(self, moved: Partition) -> bool:
        """Looks at one partition only: there may be a thousand, and each of them moves a thousand times a second."""
        row, asked = self._asked[moved]
        if self._bytes_min <= 1 or self._broker.store.stream_by_id(row.id) is not row:
            return True
        before = self._size = self._size - self._sizes.get(moved, 0)
        try:
            settled = self._fill(PartitionData(), moved, asked)
        except WireError:
            return True
        self._sizes[moved] = self._size - before
        return settled or self._size >= self._bytes_min

    def _look(self) -> None:
        request, final = self._request, self._final or self._broker.draining
        response, settled = self._read()
        if self._unopened:
            self._open()
        elif settled or final or self._size >= self._bytes_min or request.max_wait_ms <= 0 or not self._partitions:
            self.forget()
            self._reply.send(response)
        elif self._timer is None:
            seconds = min(request.max_wait_ms, FETCH_WAIT_MS_MAX) / 1000
            self._timer = self._broker.loop.call_later(seconds, self._time_is_over)
            self._reply.on_close = self.forget
            self._broker.waiting.wait(self._partitions, self.look)

    def _time_is_over(self) -> None:
        self._final = True
        self.look()

    def forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._broker.waiting.forget(self._partitions, self.look)

    def _read(self) -> tuple[Response, bool]:
        """The answer as it would be now, and whether an error in it makes waiting pointless."""
        broker, request = self._broker, self._request
        by_id = self._reply.version >= BY_ID_FROM
        waits = self._timer is not None
        response = Response(session_id=0)
        settled = False
        self._size = 0
        if not waits:
            self._partitions = []
        for topic in request.topics:
            row = broker.store.stream_by_id(topic.topic_id) if by_id else broker.store.stream(topic.topic)
            parts: list[PartitionData] = []
            response.responses.append(
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=parts)
            )
            for asked in topic.partitions:
                data = PartitionData(
                    partition_index=asked.partition,
                    high_watermark=-1,
                    aborted_transactions=[] if request.isolation_level == READ_COMMITTED else None,
                    records=b"",
                )
                parts.append(data)
                try:
                    partition = self._find(row, asked.partition, by_id)
                    if partition is not None and row is not None:
                        if not waits:
                            self._partitions.append(partition)
                        self._asked[partition] = row, asked
                        before = self._size
                        settled |= self._fill(data, partition, asked)
                        self._sizes[partition] = self._size - before
                except WireError as why:
                    data.error_code = why.code
                    settled = True
        return response, settled

    def _find(self, row: StreamEntry | None, index: int, by_id: bool) -> Partition | None:
        """None: it is not open yet, and will be looked for again."""
        if row is None:
            raise UnknownStreamId("no stream has this id") if by_id else UnknownStream("there is no such stream")
        place = self._broker.place(row, index)
        if place in self._refused:
            raise self._refused[place]
        partition = self._broker.opened(place)
        if partition is None:
            self._unopened.add(place)
        return partition

    def _fill(self, data: PartitionData, partition: Partition, asked: Any) -> bool:
        """Puts the partition's part into `data`; True when the client has to hear of it at once."""
        self._broker.check_epoch(asked.current_leader_epoch)
        high = partition.high_watermark
        start = partition.start
        data.high_watermark = data.last_stable_offset = high
        data.log_start_offset = start
        offset = asked.fetch_offset
        if asked.last_fetched_epoch >= 0:
            epoch, end = partition.epoch_end(asked.last_fetched_epoch)
            if epoch < 0:
                raise OffsetOutOfRange(f"nothing was written in epoch {asked.last_fetched_epoch}, or before")
            if epoch < asked.last_fetched_epoch or end < offset:
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
                return True
        if not start <= offset <= partition.end:
            data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
            raise OffsetOutOfRange(f"offset {offset} is not in {start} to {partition.end}")
        room = min(asked.partition_max_bytes, self._bytes_max - self._size)
        if offset >= high or (room <= 0 and self._size):
            return False
        slices = partition.read(offset, max(room, 1), upto=high)
        size = sum(one.length for one in slices)
        if size > room and self._size:
            return False  # the oversize batch is let through only when it comes alone
        data.records = slices
        self._size += size
        return False

    def _open(self) -> None:
        """Partitions that were not used since the start are recovered beside the loop, then all is looked at anew."""
        places, self._unopened = self._unopened, set()
        self._opening = len(places)
        for place in places:
            self._broker.open_soon(place).add_done_callback(partial(self._opened, place))

    def _opened(self, place: Place, opened: Any) -> None:
        _, why = self._broker.result_of(opened)
        if why is not None:
            self._refused[place] = why
        self._opening -= 1
        if not self._opening and self._reply.connection.open:
            self.look()
