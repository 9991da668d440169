"""Bounded reads: the records of one partition between two offsets, and what the server says of its streams.

A group reads for ever; a range ends. It ends by position, never by a count of records, since transactions and
compaction leave gaps, and it is an error when the log no longer has its start: jumping over lost records in silence is
what `auto.offset.reset=earliest` would do.

The traps of librdkafka that this file knows: `assign` to a stream that is not there gives neither a record nor an
error, so there is a stall limit; `consume(n, timeout)` waits the whole timeout when fewer than n records remain;
`fetch.queue.backoff.ms` is a second by default, which costs four fifths of the speed; the leader epoch of an end event
is 0 and means nothing. A cut and a lost prefix are the same error while reading: `probe` tells them apart.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from headwater.config import (
    RANGE_ANSWER_SECONDS,
    RANGE_CHUNK_RECORDS,
    RANGE_CONSUME_SECONDS,
    RANGE_QUEUE_KBYTES,
    RANGE_STALL_SECONDS,
)
from headwater.errors import HeadwaterError, PartitionSilent, RecordsLost, StreamNotFound
from headwater.model import Cursor
from headwater.sdk.border import LOST, client_options, headers_of, mapped, unreachable

Place = tuple[str, int]  # a stream's name and one of its partitions
Client = Mapping[str, Any]  # librdkafka's options; `bootstrap.servers` is the only one that must be there
R = TypeVar("R")

_END = KafkaError._PARTITION_EOF  # noqa: SLF001  the library's own codes begin so
_NO_LEADERS = KafkaError._NOENT  # noqa: SLF001  what list_offsets says of a stream that is not there

_WORD = 2**64 - 1
_FAR = 2**63 - 1  # no offset is beyond it
_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Polled(NamedTuple):
    """One record as it lies in the log. A tuple, since millions of them pass."""

    offset: int
    epoch: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """A stream as the server describes it.

    `id_is_known` is false where the server has no ids: then `stream_id` is a hash of cluster and name, and a stream
    created again under its name is not noticed.
    """

    name: str
    stream_id: str  # 32 hex digits
    partitions: int
    id_is_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What `probe` found. `offset` is where to read on: at the end itself, where the log was cut, or where it starts."""

    kind: Literal["whole", "cut", "prefix gone"]
    offset: int


def read_range(
    client: Client,
    stream: str,
    partition: int,
    start: int,
    end: int,
    epoch: int = -1,
    *,
    stall_seconds: float = RANGE_STALL_SECONDS,
) -> Generator[list[Polled], None, None]:
    """The records of [start, end), in lists.

    `epoch` is that of the last record before `start`: with it, a log that was cut there and has grown again is
    `RecordsLost`, not silently read on.
    """
    if start >= end:
        return
    consumer = _consumer(client, {"auto.offset.reset": "error"})
    try:
        consumer.assign([_at(stream, partition, start, epoch)])
        position = start
        heard = time.monotonic()
        while position < end:
            polled: list[Polled] = []
            before = position
            for message in _consume(consumer, min(RANGE_CHUNK_RECORDS, end - position)):
                position = _take(message, polled, position, end)
            if polled:
                yield polled
            if position > before:
                heard = time.monotonic()
            elif time.monotonic() - heard > stall_seconds:
                raise _stalled(client, stream, partition, position, end, stall_seconds)
    finally:
        consumer.close()


def follow_from(
    client: Client, stream: str, starts: Mapping[int, int]
) -> Generator[tuple[int, Sequence[Polled]], None, None]:
    """Records as they are published, from these offsets on: (partition, records), and an empty list when it is quiet.

    Ends only when it is closed, or by an error.
    """
    consumer = _consumer(client, {"auto.offset.reset": "error"})
    try:
        consumer.assign([_at(stream, partition, start, -1) for partition, start in starts.items()])
        while True:
            polled: dict[int, list[Polled]] = {}
            for message in _some(consumer):
                partition = message.partition()
                assert partition is not None  # every record and every error of a partition has one
                _take(message, polled.setdefault(partition, []), 0, _FAR)
            yield from polled.items() or [(0, ())]
    finally:
        consumer.close()


