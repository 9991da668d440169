"""Append: numbers and stamps batches, writes them with one system call, and leaves no trace of what failed.

Many batches of many writers come at once. Those that are new are written back to back with one `writev`; then, and
only then, index, producers and end move. A write that fails, or stops half-way on a full disk, is cut back: the log is
what it was, and the writers are told to try again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.batch import Batch, stamp
from headwater.config import SEGMENT_BYTES_MAX
from headwater.errors import StorageFailed, WireError
from headwater.failpoints import reach
from headwater.log.checkpoint import Checkpoint
from headwater.log.durability import Durability
from headwater.log.files import File
from headwater.log.index import SegmentIndex, note_epoch
from headwater.log.producers import Written
from headwater.log.segment import Segment
from headwater.log.state import Reached, State


class Appended(NamedTuple):
    """Where a batch lies. A duplicate was written before; it may still have to become durable."""

    base_offset: int
    next_offset: int
    duplicate: bool


class Writing:
    """The one writer of a partition."""

    __slots__ = ("_broken", "_durability", "_segment_bytes", "_state")

    def __init__(self, state: State, durability: Durability) -> None:
        self._state = state
        self._durability = durability
        self._broken: StorageFailed | None = None  # the log's end is in an unknown state
        self._segment_bytes = min(state.options.segment_bytes, SEGMENT_BYTES_MAX)

    def append(self, batches: Sequence[Batch]) -> list[Appended | WireError]:
        state = self._state
        results: list[Appended | WireError] = []
        with state.lock:
            if state.failed is not None:
                return [state.failed] * len(batches)
            before = state.end
            try:
                self._append(batches, results)
            except StorageFailed as why:
                state.producers.drop()
                results = [_unless_written(one, state.end, why) for one in results]
                results += [why] * (len(batches) - len(results))
        if state.end > before:
            reach("after-write-before-ack")
            self._durability.wrote(state.end - before)
        if self._broken is not None:
            self._durability.fail(self._broken)
        return results

    def _append(self, batches: Sequence[Batch], results: list[Appended | WireError]) -> None:
        state = self._state
        if not state.segments:
            self._begin()
        judge, epoch, room = state.producers.judge, state.epoch, self._segment_bytes
        offset, size, offset_max = state.end, state.segments[-1].size, self._offset_max()
        new: list[Batch] = []
        for batch in batches:
            if size and (size + batch.length > room or offset + batch.last_offset_delta > offset_max):
                self._write(new, size, offset)
                self._roll(offset)
                new, size, offset_max = [], 0, self._offset_max()
            if batch.producer_id >= 0 and (verdict := judge(batch, offset)) is not None:
                results.append(_answer(verdict))
                continue
            stamp(batch, offset, epoch)
            new.append(batch)
            size += batch.length
            next_offset = offset + batch.last_offset_delta + 1
            results.append(Appended(offset, next_offset, False))
            offset = next_offset
        self._write(new, size, offset)

    def _write(self, batches: list[Batch], size: int, end: int) -> None:
        """One write. Afterwards the open segment has `size` bytes and the log ends at `end`, or nothing has changed."""
        if not batches:
            return
        state = self._state
        segment = state.segments[-1]
        file, index = segment.opened()
        position, offset = segment.size, state.end
        try:
            written = file.write([batch.view for batch in batches], position)
        except StorageFailed:
            self._cut_back(segment, file)
            raise
        if written < size - position:
            self._cut_back(segment, file)
            raise StorageFailed(f"could not write all of {segment.path} (no space left): make room, then try again")
        note_epoch(state.epochs, state.epoch, offset)
        for batch in batches:
            if position >= index.next_block or batch.max_timestamp > index.max_timestamp:
                index.add(offset, position, batch.max_timestamp)
            offset += batch.last_offset_delta + 1
            position += batch.length
        state.producers.keep()
        if not state.unflushed or state.unflushed[-1] is not file:
            state.unflushed.append(file)
        segment.size = size
        state.written = Reached(end, segment, size)
        state.end = end  # last: who sees it finds all the rest

    def _cut_back(self, segment: Segment, file: File) -> None:
        """A log with unknown bytes at its end must not grow: if they cannot be cut, this partition is over.

        The cut is flushed at once: otherwise a power cut could bring back what was refused in the place of what is
        written there next, with the records after it behind.
        """
        try:
            file.cut(segment.size)
            file.flush()
        except StorageFailed as why:
            self._broken = why

    # --- segments --------------------------------------------------------------------------------

    def _begin(self) -> None:
        """The first append. The checkpoint comes before the log: see there."""
        state = self._state
        state.files.make_directory(state.place.directory)
        state.checkpoint = Checkpoint.create(state.files, state.place, state.epoch, state.end)
        segment = self._new_segment(state.end)
        state.segments = (segment,)
        state.written = state.flushed = Reached(state.end, segment, 0)

    def _roll(self, offset: int) -> None:
        state = self._state
        segment = self._new_segment(offset)
        reach("mid-roll")
        state.segments[-1].end_offset = offset
        state.hold_open(state.segments[-1])
        state.segments = (*state.segments, segment)
        state.written = Reached(offset, segment, 0)
        if state.place.directory not in state.unflushed_names:
            state.unflushed_names = (state.place.directory, *state.unflushed_names)

    def _new_segment(self, offset: int) -> Segment:
        state = self._state
        interval = state.options.index_interval_bytes
        segment = Segment(state.files, state.place, offset, interval, state.epochs)
        file = state.files.open(segment.path, create=True)
        file.cut(0)  # a roll may have failed, or been killed, after making the file
        segment.hold(file, SegmentIndex(offset, interval), 0, 0)
        return segment

    def _offset_max(self) -> int:
        """The last offset that the open segment can hold: Kafka's relative offsets have 31 bits too."""
        return self._state.segments[-1].base_offset + SEGMENT_BYTES_MAX


def _answer(verdict: Written | WireError) -> Appended | WireError:
    return verdict if isinstance(verdict, WireError) else Appended(verdict.base_offset, verdict.next_offset, True)


def _unless_written(result: Appended | WireError, end: int, why: StorageFailed) -> Appended | WireError:
    return why if isinstance(result, Appended) and result.next_offset > end else result
