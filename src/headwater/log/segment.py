"""One segment of a partition's log: a file of batches back to back, and its sparse index.

The last segment of a partition is open (it is written), the others are sealed. A sealed one is opened when it is first
asked for, and its bytes are checked against their checksums before they are sent for the first time after a start, one
index block at a time: rot answers an error instead of travelling. What this process wrote, or read during recovery, is
trusted.
"""

from __future__ import annotations

import threading

from headwater.config import VERIFIED_PER_READ_BYTES
from headwater.errors import StorageFailed
from headwater.log.files import File, Files
from headwater.log.index import Epochs, SegmentIndex, decode_index, encode_index, epoch_at
from headwater.log.layout import INDEX, TIME, Place, pack_header, read_sidecar, write_sidecar
from headwater.log.scan import Bad, Head, heads, walk

TRUST_NOTHING = 2**63 - 1


class Segment:
    """The open segment is grown by the partition; everything else here only reads."""

    __slots__ = ("_file", "_files", "_index", "_interval", "_loading", "_place", "_verified", "base_offset", "end_offset", "epochs", "max_timestamp", "size", "trusted_from")  # fmt: skip

    def __init__(self, files: Files, place: Place, base_offset: int, interval_bytes: int, epochs: Epochs) -> None:
        self.base_offset = base_offset
        self.end_offset = base_offset  # of the open segment: not kept up to date
        self.size = 0
        self.max_timestamp: int | None = None  # of a sealed segment, once it is known
        self.trusted_from = TRUST_NOTHING  # the position from which on the bytes need no check
        self.epochs = epochs  # the partition's own list
        self._files, self._place, self._interval = files, place, interval_bytes
        self._file: File | None = None
        self._index: SegmentIndex | None = None
        self._verified: set[int] = set()
        self._loading = threading.Lock()

    @property
    def path(self) -> str:
        return self._place.path(self.base_offset, "log")

    def hold(self, file: File, index: SegmentIndex, size: int, trusted_from: int) -> None:
        """Takes over a file that recovery, or the partition's roll, has opened."""
        self._file, self._index, self.size, self.trusted_from = file, index, size, trusted_from

    def opened(self) -> tuple[File, SegmentIndex]:
        file, index = self._file, self._index
        if file is None or index is None:
            with self._loading:
                file, index = self._file, self._index
                if file is None or index is None:
                    file, index = self._load()
                    self._file, self._index = file, index
        return file, index

    def measured(self) -> int:
        """Its size, without loading it."""
        if not self.size and self._file is None:
            self.size = self._files.open(self.path).size()
        return self.size

    @property
    def is_loaded(self) -> bool:
        return self._file is not None

    def unload(self) -> None:
        """Lets go of a sealed segment's file; who still sends from it keeps it open."""
        self._file = self._index = None

    def write_sidecars(self, offset: int, position: int, blocks: bytes, times: bytes, epochs: Epochs) -> None:
        for magic, suffix, body in ((INDEX, "index", encode_index(blocks, epochs)), (TIME, "time", times)):
            header = pack_header(magic, self._place, self.base_offset, offset=offset, position=position, body=body)
            write_sidecar(self._files, self._place.path(self.base_offset, suffix), header, body)

    def seal_sidecars(self) -> None:
        """Writes the sidecars of a whole, sealed segment."""
        _, index = self.opened()
        epochs = [one for one in self.epochs if one[1] < self.end_offset]
        self.write_sidecars(self.end_offset, self.size, *index.encode(), epochs)

    # --- reading ---------------------------------------------------------------------------------

    def find(self, offset: int, limit: int) -> Head:
        """The batch that holds `offset`, which lies before position `limit`."""
        file, index = self.opened()
        position = index.positions[index.block_of_offset(offset)]
        self._verify(position, position + 1)
        try:
            for head in heads(file, position, limit):
                if head.next_offset > offset:
                    return head
        except Bad as bad:
            raise self.rotten(bad) from None
        raise StorageFailed(f"{self.path} ends before offset {offset}: it was cut, restore it from a copy")

    def range_end(self, start: int, bytes_max: int, limit: int) -> int:
        """Where a read of whole batches from `start` on ends: within `bytes_max`, but at least one batch.

        It ends before a block that has rotted: who reads gets all that is whole, and then, at the rot, the error.
        """
        file, index = self.opened()
        end = limit
        if start + bytes_max < limit:
            end = self._last_boundary(file, index, start, start + bytes_max, limit)
        return self._verify(start, end)

    def _last_boundary(self, file: File, index: SegmentIndex, start: int, target: int, limit: int) -> int:
        block = index.positions[index.block_of_position(target)]
        try:
            self._verify(block, block + 1)
        except StorageFailed:
            if block <= start:
                raise
            return block
        end = max(start, block)
        for head in heads(file, end, limit):
            if head.position + head.length > target and end > start:
                break
            end = head.position + head.length
            if end > target:
                break
        return end

    def _verify(self, start: int, end: int) -> int:
        """Checks the blocks of [start, end) that nobody has checked; returns where the whole bytes end."""
        if start >= self.trusted_from:
            return end
        file, index = self.opened()
        positions = index.positions
        checked = 0
        for block in range(index.block_of_position(start), index.block_of_position(end - 1) + 1):
            if positions[block] >= self.trusted_from or block in self._verified:
                continue
            if checked >= VERIFIED_PER_READ_BYTES:
                return min(end, positions[block])
            block_end = positions[block + 1] if block + 1 < len(positions) else self.size
            try:
                self._verify_block(file, index, block, block_end)
            except StorageFailed:
                if positions[block] <= start:
                    raise
                return positions[block]
            checked += block_end - positions[block]
        return end

    def _verify_block(self, file: File, index: SegmentIndex, block: int, end: int) -> None:
        offset = self.base_offset + index.offsets[block]
        try:
            for position, batch in walk(file, index.positions[block], end, offset):
                offset = batch.next_offset
                if batch.epoch != epoch_at(self.epochs, batch.base_offset):  # lies outside of the checksum
                    raise Bad(position, offset, f"a batch of epoch {batch.epoch}")  # noqa: TRY301
        except Bad as bad:
            raise self.rotten(bad) from None
        self._verified.add(block)

    def rotten(self, bad: Bad) -> StorageFailed:
        return StorageFailed(
            f"{self.path} has rotted at byte {bad.position} ({bad.why}): restore it from a copy, or delete the stream"
        )

    # --- loading ---------------------------------------------------------------------------------

    def _load(self) -> tuple[File, SegmentIndex]:
        """A sealed segment, with its index from the sidecars, or from the log itself."""
        file = self._files.open(self.path)
        self.size = file.size()
        found = load_index(self._files, self._place, self.base_offset, self._interval)
        if found is not None and (found.offset, found.position) == (self.end_offset, self.size):
            return file, found.index
        index = SegmentIndex(self.base_offset, self._interval)
        offset = self.base_offset
        try:
            for position, batch in walk(file, 0, self.size, offset):
                index.add(batch.base_offset, position, batch.max_timestamp)
                offset = batch.next_offset
            if offset != self.end_offset:
                raise Bad(self.size, offset, f"the next segment begins at offset {self.end_offset}")  # noqa: TRY301
        except Bad as bad:
            raise self.rotten(bad) from None
        self.trusted_from = 0
        self._file, self._index = file, index
        try:
            self.seal_sidecars()
        except StorageFailed:
            return file, index  # a full disk: the next start reads this segment again
        return file, index


class LoadedIndex:
    """An index from its sidecars, with the epochs up to its end, and how far into the log it speaks."""

    __slots__ = ("epochs", "index", "offset", "position")

    def __init__(self, index: SegmentIndex, epochs: Epochs, offset: int, position: int) -> None:
        self.index, self.epochs, self.offset, self.position = index, epochs, offset, position


def load_index(files: Files, place: Place, base_offset: int, interval_bytes: int) -> LoadedIndex | None:
    blocks = read_sidecar(files, INDEX, place, base_offset, "index")
    times = read_sidecar(files, TIME, place, base_offset, "time")
    if blocks is None or times is None or (blocks.offset, blocks.position) != (times.offset, times.position):
        return None
    parts = decode_index(blocks.body)
    if parts is None:
        return None
    index = SegmentIndex.decode(base_offset, interval_bytes, parts[0], times.body)
    return None if index is None else LoadedIndex(index, parts[1], blocks.offset, blocks.position)
