"""Flush, checkpoint and those who wait: where "acknowledged" becomes "durable".

A flush takes the log's end as it is when it begins, flushes the segments that were written since the last one, oldest
first, then the directories with new names, and only then moves `durable` and answers who waited for it. Writers go on
meanwhile; they belong to the next flush.

A flush that fails is final. The kernel may have dropped the pages it could not write and call them clean, so that the
next flush would succeed without them: everybody who waits fails, and so does everything that comes after.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headwater.config import CHECKPOINT_BYTES
from headwater.errors import StorageFailed, WireError
from headwater.failpoints import reach
from headwater.log.checkpoint import Checkpoint, Mark
from headwater.log.files import File
from headwater.log.flusher import Flusher
from headwater.log.index import Epochs
from headwater.log.layout import PRODUCERS, pack_header, write_sidecar
from headwater.log.producers import Producers
from headwater.log.segment import Segment
from headwater.log.state import Reached, State

Waiter = Callable[[WireError | None], None]


class _Snapshot(NamedTuple):
    """What the sidecars of the open segment have to say about the log up to `reached`."""

    reached: Reached
    blocks: bytes
    times: bytes
    epochs: Epochs
    producers: Producers


class Durability:
    """Of one partition. A `Flushable`."""

    __slots__ = ("_dirty_since", "_flush_s", "_flusher", "_flushing", "_queued", "_scheduled", "_state", "_unflushed_count", "_waiters")  # fmt: skip

    def __init__(self, state: State, flusher: Flusher) -> None:
        self._state = state
        self._flusher = flusher
        self._flush_s = state.options.flush_ms / 1000
        self._flushing = threading.Lock()
        self._waiters: list[tuple[int, Waiter]] = []
        self._dirty_since: float | None = None
        self._unflushed_count = 0  # records
        self._scheduled = False  # the flusher will ask `flush_due`
        self._queued = False  # the flusher will flush soon

    def wrote(self, count: int) -> None:
        """After an append of `count` records, by its thread."""
        with self._state.lock:
            if self._dirty_since is None:
                self._dirty_since = time.monotonic()
            deadline = self._dirty_since + self._flush_s
            schedule, self._scheduled = not self._scheduled, True
            before, self._unflushed_count = self._unflushed_count, self._unflushed_count + count
            hurry = before < self._state.options.flush_records <= self._unflushed_count
        if schedule:
            self._flusher.later(self, deadline)
        if hurry:
            self._flusher.now(self)
        if not self._state.options.sync:
            self._state.tell()

    def flush_due(self) -> float | None:
        with self._state.lock:
            if self._dirty_since is None or self._state.failed is not None:
                self._scheduled = False
                return None
            return self._dirty_since + self._flush_s

    def when_durable(self, next_offset: int, callback: Waiter, *, alone: bool) -> None:
        state = self._state
        queue = False
        with state.lock:
            waits = state.durable < next_offset and state.failed is None
            if waits:
                self._waiters.append((next_offset, callback))
                queue = not alone and not self._queued
                self._queued = self._queued or queue
        if not waits:
            callback(None if state.durable >= next_offset else state.failed)
        elif queue or not self._flush_here():
            self._flusher.soon(self)

    def _flush_here(self) -> bool:
        """Not when another thread is flushing: its next flush answers, and this thread need not stand still."""
        if not self._flushing.acquire(blocking=False):
            return False
        try:
            self._flush()
        finally:
            self._flushing.release()
        return True

    def flush(self) -> None:
        with self._flushing:
            self._flush()

    def settle(self, segments: list[Segment]) -> None:
        """After recovery: what was read again becomes durable, and the checkpoint speaks of it."""
        state = self._state
        self._flush_files([one.opened()[0] for one in segments], state.unflushed_names)
        state.unflushed_names = ()
        self._checkpoint(self._snapshot())
        reach("mid-recovery")
        if state.checkpoint is not None:
            state.checkpoint.flush()
        with state.lock:
            for sealed in segments[:-1]:
                state.hold_open(sealed)

    def close(self, error: WireError, *, clean: bool) -> None:
        state = self._state
        failed = state.failed
        with self._flushing:
            try:
                if clean and failed is None:
                    self._close_cleanly()
                    failed = state.failed
            except StorageFailed as why:
                failed = why
            finally:
                state.closed = True
                self.fail(error)
                for segment in state.segments:
                    segment.unload()
        if clean and failed is not None:
            raise failed

    def fail(self, error: WireError) -> None:
        """For good: nothing more is written, and nobody waits any longer."""
        state = self._state
        with state.lock:
            state.failed = state.failed or error
            waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            waiter(state.failed)
        state.tell()

    # --- a flush ---------------------------------------------------------------------------------

    def _flush(self) -> None:
        state = self._state
        with state.lock:
            self._queued = False
            if state.failed is not None or state.written == state.flushed:
                return
            target, files, names = state.written, state.unflushed, state.unflushed_names
            state.unflushed, state.unflushed_names = [], ()
            self._dirty_since, self._unflushed_count = None, 0
            snapshot = self._snapshot() if self._checkpoint_is_due(target) else None
        try:
            self._flush_files(files, names)
        except StorageFailed as why:
            self.fail(why)
            return
        self._note(target.offset)
        with state.lock:
            state.flushed = target
            state.durable = target.offset
            ready = [waiter for offset, waiter in self._waiters if offset <= target.offset]
            self._waiters = [one for one in self._waiters if one[0] > target.offset]
        for waiter in ready:
            waiter(None)
        if state.options.sync:
            state.tell()
        if snapshot is not None:
            self._checkpoint(snapshot)

    def _flush_files(self, files: Iterable[File], names: Iterable[str]) -> None:
        """Oldest first: what a power cut in the middle leaves has no gap."""
        state = self._state
        if names and state.checkpoint is not None:
            state.checkpoint.flush()  # before any log is: see there
        for file in files:
            file.flush()
            reach("mid-flush")
        for name in names:
            state.files.flush_directory(name)

    # --- a checkpoint ----------------------------------------------------------------------------

    def _checkpoint_is_due(self, target: Reached) -> bool:
        mark = self._state.mark
        assert target.segment is not None
        return target.segment.base_offset != mark.base_offset or target.position - mark.position >= CHECKPOINT_BYTES

    def _snapshot(self) -> _Snapshot:
        state = self._state
        segment = state.segments[-1]
        _, index = segment.opened()
        return _Snapshot(state.written, *index.encode(), list(state.epochs), state.producers.copy())

    def _checkpoint(self, snapshot: _Snapshot) -> None:
        """Of what has been flushed. A disk that has no room for it costs the next start time, and nothing else."""
        state = self._state
        segment = snapshot.reached.segment
        assert segment is not None
        try:
            for sealed in state.segments:
                if state.mark.base_offset <= sealed.base_offset < segment.base_offset:
                    sealed.seal_sidecars()
            offset, position = snapshot.reached.offset, snapshot.reached.position
            segment.write_sidecars(offset, position, snapshot.blocks, snapshot.times, snapshot.epochs)
            producers = snapshot.producers.encode()
            header = pack_header(
                PRODUCERS, state.place, segment.base_offset, offset=offset, position=position, body=producers
            )
            write_sidecar(state.files, state.place.path(segment.base_offset, "producers"), header, producers)
        except StorageFailed:
            return
        reach("mid-checkpoint")
        state.mark = Mark(base_offset=segment.base_offset, position=position, offset=offset)
        self._note(offset)

    def _note(self, durable: int) -> None:
        """Without a flush of its own: see `checkpoint`."""
        state = self._state
        try:
            if state.checkpoint is None:
                state.checkpoint = Checkpoint.create(state.files, state.place, state.epoch, state.start)
            state.checkpoint.note(state.mark, durable, state.epoch)
            state.noted = (state.epoch, state.mark.offset, state.mark.position)
        except StorageFailed:
            return  # what stands there is older, and as true as before

    def _close_cleanly(self) -> None:
        state = self._state
        if not state.segments:
            return
        self._flush()
        with state.lock:
            snapshot = self._snapshot()
        if state.failed is None and not self._is_noted(snapshot.reached):
            self._checkpoint(snapshot)
            if not self._is_noted(snapshot.reached) or state.checkpoint is None:
                raise StorageFailed(f"could not write {state.place.checkpoint_path}: make room on the disk")
            state.checkpoint.flush()

    def _is_noted(self, reached: Reached) -> bool:
        """Whether the last checkpoint says all there is to say, in this epoch."""
        return self._state.noted == (self._state.epoch, reached.offset, reached.position)
