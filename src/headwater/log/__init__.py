"""The segment log of one partition, usable alone: append, flush, read, recover.

    files = DiskFiles("./data")
    flusher = Flusher()
    flusher.start()
    partition = Partition.open(
        files, stream_id=StreamId(uuid4().bytes), index=PartitionIndex(0), options=LogOptions(), epoch=Epoch(0), flusher=flusher
    )
    [answer] = partition.append([batch])                    # Appended, or the error for this batch
    partition.when_durable(answer.next_offset, print)       # prints None when it is on disk
    for piece in partition.read(answer.base_offset, 1024):  # ranges of files, for sendfile
        ...
    partition.close()
    flusher.close()

Begin to read in `flusher`, then `segment`, `recovery`, `durability`, `writing`. What the files contain is drawn in
docs/internals/log_format.md. The log decides nothing about streams, names or epochs: they are given.
"""

from __future__ import annotations

from headwater.log.files import DiskFiles, File, Files, is_among_the_last
from headwater.log.flusher import Flusher
from headwater.log.layout import stream_directory
from headwater.log.options import LogOptions
from headwater.log.partition import Partition
from headwater.log.recovery import Recovery
from headwater.log.slices import Slice
from headwater.log.writing import Appended

__all__ = [
    "Appended",
    "DiskFiles",
    "File",
    "Files",
    "Flusher",
    "LogOptions",
    "Partition",
    "Recovery",
    "Slice",
    "is_among_the_last",
    "stream_directory",
]
