"""What a partition knows, shared by those who write it, flush it and read it.

`lock` guards every change. Readers take no lock: they look at tuples that are replaced as a whole, and at an index
that only grows, behind an end that is moved last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from headwater.config import SEGMENTS_OPEN_MAX
from headwater.errors import WireError
from headwater.log.checkpoint import Checkpoint, Mark
from headwater.log.files import File, Files
from headwater.log.index import SegmentIndex
from headwater.log.layout import Place
from headwater.log.options import LogOptions
from headwater.log.recovery import Opened
from headwater.log.segment import Segment

Listener = Callable[[], None]


class Reached(NamedTuple):
    """How far something has come: an offset, and where that is."""

    offset: int
    segment: Segment | None
    position: int


class State:
    """One partition. Fields without a comment are what their names say."""

    __slots__ = ("checkpoint", "closed", "durable", "end", "epoch", "epochs", "failed", "files", "flushed", "listeners", "loaded", "lock", "mark", "noted", "options", "place", "producers", "segments", "start", "unflushed", "unflushed_names", "written")  # fmt: skip

    def __init__(
        self,
        files: Files,
        place: Place,
        options: LogOptions,
        epoch: int,
        found: Opened,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.files, self.place, self.options = files, place, options
        self.epoch = max(epoch, found.epochs[-1][0] if found.epochs else epoch)  # epochs never go back in a log
        self.lock = threading.Lock()
        self.checkpoint = checkpoint
        self.segments: tuple[Segment, ...] = tuple(found.segments)
        self.epochs = found.epochs
        self.producers = found.producers
        self.start = found.segments[0].base_offset if found.segments else 0
        self.end = self.durable = found.end
        active = found.segments[-1] if found.segments else None
        self.written = self.flushed = Reached(found.end, active, active.size if active else 0)
        self.mark = Mark(base_offset=self.start, position=0, offset=self.start)  # of the last checkpoint
        self.failed: WireError | None = None
        self.closed = False
        self.noted = (-1, 0, 0)  # epoch, and the mark's offset and position, as the file has them
        self.listeners: tuple[Listener, ...] = ()
        self.unflushed: list[File] = []  # segments with bytes that are not durable, in order
        # Directories with names that may not be durable. At first all of them: who made them may have been killed.
        self.unflushed_names: tuple[str, ...] = place.directories
        self.loaded: list[Segment] = []  # sealed segments that are open, oldest first

    @property
    def high_watermark(self) -> int:
        return self.durable if self.options.sync else self.end

    def opened(self, segment: Segment) -> tuple[File, SegmentIndex]:
        """Its file and index."""
        if not segment.is_loaded:
            with self.lock:
                self.hold_open(segment)
        return segment.opened()

    def hold_open(self, segment: Segment) -> None:
        """Bounds the sealed segments that are open: the one that was opened longest ago is let go. Under the lock."""
        self.loaded.append(segment)
        if len(self.loaded) > SEGMENTS_OPEN_MAX:
            self.loaded.pop(0).unload()

    def tell(self) -> None:
        """Wakes whoever listens; without the lock, since they come back with questions."""
        for listener in self.listeners:
            listener()
