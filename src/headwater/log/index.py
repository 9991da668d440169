"""A segment's sparse index: where to begin looking for an offset or a time, and where leader epochs begin.

The index cuts a segment into blocks of at least `index.interval.bytes`. For each block it knows the offset and the
position it begins at, and the latest time in it *or in a block before it*: those rise, so that both can be searched by
halves. To find an offset, take the last block that begins at or before it and walk its batches; to find a time, the
first block whose latest time reaches it.

The epochs are those of the whole log up to this segment's end, not of the segment alone: there is one per unclean
start, so the list is short, and OffsetForLeaderEpoch is answered from one file.

All of it can be read from the log again (`add` per batch, in order), which is what happens when a file is damaged.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Self

Epochs = list[tuple[int, int]]  # (epoch, its first offset), both ascending

_COUNTS = struct.Struct(">II")
_EPOCH = struct.Struct(">iq")
NO_TIME = -(2**63)


class SegmentIndex:
    """The blocks of one segment. Only ever grows, and one thread grows it: others may search it meanwhile."""

    __slots__ = ("_interval", "base_offset", "max_timestamp", "next_block", "offsets", "positions", "times")

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("I")  # relative to the base offset
        self.positions = array("I")
        self.times = array("q")  # of each closed block; the last block's is `max_timestamp`
        self.max_timestamp = NO_TIME
        self._interval = interval_bytes
        self.next_block = 0

    def add(self, base_offset: int, position: int, max_timestamp: int) -> None:
        """Notes a batch that follows the last one noted."""
        if position >= self.next_block:
            if self.positions:
                self.times.append(self.max_timestamp)
            self.offsets.append(base_offset - self.base_offset)
            self.positions.append(position)
            self.next_block = position + self._interval
        self.max_timestamp = max(self.max_timestamp, max_timestamp)

    def block_of_offset(self, offset: int) -> int:
        return max(0, bisect_right(self.offsets, offset - self.base_offset) - 1)

    def block_of_position(self, position: int) -> int:
        return max(0, bisect_right(self.positions, position) - 1)

    def block_of_time(self, timestamp_ms: int) -> int:
        """The first block with a batch that reaches this time; the caller knows that there is one."""
        return min(bisect_left(self.times, timestamp_ms), max(0, len(self.positions) - 1))

    def encode(self) -> tuple[bytes, bytes]:
        """The bodies of `.index` (without epochs) and of `.time`."""
        times = self.times[:]
        if self.positions:
            times.append(self.max_timestamp)
        return _big(self.offsets) + _big(self.positions), _big(times)

    @classmethod
    def decode(cls, base_offset: int, interval_bytes: int, blocks: bytes, times: bytes) -> Self | None:
        """None when the two files do not belong together."""
        count = len(times) // 8
        if len(times) != count * 8 or len(blocks) != count * 8:
            return None
        index = cls(base_offset, interval_bytes)
        index.offsets = _array("I", blocks[: count * 4])
        index.positions = _array("I", blocks[count * 4 :])
        index.times = _array("q", times)
        if count:
            index.max_timestamp = index.times.pop()
            index.next_block = index.positions[-1] + interval_bytes
        return index


def encode_index(blocks: bytes, epochs: Epochs) -> bytes:
    return _COUNTS.pack(len(blocks) // 8, len(epochs)) + blocks + b"".join(_EPOCH.pack(*one) for one in epochs)


def decode_index(body: bytes) -> tuple[bytes, Epochs] | None:
    if len(body) < _COUNTS.size:
        return None
    blocks, epochs = _COUNTS.unpack_from(body)
    epochs_at = _COUNTS.size + blocks * 8
    if len(body) != epochs_at + epochs * _EPOCH.size:
        return None
    return body[_COUNTS.size : epochs_at], [tuple(one) for one in _EPOCH.iter_unpack(body[epochs_at:])]


def note_epoch(epochs: Epochs, epoch: int, offset: int) -> None:
    """Notes that a batch of `epoch` lies at `offset`; batches come in order, some of them perhaps again."""
    if not epochs or epoch > epochs[-1][0]:
        epochs.append((epoch, offset))


def epoch_at(epochs: Epochs, offset: int) -> int:
    """The epoch that a batch at `offset` must have; -1 when the log begins later."""
    above = bisect_right(epochs, offset, key=lambda one: one[1])
    return epochs[above - 1][0] if above else -1


def epoch_end(epochs: Epochs, epoch: int, end: int) -> tuple[int, int]:
    """(epoch, end offset) of the largest epoch that is not above `epoch`, as Kafka's OffsetForLeaderEpoch wants it.

    (-1, -1) when the log never heard of an epoch so high; an epoch below the first ends where the first begins.
    """
    if not epochs or epoch < 0 or epoch > epochs[-1][0]:
        return -1, -1
    above = bisect_right(epochs, epoch, key=lambda one: one[0])
    ends_at = epochs[above][1] if above < len(epochs) else end
    return (epochs[above - 1][0] if above else epoch), ends_at


def _big(numbers: array[int]) -> bytes:
    if sys.byteorder == "little":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _array(kind: str, raw: bytes) -> array[int]:
    numbers: array[int] = array(kind)
    numbers.frombytes(raw)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
