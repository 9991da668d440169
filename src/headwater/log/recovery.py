"""Opening a partition: what is on disk becomes segments, an index, epochs and producers, and its torn end is cut.

A checkpoint says up to where everything was flushed and noted (its mark). From there on every batch is read and checked;
after a clean stop there is nothing from there on, so opening costs the same for any length of log.

The first bad place is one of two things, and they are treated as opposites:

- **torn**: bytes that were on their way to the disk when the power went. Nobody was promised them, or they are at the
  very end of the log with nothing right behind them. They are cut, and what was cut is reported.
- **rotted**: bytes that were flushed, with right batches behind them. Cutting there would throw away promised records,
  skipping would lie about it: the partition is refused, and nothing is changed.

Right batches behind a bad place that was never flushed are torn too: a disk writes pages in any order.

Every step may be the last before a kill: segments behind a cut are deleted from the end, then the cut is made, then
flushed, and only then the checkpoint speaks of it. Starting over finds the same place and goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.batch import Batch
from headwater.errors import StorageFailed
from headwater.failpoints import reach
from headwater.log.checkpoint import EVERYTHING, Mark, Noted
from headwater.log.files import Files
from headwater.log.index import Epochs, SegmentIndex, note_epoch
from headwater.log.layout import PRODUCERS, Place, read_sidecar
from headwater.log.producers import Producers
from headwater.log.scan import Bad, lies_after, walk
from headwater.log.segment import Segment, load_index


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was cut off a log's end when it was opened."""

    end: int  # the offset that the log ends at now
    cut_bytes: int
    cut_segments: int  # whole files behind the cut
    durable_lost: bool  # the disk had promised some of it: it was damaged, not just torn
    why: str


@dataclass(slots=True, kw_only=True)
class Opened:
    """A partition's log as it was found, and mended."""

    segments: list[Segment]
    epochs: Epochs
    producers: Producers
    end: int
    dirty: list[Segment]  # what was read again: to be flushed before anybody is told that it is durable
    recovery: Recovery | None = None


def open_log(files: Files, place: Place, noted: Noted, interval_bytes: int) -> Opened:
    """Raises `StorageFailed` when the log has rotted; the files are then as they were."""
    bases = place.segments(files)
    if not bases:
        if noted.mark is not None and noted.durable > 0:
            raise _refused(place.checkpoint_path, "speaks of records, and there is no segment")
        return Opened(segments=[], epochs=[], producers=Producers(), end=0, dirty=[])
    return _Opening(files, place, noted, interval_bytes, bases).run()


