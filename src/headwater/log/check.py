"""The log's own check: reads everything again and compares it with what is believed. Storage tests end with it."""

from __future__ import annotations

from headwater.config import PRODUCERS_MAX
from headwater.log.index import Epochs, SegmentIndex, note_epoch
from headwater.log.layout import PRODUCERS, read_sidecar
from headwater.log.producers import Producers
from headwater.log.scan import Bad, walk
from headwater.log.segment import Segment, load_index
from headwater.log.state import State


def complaints(state: State) -> list[str]:
    """For a partition that nobody is writing to."""
    found: list[str] = []
    epochs: Epochs = []
    producers = Producers()
    offset = state.start
    for segment in state.segments:
        if segment.base_offset != offset:
            found.append(f"{segment.path} begins at offset {segment.base_offset}, {offset} had to follow")
        offset = _segment(state, segment, epochs, producers, found)
    if offset != state.end:
        found.append(f"the log ends at offset {offset}, {state.end} is believed")
    if not state.start <= state.durable <= state.end:
        found.append(f"durable is {state.durable}, outside of [{state.start}, {state.end}]")
    if epochs != state.epochs:
        found.append(f"the log has the epochs {epochs}, {state.epochs} are believed")
    if producers != state.producers and len(producers) < PRODUCERS_MAX:
        found.append("the log has other producers than are believed")
    if state.mark.offset > state.durable:
        found.append(f"the checkpoint speaks of offset {state.mark.offset}, only {state.durable} is durable")
    return found


def _segment(state: State, segment: Segment, epochs: Epochs, producers: Producers, found: list[str]) -> int:
    """Reads one segment into `epochs` and `producers`; returns where it ends."""
    file, believed = segment.opened()
    index = SegmentIndex(segment.base_offset, state.options.index_interval_bytes)
    offset = segment.base_offset
    if file.size() != segment.size:
        found.append(f"{segment.path} has {file.size()} bytes, {segment.size} are believed")
    _producers_on_disk(state, segment, found)
    try:
        for position, batch in walk(file, 0, segment.size, offset):
            index.add(batch.base_offset, position, batch.max_timestamp)
            note_epoch(epochs, batch.epoch, batch.base_offset)
            producers.replay(batch)
            offset = batch.next_offset
    except Bad as bad:
        found.append(f"{segment.path} at byte {bad.position}: {bad.why}")
    if index.encode() != believed.encode():
        found.append(f"{segment.path}: its index does not say what it holds")
    on_disk = load_index(state.files, state.place, segment.base_offset, state.options.index_interval_bytes)
    if on_disk is not None:
        blocks = len(on_disk.index.positions)
        if on_disk.position > segment.size or on_disk.index.positions != index.positions[:blocks]:
            found.append(f"{segment.path}: its index on disk does not say what it holds")
    return offset


def _producers_on_disk(state: State, segment: Segment, found: list[str]) -> None:
    snapshot = read_sidecar(state.files, PRODUCERS, state.place, segment.base_offset, "producers")
    if snapshot is not None and snapshot.offset > state.end:
        found.append(f"{segment.path}: its producers are of offset {snapshot.offset}, behind the log's end")
