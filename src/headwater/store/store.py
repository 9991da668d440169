"""What spans the log and meta.db, without a network: a stream is a row in one and files in the other.

The two can disagree after a crash, and this is where they are brought together again:

- **Deleting** is two steps. The row is marked, durably, with its cursors gone: from then on the stream is not there,
  and its name is free. Then its files go, and at last the row. A start that finds a marked row goes on in the
  background where the last run was stopped.
- **The epoch** is one per data directory and moves on at every start after an unclean end. It is stamped into each
  batch, so that whoever read what a power cut took can see that what stands there now is something else.
- **Cursors** can be ahead of a log that lost its tail. They are compared with its end when the partition is first
  opened, before anything is read from it or written to it, and set to it if they stand behind.

A partition is opened when it is first asked for: a start reads one table, not every directory.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Self

from headwater.config import CLUSTER_ID_PREFIX, PARTITIONS_MAX, Settings
from headwater.errors import InvalidPartitions, WireError
from headwater.log import DiskFiles, Files, Flusher, LogOptions, Partition
from headwater.meta import GroupKind, Meta, Place, StreamEntry, name_taken
from headwater.model import Cursor, Epoch, GroupName, ProducerId, StreamId, StreamName, stream_name
from headwater.store import configs, directory
from headwater.store.partitions import Partitions
from headwater.store.producer_ids import ProducerIds
from headwater.store.registry import Registry
from headwater.store.removal import Removal

log = logging.getLogger("headwater.store")

RESERVED_IDS = frozenset({bytes(16), bytes(15) + b"\x01"})  # Kafka's: no id, and its own metadata log


class Store:
    """One data directory, held by this process. Methods may be called from any thread.

    Futures are of `concurrent.futures`, answered when the change is durable; cancelling one forgets the wait, not
    the change.
    """

    def __init__(self, settings: Settings, files: Files, lock: directory.FileLock, meta: Meta) -> None:
        self.settings = settings
        self._files = files
        self._lock = lock
        self._meta = meta
        self._closed = False
        boot = meta.boot(CLUSTER_ID_PREFIX + secrets.token_hex(6))
        self.epoch: Epoch = boot.epoch
        self.cluster_id: str = boot.cluster_id
        self.was_clean: bool = boot.clean
        entries = meta.streams()
        self._registry = Registry(entry for entry in entries if not entry.deleting)
        self._older = frozenset(entry.id for entry in entries) if boot.epoch else frozenset()
        self._partitions = Partitions(self._registry, self._open_partition)
        self._producer_ids = ProducerIds(meta)
        self._flusher = Flusher()
        self._removal = Removal(files, self._partitions, meta)
        self._flusher.start()
        for entry in entries:
            if entry.deleting:
                self._removal.begin(entry)

    @classmethod
    def open(cls, settings: Settings, *, files: Files | None = None) -> Self:
        """Takes the data directory, or says who has it; `files` is where the logs lie, the real disk by default."""
        lock = directory.acquire(settings.data)
        meta: Meta | None = None
        try:
            meta = Meta.open(Path(settings.data))
            return cls(settings, files or DiskFiles(settings.data), lock, meta)
        except BaseException:
            if meta is not None:
                meta.close()
            lock.release()
            raise

    def close(self) -> None:
        """Finishes what was begun, checkpoints every open partition, and notes a clean stop if all of that held.

        A delete that is under way ends after the file it is at; the next start goes on with it. Twice is fine.
        """
        if self._closed:
            return
        self._closed = True
        self._removal.close()
        clean = True
        for place, partition in self._partitions.take_all():
            clean = self._close_partition(place, partition) and clean
        self._flusher.close()
        try:
            if clean:
                self._meta.stopped_cleanly().result()
        finally:
            self._meta.close()
            self._lock.release()

    def announce(self, kind: directory.Kind, host: str, port: int) -> None:
        """Writes where this process answers, for clients that find the broker by its directory."""
        where = directory.Address(kind=kind, host=host, port=port, pid=os.getpid())
        directory.write_address(self.settings.data, where)

    # --- streams ---------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Moves whenever a stream comes, goes or changes."""
        return self._registry.version

    def stream(self, name: str) -> StreamEntry | None:
        return self._registry.named(name)

    def stream_by_id(self, stream_id: bytes) -> StreamEntry | None:
        return self._registry.with_id(stream_id)

    def streams(self) -> list[StreamEntry]:
        return self._registry.all()

    def check_new(self, name: str, partitions: int, config: Mapping[str, str | None]) -> configs.StreamOptions:
        """What `create` would refuse without asking the disk, it refuses here."""
        checked = stream_name(name)
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise InvalidPartitions(f"{partitions} partitions for {name!r}: choose 1 to {PARTITIONS_MAX}")
        taken = self._registry.like_named(checked)
        if taken is not None:
            raise name_taken(checked, taken.name)
        return configs.parse(config)

    def create(self, name: str, partitions: int, config: Mapping[str, str | None], now_ms: int) -> Future[StreamEntry]:
        """A new stream with an id that no stream had before. Its files come with its first record."""
        options = self.check_new(name, partitions, config)
        entry = StreamEntry(
            id=_new_id(),
            name=StreamName(name),
            partitions=partitions,
            config=options.given,
            created_ms=now_ms,
            updated_ms=now_ms,
        )
        return self._meta.create_stream(entry, then=self._registry.add)

    def delete(self, name_or_id: StreamName | StreamId) -> Future[StreamEntry]:
        """Answered when the stream and its cursors are gone for good and its files are freed.

        If a file cannot be freed the stream is gone nevertheless; the next start tries again.
        """
        entry = self._registry.known(name_or_id)
        deleted: Future[StreamEntry] = Future()
        deleted.set_running_or_notify_cancel()

        def marked(future: Future[None]) -> None:
            why = future.exception()
            if why is not None:
                deleted.set_exception(why)
            else:
                self._removal.begin(entry, deleted)

        marking = self._meta.mark_deleting(entry.id, then=lambda _: self._registry.remove(entry))
        marking.add_done_callback(marked)
        return deleted

    # --- partitions ------------------------------------------------------------------------------

    def opened(self, place: Place) -> Partition | None:
        """The partition if it is open already; never touches the disk."""
        return self._partitions.opened(place)

    def partition(self, place: Place) -> Partition:
        """The partition, opened and recovered if need be: that can take seconds, so call it in a thread."""
        return self._partitions.open(place)

    def _open_partition(self, entry: StreamEntry, place: Place) -> Partition:
        partition = Partition.open(
            self._files,
            stream_id=entry.id,
            index=place[1],
            options=self._log_options(entry),
            epoch=self.epoch,
            flusher=self._flusher,
        )
        if partition.recovery is not None:
            cut = partition.recovery
            log.warning(
                "stream %s, partition %d: its end was damaged (%s): %d bytes%s are cut off, it ends at offset %d",
                entry.name, place[1], cut.why, cut.cut_bytes,
                " that had been on disk" if cut.durable_lost else "", cut.end,
            )  # fmt: skip
        if entry.id in self._older:
            for group, offset in self._meta.clamp_cursors(place, partition.end, self.epoch).result():
                log.warning(
                    "group %s stood at offset %d of stream %s, partition %d, which now ends at %d: set to the end",
                    group, offset, entry.name, place[1], partition.end,
                )  # fmt: skip
        return partition

    def _close_partition(self, place: Place, partition: Partition) -> bool:
        try:
            partition.close()
        except WireError as why:
            entry = self._registry.with_id(place[0])
            name = entry.name if entry is not None else place[0].hex()
            log.error("stream %s, partition %d: %s; the next start recovers it", name, place[1], why)  # noqa: TRY400
            return False
        return True

    def _log_options(self, entry: StreamEntry) -> LogOptions:
        options, settings = configs.parse(entry.config), self.settings
        return LogOptions(
            segment_bytes=options.segment_bytes or settings.segment_bytes,
            index_interval_bytes=settings.index_interval_bytes,
            flush_ms=settings.flush_ms,
            flush_records=settings.flush_records,
            sync=options.sync,
        )

    # --- groups, cursors, producers --------------------------------------------------------------

    def ensure_group(self, name: GroupName, kind: GroupKind, now_ms: int) -> Future[None]:
        """Notes the group's kind; GroupKindMismatch when its name is used for the other one."""
        return self._meta.ensure_group(name, kind, now_ms)

    def groups(self) -> list[tuple[GroupName, GroupKind]]:
        return self._meta.groups()

    def delete_group(self, name: GroupName) -> Future[bool]:
        """With its cursors; whether there was one."""
        return self._meta.delete_group(name)

    def commit_cursors(self, group: GroupName, cursors: Mapping[Place, Cursor]) -> Future[None]:
        """All of them or none; those of a stream that was deleted are dropped."""
        return self._meta.commit_cursors(group, cursors, self._cursor_epoch)

    def cursors(self, group: GroupName) -> dict[Place, Cursor]:
        """Where the group stands. Call it in a thread: after a crash it opens the partitions that the group reads.

        A log may have become shorter than a cursor says, and a cursor beyond the end is set to it when the partition
        opens.
        """
        for place in self._meta.doubtful_places(group, self.epoch) if self.epoch else ():
            if self._partitions.opened(place) is None and self._registry.with_id(place[0]) is not None:
                self._judge(place)
        return self._meta.cursors(group)

    def _judge(self, place: Place) -> None:
        try:
            self._partitions.open(place)
        except WireError as why:  # it serves nobody in this state, so its cursors mislead nobody
            log.warning("partition %d of stream %s cannot be opened: %s", place[1], place[0].hex(), why)

    def _cursor_epoch(self, place: Place) -> Epoch:
        """The epoch in which a cursor at `place` is known to be within its log: this one once it is open."""
        if place[0] not in self._older or self._partitions.opened(place) is not None:
            return self.epoch
        return Epoch(self.epoch - 1)

    def producer_id(self) -> Future[ProducerId]:
        """An id that no producer had before."""
        return self._producer_ids.next()


def _new_id() -> StreamId:
    while True:
        found = secrets.token_bytes(16)
        # As text (base64) an id must not begin with '-': it would read as an option. Kafka avoids the same ones.
        if found not in RESERVED_IDS and found[0] >> 2 != 62:
            return StreamId(found)