class _Opening:
    def __init__(self, files: Files, place: Place, noted: Noted, interval_bytes: int, bases: list[int]) -> None:
        self._files, self._place, self._noted, self._interval = files, place, noted, interval_bytes
        self._bases = bases
        self._epochs: Epochs = []
        self._producers = Producers()
        self._producers_from = bases[0]  # batches before this offset are in the producers already
        self._segments = [Segment(files, place, base, interval_bytes, self._epochs) for base in bases]
        for segment, end in zip(self._segments, bases[1:], strict=False):
            segment.end_offset = end
        self._dirty = False

    def run(self) -> Opened:
        mark = self._usable_mark()
        first = self._bases.index(mark.base_offset)
        index, mark = self._load_sidecars(first, mark)
        end, recovery = self._read_dirty(first, index, mark)
        if end < self._noted.durable < EVERYTHING:  # the checkpoint must not outlive what it speaks of
            self._dirty = True
            recovery = recovery or self._shortened(end)
        return Opened(
            segments=self._segments,
            epochs=self._epochs,
            producers=self._producers,
            end=end,
            recovery=recovery,
            dirty=self._segments[first:] if self._dirty else [],
        )

    def _usable_mark(self) -> Mark:
        mark = self._noted.mark
        if mark is None:
            return Mark(base_offset=self._bases[0], position=0, offset=self._bases[0])
        if mark.base_offset not in self._bases:
            raise _refused(self._place.path(mark.base_offset, "log"), "is gone, though the checkpoint speaks of it")
        if self._files.open(self._place.path(mark.base_offset, "log")).size() < mark.position:
            return Mark(base_offset=mark.base_offset, position=0, offset=mark.base_offset)
        return mark

    # --- what the sidecars say, or the sealed segments in their place ----------------------------

    def _load_sidecars(self, first: int, mark: Mark) -> tuple[SegmentIndex, Mark]:
        """The index of the mark's segment, and from where that segment has to be read for the rest to be known."""
        base = mark.base_offset
        if mark.position == 0:
            index = SegmentIndex(base, self._interval)
            read_from = min(self._replay_before(first, epochs=True), first)
        else:
            loaded = load_index(self._files, self._place, base, self._interval)
            if loaded is None or loaded.position > mark.position:
                index, mark = SegmentIndex(base, self._interval), Mark(base_offset=base, position=0, offset=base)
                read_from = self._replay_before(first, epochs=True)
            else:
                index, mark = loaded.index, Mark(base_offset=base, position=loaded.position, offset=loaded.offset)
                self._epochs.extend(loaded.epochs)
                read_from = first
                if not self._take_producers(base, mark):
                    read_from = self._replay_before(first, epochs=False)
                    index, mark = SegmentIndex(base, self._interval), Mark(base_offset=base, position=0, offset=base)
        self._replay(read_from, first)
        return index, mark

    def _take_producers(self, base: int, mark: Mark) -> bool:
        found = read_sidecar(self._files, PRODUCERS, self._place, base, "producers")
        if found is None or found.offset > mark.offset:
            return False
        self._producers = Producers.decode(found.body)
        self._producers_from = found.offset
        return found.offset == mark.offset

    def _replay_before(self, first: int, *, epochs: bool) -> int:
        """The segment before `first` from which sealed segments have to be read for producers (and epochs)."""
        producers_from, epochs_from = first, first if epochs else 0
        while producers_from > 0:
            producers_from -= 1
            found = read_sidecar(self._files, PRODUCERS, self._place, self._bases[producers_from], "producers")
            if found is not None:
                self._producers = Producers.decode(found.body)
                self._producers_from = found.offset
                break
        while epochs and epochs_from > 0:
            loaded = load_index(self._files, self._place, self._bases[epochs_from - 1], self._interval)
            if loaded is not None and loaded.offset == self._bases[epochs_from]:
                self._epochs.extend(loaded.epochs)
                break
            epochs_from -= 1
        return min(producers_from, epochs_from) if epochs else producers_from

    def _replay(self, read_from: int, first: int) -> None:
        for segment in self._segments[read_from:first]:
            file = self._files.open(segment.path)
            try:
                offset = segment.base_offset
                for _, batch in walk(file, 0, file.size(), offset):
                    self._note(batch)
                    offset = batch.next_offset
                if offset != segment.end_offset:
                    raise Bad(file.size(), offset, f"it ends at offset {offset}, too early")  # noqa: TRY301
            except Bad as bad:
                raise _refused(segment.path, f"has rotted at byte {bad.position} ({bad.why})") from None

    def _note(self, batch: Batch) -> None:
        """Of a batch that is right, in the order of the log, some of them perhaps a second time."""
        note_epoch(self._epochs, batch.epoch, batch.base_offset)
        if batch.base_offset >= self._producers_from:
            self._producers.replay(batch)

    # --- what was written since the checkpoint ---------------------------------------------------

    def _read_dirty(self, first: int, index: SegmentIndex, mark: Mark) -> tuple[int, Recovery | None]:
        offset, read_from = mark.offset, mark.position
        for number in range(first, len(self._segments)):
            segment = self._segments[number]
            file = self._files.open(segment.path)
            size = file.size()
            segment.hold(file, index, size, read_from)
            self._dirty = self._dirty or read_from < size or number > first
            try:
                for position, batch in walk(file, read_from, size, offset):
                    index.add(batch.base_offset, position, batch.max_timestamp)
                    self._note(batch)
                    offset = batch.next_offset
                if number + 1 < len(self._segments) and offset != segment.end_offset:
                    raise Bad(size, offset, f"the next segment begins at offset {segment.end_offset}")  # noqa: TRY301
            except Bad as bad:
                return offset, self._cut(number, bad)
            segment.end_offset = offset
            read_from = 0
            if number + 1 < len(self._segments):
                index = SegmentIndex(self._segments[number + 1].base_offset, self._interval)
        return offset, None

    def _cut(self, number: int, bad: Bad) -> Recovery:
        segment, behind = self._segments[number], self._segments[number + 1 :]
        durable_lost = bad.offset < self._noted.durable
        if durable_lost and self._anything_after(number, bad):
            raise _refused(segment.path, f"has rotted at byte {bad.position} ({bad.why}), and right batches follow")
        cut_bytes = segment.size - bad.position
        reach("mid-recovery")
        for late in reversed(behind):
            cut_bytes += self._files.open(late.path).size()
            for suffix in ("index", "time", "producers", "log"):
                self._files.delete(self._place.path(late.base_offset, suffix))
            reach("mid-recovery")
        file, index = segment.opened()
        file.cut(bad.position)
        reach("mid-recovery")
        segment.hold(file, index, bad.position, segment.trusted_from)
        segment.end_offset = bad.offset
        del self._segments[number + 1 :]
        self._dirty = True
        return Recovery(
            end=bad.offset,
            cut_bytes=cut_bytes,
            cut_segments=len(behind),
            durable_lost=durable_lost and self._noted.durable < EVERYTHING,
            why=bad.why,
        )

    def _shortened(self, end: int) -> Recovery:
        why = f"offset {self._noted.durable - 1} was flushed, and is gone"
        return Recovery(end=end, cut_bytes=0, cut_segments=0, durable_lost=True, why=why)

    def _anything_after(self, number: int, bad: Bad) -> bool:
        segment = self._segments[number]
        file, _ = segment.opened()
        if lies_after(file, bad.position, segment.size, bad.offset):
            return True
        later = (self._files.open(one.path) for one in self._segments[number + 1 :])
        return any(lies_after(file, 0, file.size(), bad.offset) for file in later)


def _refused(path: str, why: str) -> StorageFailed:
    return StorageFailed(f"{path} {why}: nothing was changed; restore it from a copy, or delete the stream")