def probe(client: Client, stream: str, partition: int, end: int, epoch: int) -> Standing:
    """Whether the log still holds, up to `end`, what was read when its last record there had `epoch` (KIP-320).

    librdkafka asks for the end of that epoch when a leader epoch is assigned, and goes to where the log was cut.
    Costs 15 to 30 ms, at the log's end too, since the answer is not waited for (`fetch.wait.max.ms`).
    """
    consumer = _consumer(client, {"auto.offset.reset": "earliest", "fetch.wait.max.ms": 10})
    try:
        consumer.assign([_at(stream, partition, end, epoch)])
        deadline = time.monotonic() + RANGE_STALL_SECONDS
        while time.monotonic() < deadline:
            for message in _consume(consumer, 1):
                found = _offset_or_end(message)
                if found == end:
                    return Standing(kind="whole", offset=end)
                if found < end:
                    return Standing(kind="cut", offset=found)
                return _gap_or_gone(client, stream, partition, end)
    finally:
        consumer.close()
    raise _stalled(client, stream, partition, end, end, RANGE_STALL_SECONDS)


class RangeAdmin:
    """What a server says of its streams, and is told of a group's cursors. One connection, kept."""

    def __init__(self, client: Client, answer_seconds: float = RANGE_ANSWER_SECONDS) -> None:
        self._seconds = answer_seconds
        self._options = client_options(client["bootstrap.servers"], client)
        self._admin = AdminClient(self._options)

    def streams(self, names: Sequence[str]) -> dict[str, StreamFacts]:
        """The streams of these names that exist."""
        if not names:
            return {}
        answers = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=self._seconds)
        found: dict[str, StreamFacts] = {}
        for name, answer in answers.items():
            try:
                described = self._answer(answer, f"look for stream {name!r}")
            except StreamNotFound:
                continue
            found[name] = self._facts(name, described)
        return found

    def starts(self, places: Sequence[Place]) -> dict[Place, int]:
        """The first offset that each partition still has."""
        return self._offsets(places, _EARLIEST)

    def ends(self, places: Sequence[Place]) -> dict[Place, int]:
        """The offset after the last record that a reader of committed records may see."""
        return self._offsets(places, _LATEST)

    def commit_cursors(self, group: str, stream: str, stream_id: str, cursors: Mapping[int, Cursor]) -> bool:
        """Tells the server where `group` stands in the partitions of one stream, as nobody's member.

        False, and nothing done, when the stream of that name is another one by now: such a commit carries only a name,
        so the ids are compared just before.
        """
        facts = self.streams([stream]).get(stream)
        if facts is None or facts.stream_id != stream_id:
            return False
        positions = [_at(stream, partition, one.offset, one.epoch) for partition, one in cursors.items()]
        # A connection of its own, held until all is answered: one that knew the coordinator before the server restarted
        # asks it in vain until the time is up, and aborted the process once (librdkafka 2.16).
        own = AdminClient(self._options)
        asked = own.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, positions)], request_timeout=self._seconds
        )
        for answer in asked.values():
            for one in self._answer(answer, f"commit the cursors of {group}").topic_partitions:
                if one.error is not None:
                    raise _mapped(one.error, f"commit the cursor of {group} in {one.topic}/{one.partition}")
        return True

    def _facts(self, name: str, described: Any) -> StreamFacts:
        identity = described.topic_id
        high, low = identity.get_most_significant_bits(), identity.get_least_significant_bits()
        if high or low:
            text = f"{high & _WORD:016x}{low & _WORD:016x}"
            return StreamFacts(name=name, stream_id=text, partitions=len(described.partitions))
        cluster = self._answer(self._admin.describe_cluster(request_timeout=self._seconds), "ask for the cluster's id")
        hashed = hashlib.sha256(f"{cluster.cluster_id}\0{name}".encode()).hexdigest()[:32]
        return StreamFacts(name=name, stream_id=hashed, partitions=len(described.partitions), id_is_known=False)

    def _offsets(self, places: Sequence[Place], spec: Any) -> dict[Place, int]:
        if not places:
            return {}
        wanted = {TopicPartition(stream, partition): spec for stream, partition in places}
        answers = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._seconds
        )
        return {
            (place.topic, place.partition): self._answer(
                answer, f"ask for the offsets of {place.topic}/{place.partition}"
            ).offset
            for place, answer in answers.items()
        }

    def _answer(self, answer: Future[R], doing: str) -> R:
        try:
            return answer.result(self._seconds + 1)
        except KafkaException as error:
            raise _mapped(error.args[0], doing) from None
        except FutureTimeout:
            raise unreachable(doing, f"no answer within {self._seconds:g} s") from None


