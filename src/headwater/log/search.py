"""Looking for records by their time. The index names a block, its batches are walked, and one batch may be opened."""

from __future__ import annotations

from bisect import bisect_right

from headwater.batch import Batch, Codec, decode
from headwater.errors import CorruptBatch
from headwater.log.index import NO_TIME
from headwater.log.scan import Bad, walk
from headwater.log.segment import Segment
from headwater.log.state import State
from headwater.model import Epoch, Offset

Found = tuple[Offset, int, Epoch]


def segment_of(segments: tuple[Segment, ...], offset: int) -> Segment:
    """The segment that holds `offset`, or would."""
    if offset >= segments[-1].base_offset:
        return segments[-1]
    return segments[max(0, bisect_right(segments, offset, key=lambda one: one.base_offset) - 1)]


def first_not_before(state: State, timestamp_ms: int) -> Found | None:
    for segment in state.segments:
        if _latest_in(state, segment) >= timestamp_ms:
            found = _first_in(state, segment, timestamp_ms)
            return found if found is not None and found[0] < state.high_watermark else None
    return None


def latest(state: State) -> Found | None:
    best, where = NO_TIME, None
    for segment in state.segments:
        if (time := _latest_in(state, segment)) > best:
            best, where = time, segment
    if where is None:
        return None
    found = _first_in(state, where, best)
    return found if found is not None and found[0] < state.high_watermark else None


def _latest_in(state: State, segment: Segment) -> int:
    if segment.max_timestamp is None:
        _, index = state.opened(segment)
        if segment is state.segments[-1]:
            return index.max_timestamp
        segment.max_timestamp = index.max_timestamp
    return segment.max_timestamp


def _first_in(state: State, segment: Segment, timestamp_ms: int) -> Found | None:
    file, index = state.opened(segment)
    block = index.block_of_time(timestamp_ms)
    offset = segment.base_offset + index.offsets[block]
    try:
        for _, batch in walk(file, index.positions[block], segment.size, offset):
            if batch.max_timestamp >= timestamp_ms:
                return _record_in(batch, timestamp_ms)
    except Bad as bad:
        raise segment.rotten(bad) from None
    return None


def _record_in(batch: Batch, timestamp_ms: int) -> Found:
    """Exactly the record, if its batch can be read without unpacking it; else the batch's first record."""
    if batch.codec == Codec.NONE:
        try:
            for record in decode(batch):
                if record.timestamp_ms >= timestamp_ms:
                    return Offset(record.offset), record.timestamp_ms, Epoch(batch.epoch)
        except CorruptBatch:
            pass  # a payload that contradicts its header is its reader's matter: the header still names the batch
    return Offset(batch.base_offset), batch.base_timestamp, Epoch(batch.epoch)
