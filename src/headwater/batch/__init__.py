"""A record batch as bytes: Kafka's format v2, the only one that is stored and sent.

    parse(view, at)   one batch that begins at `at`: header only, no checksum
    split(records)    the records field of a Produce request
    check(batch)      what a writer's batch must be, by its header and its CRC32C; the payload stays closed
    stamp(batch)      base offset and epoch, in place: both lie outside of the checksum
    encode, decode    records to a batch and back, for readers and tests

The hot path (parse, check, stamp) neither copies nor opens a payload: `Batch.view` is a slice of the request it came in.
"""

from __future__ import annotations

from headwater.batch.header import HEADER_BYTES, Batch, Codec, check, crc_ok, parse, split, stamp
from headwater.batch.records import BatchRecord, decode, encode

__all__ = [
    "HEADER_BYTES",
    "Batch",
    "BatchRecord",
    "Codec",
    "check",
    "crc_ok",
    "decode",
    "encode",
    "parse",
    "split",
    "stamp",
]
