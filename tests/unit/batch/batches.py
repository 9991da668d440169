"""Batches for tests: records of every shape, and whole batches with one thing changed."""

from __future__ import annotations

from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st

from headwater.batch import Batch, BatchRecord, encode, parse
from headwater.batch.header import CRC_FROM, HEADER

NOW_MS = 1_700_000_000_000
FIELDS = (
    "base_offset", "length", "epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp",
    "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count",
)  # fmt: skip
SOME = [
    BatchRecord(0, NOW_MS, b"key", b"value"),
    BatchRecord(1, NOW_MS + 5, None, b"", (("name", b"x"), ("none", None), ("", b""))),
    BatchRecord(2, NOW_MS - 9, b"", None),
]


def changed(raw: bytes, **fields: Any) -> Batch:
    """`raw` with other header fields; its checksum is right unless it was given."""
    out = bytearray(raw)
    said = dict(zip(FIELDS, HEADER.unpack_from(out), strict=True)) | fields
    HEADER.pack_into(out, 0, *said.values())
    if "crc" not in fields:
        out[17:21] = crc32c(memoryview(out)[CRC_FROM:]).to_bytes(4, "big")
    return parse(memoryview(out))


def with_payload(payload: bytes, **fields: Any) -> Batch:
    """A batch whose header is well, around any bytes."""
    header = encode([BatchRecord(0, NOW_MS, None, b"v")])[: HEADER.size]
    return changed(header + payload, length=HEADER.size + len(payload) - 12, **fields)


_blob = st.none() | st.binary(max_size=200)
_headers = st.lists(st.tuples(st.text(max_size=10), _blob), max_size=3).map(tuple)


@st.composite
def records(draw: st.DrawFn, *, offset_max: int = 1 << 60) -> list[BatchRecord]:
    """Records as a writer makes them: offsets without gaps, times in any order."""
    first = draw(st.integers(0, offset_max))
    times = draw(st.lists(st.integers(0, 1 << 45), min_size=1, max_size=20))
    return [
        BatchRecord(first + place, time, draw(_blob), draw(_blob), draw(_headers)) for place, time in enumerate(times)
    ]