def _consumer(client: Client, ours: Mapping[str, Any]) -> Consumer:
    options = {
        "group.id": "headwater-ranges",  # librdkafka wants one; nothing is ever committed under it
        **client_options(client["bootstrap.servers"], client),
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "check.crcs": True,
        "fetch.queue.backoff.ms": 10,
        "queued.max.messages.kbytes": RANGE_QUEUE_KBYTES,
        **ours,
    }
    return Consumer(options)


def _at(stream: str, partition: int, offset: int, epoch: int) -> TopicPartition:
    if epoch < 0:
        return TopicPartition(stream, partition, offset)
    return TopicPartition(stream, partition, offset, leader_epoch=epoch)


def _consume(consumer: Consumer, most: int, seconds: float = RANGE_CONSUME_SECONDS) -> list[Message]:
    try:
        return consumer.consume(most, seconds)
    except KafkaException as error:
        raise _mapped(error.args[0], "read a range") from None


def _some(consumer: Consumer) -> list[Message]:
    """What is there now, without waiting for more; the first of it is waited for."""
    first = _consume(consumer, 1)
    return first + _consume(consumer, RANGE_CHUNK_RECORDS, 0) if first else []


def _take(message: Message, polled: list[Polled], position: int, end: int) -> int:
    """Adds a record to `polled`; returns the position after it."""
    offset = message.offset()
    error = message.error()
    if error is not None:
        if error.code() == _END:
            return max(position, offset or 0)
        raise _mapped(error, f"read {message.topic()}/{message.partition()} from offset {position}")
    assert offset is not None  # a record has one
    if offset >= end:
        return end
    kind, stamp = message.timestamp()
    polled.append(
        Polled(
            offset,
            message.leader_epoch() or 0,
            stamp if kind else -1,
            message.key(),
            message.value(),
            headers_of(message),
        )
    )
    return offset + 1


def _offset_or_end(message: Message) -> int:
    error = message.error()
    if error is not None and error.code() != _END:
        raise _mapped(error, f"probe {message.topic()}/{message.partition()}")
    offset = message.offset()
    assert offset is not None  # records and end events have one
    return offset


def _gap_or_gone(client: Client, stream: str, partition: int, end: int) -> Standing:
    """The first record lies beyond `end`: transactions and compaction leave such gaps, retention takes a prefix."""
    start = RangeAdmin(client).starts([(stream, partition)])[stream, partition]
    if start > end:
        return Standing(kind="prefix gone", offset=start)
    return Standing(kind="whole", offset=end)


def _stalled(client: Client, stream: str, partition: int, position: int, end: int, seconds: float) -> HeadwaterError:
    """Why nothing came: asks the server, since librdkafka does not say."""
    place = (stream, partition)
    facts = RangeAdmin(client, min(RANGE_ANSWER_SECONDS, max(1.0, seconds)))
    there = facts.streams([stream]).get(stream)
    if there is None or partition >= there.partitions:
        return StreamNotFound(f"{stream}/{partition} is not there any more: it was deleted while it was read")
    log_end = facts.ends([place])[place]
    if log_end < end:
        return RecordsLost(f"{stream}/{partition} ends at offset {log_end}, and was to be read up to {end}")
    return PartitionSilent(
        f"{stream}/{partition} gave no record from offset {position} for {seconds:g} s, and has records up to "
        f"{log_end}: what the server wrote to its log says why (a damaged disk, say)"
    )


def _mapped(error: KafkaError, doing: str, stream: str = "") -> HeadwaterError:
    if error.code() in LOST:
        return RecordsLost(f"cannot {doing}: {error.str()}")
    if error.code() == _NO_LEADERS:
        return StreamNotFound(f"cannot {doing}: {error.str()}")
    return mapped(error, doing, stream)
