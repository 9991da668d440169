"""Partitions for tests: opened on any disk, filled with small batches, and compared by what they read back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headwater.batch import Batch, BatchRecord, Codec, decode, encode, split
from headwater.errors import WireError
from headwater.log import Appended, Files, Flusher, LogOptions, Partition
from headwater.model import Epoch, PartitionIndex, StreamId

STREAM = StreamId(bytes(range(16)))
SMALL: dict[str, Any] = {"segment_bytes": 1000, "index_interval_bytes": 200}


def batch(*values: bytes, at_ms: int = 1_000, codec: Codec = Codec.NONE, **producer: int) -> Batch:
    """A batch of these values, one millisecond apart, in a buffer of its own, as it comes from a socket."""
    records = [
        BatchRecord(offset=number, timestamp_ms=at_ms + number, key=None, value=value, headers=())
        for number, value in enumerate(values or (b"value",))
    ]
    [made] = split(memoryview(bytearray(encode(records, codec=codec, **producer))))
    return made


def opened(files: Files, flusher: Flusher, epoch: int = 0, index: int = 0, **options: Any) -> Partition:
    return Partition.open(
        files,
        stream_id=STREAM,
        index=PartitionIndex(index),
        options=LogOptions(**options),
        epoch=Epoch(epoch),
        flusher=flusher,
    )


def append(partition: Partition, *batches: Batch) -> list[Appended]:
    """Appends and insists that all of it was taken."""
    answers = partition.append(batches)
    for answer in answers:
        assert isinstance(answer, Appended), answer
    return answers  # type: ignore[return-value]


def batches(partition: Partition, offset: int = 0, bytes_max: int = 10_000_000, upto: int | None = None) -> list[Batch]:
    """All batches that a reader of the whole partition gets."""
    found: list[Batch] = []
    while slices := partition.read(offset, bytes_max, upto=upto):
        for piece in slices:
            found += split(memoryview(piece.bytes()), batches_max=1_000_000)
        offset = found[-1].next_offset
    return found


def values(partition: Partition, offset: int = 0, **options: Any) -> list[bytes | None]:
    """The values of all records from `offset` on."""
    records = itertools.chain.from_iterable(decode(one) for one in batches(partition, offset, **options))
    return [record.value for record in records if record.offset >= offset]


def noting(note: Callable[[int], object], offset: int) -> Callable[[WireError | None], None]:
    """A waiter that notes `offset` when it is called back."""

    def waiter(_: WireError | None) -> None:
        note(offset)

    return waiter


@contextmanager
def flushing() -> Iterator[Flusher]:
    flusher = Flusher()
    flusher.start()
    try:
        yield flusher
    finally:
        flusher.close()
