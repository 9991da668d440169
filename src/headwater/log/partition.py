"""One partition's log: append, read, and the promises between them.

Everything a caller may do is here; how it is done lies beside: `writing` (append and roll), `durability` (flush,
checkpoint, waiters), `recovery` (opening), `search` (times and epochs), `check` (is it what it says it is?).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from headwater.batch import Batch
from headwater.config import POSITIONS_REMEMBERED
from headwater.errors import OffsetOutOfRange, StorageFailed, UnknownStream, WireError
from headwater.log import check, search
from headwater.log.checkpoint import Checkpoint
from headwater.log.durability import Durability, Waiter
from headwater.log.files import Files
from headwater.log.flusher import Flusher
from headwater.log.index import epoch_end
from headwater.log.layout import Place
from headwater.log.options import LogOptions
from headwater.log.recovery import Recovery, open_log
from headwater.log.segment import Segment
from headwater.log.slices import Slice
from headwater.log.state import Listener, State
from headwater.log.writing import Appended, Writing
from headwater.model import Epoch, Offset, PartitionIndex, StreamId


class Partition:
    """A partition's log, open. Appending is for one thread at a time; everything else for any."""

    __slots__ = ("_durability", "_positions", "_state", "_writing", "recovery")

    def __init__(self, state: State, flusher: Flusher, recovery: Recovery | None) -> None:
        self.recovery = recovery  # what opening had to cut, or None
        self._state = state
        self._durability = Durability(state, flusher)
        self._writing = Writing(state, self._durability)
        self._positions: dict[int, tuple[Segment, int]] = {}  # where reads ended: most reads begin there

    @classmethod
    def open(
        cls,
        files: Files,
        *,
        stream_id: StreamId,
        index: PartitionIndex,
        options: LogOptions,
        epoch: Epoch,
        flusher: Flusher,
    ) -> Self:
        """Recovers what has to be; `StorageFailed` when the log has rotted. Nothing is made before the first append."""
        place = Place(stream_id=stream_id, partition=index)
        checkpoint, noted = Checkpoint.load(files, place)
        found = open_log(files, place, noted, options.index_interval_bytes)
        state = State(files, place, options, epoch, found, checkpoint)
        partition = cls(state, flusher, found.recovery)
        if noted.mark is not None and not found.dirty:
            state.mark, state.noted = noted.mark, (noted.epoch, noted.mark.offset, noted.mark.position)
        elif found.segments:
            partition._durability.settle(found.dirty)
        return partition

    # --- how far it goes -------------------------------------------------------------------------

    @property
    def start(self) -> Offset:
        return Offset(self._state.start)

    @property
    def end(self) -> Offset:
        """Behind the last record that is written."""
        return Offset(self._state.end)

    @property
    def durable(self) -> Offset:
        """Behind the last record that would survive a power cut."""
        return Offset(self._state.durable)

    @property
    def high_watermark(self) -> Offset:
        """Behind the last record that readers see: durable with `file_sync`, else written."""
        return Offset(self._state.high_watermark)

    @property
    def failed(self) -> WireError | None:
        """Why nothing can be appended any more, if so."""
        return self._state.failed

    @property
    def last_epoch(self) -> Epoch:
        """Of the last batch; -1 in an empty log."""
        return Epoch(self._state.epochs[-1][0] if self._state.epochs else -1)

    @property
    def size_bytes(self) -> int:
        return sum(one.measured() for one in self._state.segments)

    # --- writing ---------------------------------------------------------------------------------

    def append(self, batches: Sequence[Batch]) -> list[Appended | WireError]:
        """One answer per batch, in order. What is appended is in the kernel; `when_durable` knows when it is on disk.

        The batches' views are stamped in place, and free to be used again when this returns.
        """
        return self._writing.append(batches)

    def when_durable(self, next_offset: int, callback: Waiter, *, alone: bool = False) -> None:
        """Calls back, once, when everything below `next_offset` is durable, or with the error that prevents it.

        Perhaps before this returns, perhaps from a flush thread. `alone` says that nobody else waits: then the flush
        runs in this thread, which is quicker for one and slower for many. A callback must not raise.
        """
        self._durability.when_durable(next_offset, callback, alone=alone)

    def flush(self) -> None:
        """Makes durable what is written. Never raises: a failure shows in `failed`."""
        self._durability.flush()

    def add_listener(self, listener: Listener) -> None:
        """Called, from any thread, when the high watermark moved, the partition failed or was deleted."""
        with self._state.lock:
            self._state.listeners = (*self._state.listeners, listener)

    def remove_listener(self, listener: Listener) -> None:
        with self._state.lock:
            self._state.listeners = tuple(one for one in self._state.listeners if one != listener)

    # --- reading ---------------------------------------------------------------------------------

    def read(self, offset: int, bytes_max: int, *, upto: int | None = None) -> list[Slice]:
        """Whole batches from the one that holds `offset` on, below `upto` (the high watermark, if not said).

        At least one batch, however large, unless there is none; beyond that no more than `bytes_max`. The first read
        of old bytes after a start checks them, and may answer with fewer. What lies before rot is given; who comes to
        the rot itself gets the error.
        """
        state = self._state
        segments = state.segments
        upto = min(upto, state.end) if upto is not None else state.high_watermark
        if not state.start <= offset <= state.end:
            raise OffsetOutOfRange(f"offset {offset} is not in [{state.start}, {state.end}]")
        if state.closed and state.failed is not None:
            raise state.failed
        if state.failed is not None:
            upto = self._readable_after_failure(offset, upto, state.failed)
        slices: list[Slice] = []
        while offset < upto:
            try:
                found = self._slice(segments, offset, bytes_max, upto)
            except StorageFailed:
                if not slices:
                    raise
                break
            if found is None or (slices and found[1].length > bytes_max):
                break
            segment, piece = found
            slices.append(piece)
            bytes_max -= piece.length
            end = piece.position + piece.length
            if end < segment.size or segment is segments[-1] or bytes_max <= 0:
                self._remember(segment, end)
                break
            offset = segment.end_offset
        return slices

    def _slice(
        self, segments: tuple[Segment, ...], offset: int, bytes_max: int, upto: int
    ) -> tuple[Segment, Slice] | None:
        """Of one segment. None when the batch that holds `offset` ends behind `upto`."""
        segment, position = self._find(segments, offset)
        file, _ = self._state.opened(segment)
        limit = self._limit(segment, upto)
        if position >= limit:
            return None
        return segment, Slice(file, position, segment.range_end(position, bytes_max, limit) - position)

    def find_timestamp(self, timestamp_ms: int) -> tuple[Offset, int, Epoch] | None:
        """(offset, timestamp, epoch) of the first record that is not older, among those that readers see.

        Exact in uncompressed batches. In a compressed one, which the log does not open, it is the batch's first.
        """
        return search.first_not_before(self._state, timestamp_ms)

    def max_timestamp(self) -> tuple[Offset, int, Epoch] | None:
        """(offset, timestamp, epoch) of the record with the latest time; as exact as `find_timestamp`."""
        return search.latest(self._state)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch up to `epoch`, as Kafka's OffsetForLeaderEpoch; or (-1, -1).

        An epoch that has been, and wrote nothing behind the last batch, ended where the log ends: a reader that
        began in it has lost nothing, and must not be sent to look for a new beginning.
        """
        if self.last_epoch < epoch <= self._state.epoch:
            return epoch, self._state.end
        return epoch_end(self._state.epochs, epoch, self._state.end)

    # --- the end ---------------------------------------------------------------------------------

    def close(self, *, clean: bool = True) -> None:
        """With `clean`, flushes and leaves a checkpoint, so that the next opening has nothing to read.

        Raises `StorageFailed` when that cannot be done; closed it is in any case.
        """
        self._durability.close(StorageFailed("the partition is closed: the broker is stopping"), clean=clean)

    def delete(self) -> None:
        """Frees its files. Whoever waits or reads is told that the stream is gone; slices stay readable."""
        self._durability.close(UnknownStream("the stream was deleted"), clean=False)
        state = self._state
        for name in sorted(state.place.names(state.files)):
            state.files.delete(f"{state.place.directory}/{name}")
        self._positions.clear()

    def check(self) -> list[str]:
        """Reads everything again and compares: what is wrong, one line each. For tests, and for doubt."""
        return check.complaints(self._state)

    # --- helpers ---------------------------------------------------------------------------------

    def _readable_after_failure(self, offset: int, upto: int, failed: WireError) -> int:
        """After a failed flush the kernel may have dropped what was written: only what is durable is sent."""
        if offset >= self._state.durable:
            raise failed
        return min(upto, self._state.durable)

    def _find(self, segments: tuple[Segment, ...], offset: int) -> tuple[Segment, int]:
        found = self._positions.get(offset)
        if found is not None and found[1] < found[0].size:
            return found
        segment = search.segment_of(segments, offset)
        self._state.opened(segment)
        return segment, segment.find(offset, segment.size).position

    def _limit(self, segment: Segment, upto: int) -> int:
        """The position before which all batches lie below `upto`."""
        for offset, marked, position in (self._state.written, self._state.flushed):
            if upto == offset and marked is segment:
                return position
        self._state.opened(segment)
        if segment is not self._state.segments[-1] and upto >= segment.end_offset:
            return segment.size
        written, marked, size = self._state.written
        if upto >= written and marked is segment:
            return size
        return segment.find(upto, segment.size).position if upto > segment.base_offset else 0

    def _remember(self, segment: Segment, position: int) -> None:
        offset, marked, end = self._state.written
        if marked is segment and position == end:
            if len(self._positions) >= POSITIONS_REMEMBERED:
                self._positions.clear()
            self._positions[offset] = segment, position
