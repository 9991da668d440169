"""What a program declares: streams, tables, their options. Nothing in here does IO or imports a client library.

A declaration is cheap, pickles by cloudpickle, and is read by three rooms: the SDK (which binds it to a client), the
lake (which makes a table of it) and the pipeline (which lands it). They read `stream.name`, `stream.model`,
`stream.options` (only what the program wrote), `stream.destination`, and `table.name`, `.namespace`, `.model`.
"""

from headwater.sdk.declare.duration import Duration, seconds_of
from headwater.sdk.declare.options import StreamConfig, StreamOptions, raw_configs
from headwater.sdk.declare.outgoing import Outgoing
from headwater.sdk.declare.stream import Stream, declared
from headwater.sdk.declare.table import Key, KeyMark, OlapTable, Table, key_fields

__all__ = [
    "Duration",
    "Key",
    "KeyMark",
    "OlapTable",
    "Outgoing",
    "Stream",
    "StreamConfig",
    "StreamOptions",
    "Table",
    "declared",
    "key_fields",
    "raw_configs",
    "seconds_of",
]
