"""Reading without a group: nobody's cursor moves, nobody's partitions change hands.

Without `follow` a browse ends where the stream ended when it began, partition by partition; with it, records come as
they are published, in order within each partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from typing import Any, Literal

from headwater.errors import InvalidOption, StreamNotFound
from headwater.model import Headers, Record
from headwater.sdk.border import not_found, time_of
from headwater.sdk.codec import Codec, codec_of
from headwater.sdk.ranges import Polled, RangeAdmin, follow_from, read_range

BrowseStart = Literal["beginning", "end"]


async def browse(
    options: Mapping[str, Any], name: str, model: Any, *, start: BrowseStart, follow: bool
) -> AsyncIterator[Record[Any]]:
    """The records of stream `name` on the server that `options` reach. Closing the iterator lets the server go."""
    if start not in {"beginning", "end"}:
        raise InvalidOption(f'start is "beginning" or "end", not {start!r}')
    codec = codec_of(name, model)
    starts, ends = await asyncio.to_thread(_bounds, options, name)
    begin = starts if start == "beginning" else ends
    chunks = follow_from(options, name, begin) if follow else _ranges(options, name, begin, ends)
    step: asyncio.Future[tuple[int, Sequence[Polled]] | None] | None = None
    try:
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(next, chunks, None))
            found = await asyncio.shield(step)
            if found is None:
                return
            for one in found[1]:
                yield _record(codec, name, found[0], one)
    finally:
        if step is not None:
            await asyncio.wait({step})  # a thread that reads cannot be interrupted, only waited for
        await asyncio.to_thread(chunks.close)


def _bounds(options: Mapping[str, Any], name: str) -> tuple[dict[int, int], dict[int, int]]:
    admin = RangeAdmin(options)
    facts = admin.streams([name]).get(name)
    if facts is None:
        raise not_found(name)
    places = [(name, partition) for partition in range(facts.partitions)]
    try:
        starts, ends = admin.starts(places), admin.ends(places)
    except StreamNotFound:
        raise not_found(name) from None
    return {at: starts[name, at] for _, at in places}, {at: ends[name, at] for _, at in places}


def _ranges(
    options: Mapping[str, Any], name: str, begin: Mapping[int, int], ends: Mapping[int, int]
) -> Generator[tuple[int, Sequence[Polled]], None, None]:
    for partition, start in begin.items():
        for polled in read_range(options, name, partition, start, ends[partition]):
            yield partition, polled


def _record(codec: Codec, name: str, partition: int, one: Polled) -> Record[Any]:
    return Record(
        value=codec.decode(name, one.value),
        key_bytes=one.key,
        headers=Headers(one.headers),
        timestamp=time_of(one.timestamp_ms),
        stream=name,
        partition=partition,
        offset=one.offset,
        epoch=one.epoch,
    )
