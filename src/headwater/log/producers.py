"""What idempotent producers wrote last, so that a batch that is sent again is not written again.

A producer numbers its records per partition: `base_sequence` of a batch must follow the last one, and starts at 0 again
after 2^31 - 1. A client with requests in flight that were cut off sends them again; if one of the last
`BATCHES_REMEMBERED` has the same first and last sequence it is the same batch, and gets its first answer.

As in Kafka: a producer that is not known may begin at any number (what was known of it may have expired); a known one
must follow on, or begin at 0 with a higher epoch; a lower epoch is fenced.

`judge` decides and notes nothing for good: an append that fails on disk must not leave a trace here, so what it would
change is kept beside until `keep`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from headwater.batch import Batch
from headwater.config import BATCHES_REMEMBERED, PRODUCERS_MAX
from headwater.errors import InvalidProducerEpoch, OutOfOrderSequence, WireError

SEQUENCE_MAX = 2**31 - 1

_PRODUCER = struct.Struct(">qhH")
_WRITTEN = struct.Struct(">iiqq")


class Written(NamedTuple):
    """A batch of a producer: its sequence numbers, both inclusive as on the wire, and the offsets it got."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    next_offset: int


class Producer(NamedTuple):
    epoch: int
    batches: tuple[Written, ...]  # never empty, oldest first


class Producers:
    """All producers of one partition."""

    __slots__ = ("_known", "_pending")

    def __init__(self) -> None:
        self._known: dict[int, Producer] = {}
        self._pending: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Producers) and self._known == other._known

    __hash__ = None  # type: ignore[assignment]

    def judge(self, batch: Batch, base_offset: int) -> Written | WireError | None:
        """None: write it at `base_offset`. Otherwise what it got the first time, or why it is refused."""
        producer_id = batch.producer_id
        producer = self._pending.get(producer_id) or self._known.get(producer_id)
        if producer is None:
            self._note(batch, base_offset, ())
            return None
        sequence = batch.base_sequence
        if producer.epoch == batch.producer_epoch:
            last = producer.batches[-1].last_sequence
            if sequence == last + 1 or (sequence == 0 and last == SEQUENCE_MAX):
                self._note(batch, base_offset, producer.batches)
                return None
            return _same(producer, batch) or _out_of_order(batch, last)
        if batch.producer_epoch < producer.epoch:
            return InvalidProducerEpoch(
                f"producer {producer_id} wrote with epoch {producer.epoch} since: epoch {batch.producer_epoch} is fenced"
            )
        if sequence != 0:
            return _out_of_order(batch, -1)
        self._note(batch, base_offset, ())
        return None

    def keep(self) -> None:
        """What was judged since the last `keep` or `drop` has been written."""
        self._known.update(self._pending)
        self._pending.clear()
        if len(self._known) > PRODUCERS_MAX:
            self._forget_oldest()

    def drop(self) -> None:
        """It has not been written."""
        self._pending.clear()

    def replay(self, batch: Batch) -> None:
        """Notes a batch that is in the log already."""
        if batch.producer_id < 0:
            return
        producer = self._known.get(batch.producer_id)
        same_epoch = producer is not None and producer.epoch == batch.producer_epoch
        self._note(batch, batch.base_offset, producer.batches if producer and same_epoch else ())
        self.keep()

    def copy(self) -> Producers:
        """As they are now. Cheap: encoding ten thousand takes 20 ms, and writers would wait for it."""
        copied = Producers()
        copied._known = self._known.copy()
        return copied

    def encode(self) -> bytes:
        parts = []
        for producer_id, producer in self._known.items():
            parts.append(_PRODUCER.pack(producer_id, producer.epoch, len(producer.batches)))
            parts.extend(_WRITTEN.pack(*one) for one in producer.batches)
        return b"".join(parts)

    @classmethod
    def decode(cls, body: bytes) -> Producers:
        """Of a body whose checksum was right."""
        producers = cls()
        at = 0
        while at < len(body):
            producer_id, epoch, count = _PRODUCER.unpack_from(body, at)
            at += _PRODUCER.size
            end = at + count * _WRITTEN.size
            batches: Iterable[Written] = map(Written._make, _WRITTEN.iter_unpack(body[at:end]))
            producers._known[producer_id] = Producer(epoch, tuple(batches))
            at = end
        return producers

    def _note(self, batch: Batch, base_offset: int, before: tuple[Written, ...]) -> None:
        written = Written(
            batch.base_sequence, batch.last_sequence, base_offset, base_offset + batch.last_offset_delta + 1
        )
        self._pending[batch.producer_id] = Producer(batch.producer_epoch, (*before[1 - BATCHES_REMEMBERED :], written))

    def _forget_oldest(self) -> None:
        """A tenth at once, so that a crowd of new producers does not pay for a search each."""
        by_age = sorted(self._known, key=lambda one: self._known[one].batches[-1].next_offset)
        for producer_id in by_age[: max(1, PRODUCERS_MAX // 10)]:
            del self._known[producer_id]


def _same(producer: Producer, batch: Batch) -> Written | None:
    for written in producer.batches:
        if written.base_sequence == batch.base_sequence and written.last_sequence == batch.last_sequence:
            return written
    return None


def _out_of_order(batch: Batch, last: int) -> OutOfOrderSequence:
    return OutOfOrderSequence(
        f"producer {batch.producer_id} sent sequence {batch.base_sequence} where {(last + 1) % 2**31} had to follow:"
        " a batch before it was lost, or it is older than what is remembered"
    )
