"""Frees the files of deleted streams, one stream after another, in a thread of its own.

The row in meta.db stays, marked, until the last name is gone from the disk for good: so whenever this is stopped, the
next start finds the row and goes on. Freeing what is freed already is no error.
"""

from __future__ import annotations

import logging
import queue
import threading
from concurrent.futures import Future

from headwater import failpoints
from headwater.log import Files, stream_directory
from headwater.meta import Meta, StreamEntry
from headwater.store.partitions import Partitions

log = logging.getLogger("headwater.store")

_Job = tuple[StreamEntry, "Future[StreamEntry] | None"]


class Removal:
    def __init__(self, files: Files, partitions: Partitions, meta: Meta) -> None:
        self._files = files
        self._partitions = partitions
        self._meta = meta
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="headwater-removal", daemon=True)
        self._thread.start()

    def begin(self, entry: StreamEntry, deleted: Future[StreamEntry] | None = None) -> None:
        """`entry` has left the registry, durably; `deleted` is answered when its files are freed."""
        with self._closing:
            if not self._stopping:
                self._jobs.put((entry, deleted))
                return
        if deleted is not None:
            deleted.set_result(entry)

    def close(self) -> None:
        """Stops at the next file. Whoever waits is answered: the stream is gone, its files at the next start."""
        with self._closing:
            self._stopping = True
            self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            entry, deleted = job
            try:
                self._free(entry)
            except Exception:  # the thread outlives what happens to one stream
                log.exception("files of the deleted stream %s are left: the next start tries again", entry.name)
            if deleted is not None:
                deleted.set_result(entry)

    def _free(self, entry: StreamEntry) -> None:
        for partition in self._partitions.take(entry):
            partition.delete()
            failpoints.reach("mid-delete")
        here = stream_directory(entry.id)
        for name in self._files.names(here):
            if self._stopping:
                return
            self._files.delete(f"{here}/{name}")
            failpoints.reach("mid-delete")
        self._free_directory(here)
        failpoints.reach("between-log-and-meta")
        self._meta.forget_stream(entry.id).result()

    def _free_directory(self, here: str) -> None:
        """Flushed also when it is gone already: a kill may lie between its going and that being durable."""
        above, _, _ = here.rpartition("/")
        top, _, shared = above.rpartition("/")
        if shared in self._files.names(top):
            self._files.delete(here)
            self._files.flush_directory(above)
