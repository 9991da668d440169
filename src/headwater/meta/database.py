"""meta.db: what streams there are, where groups stand, who has which producer ids, and how the last run ended.

Everything that is written goes through one thread (writer.py) and is answered by a Future once it is durable. Reading
has its own connection and sees only what is durable: WAL shows a transaction to readers after its sync, not before.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, cast

from headwater.config import META_RESERVE_BYTES
from headwater.errors import GroupKindMismatch, InvalidStreamName, StorageFailed, StreamExists
from headwater.meta.schema import connect, open_database
from headwater.meta.writer import Writer
from headwater.model import Cursor, Epoch, GroupName, Offset, PartitionIndex, ProducerId, StreamId, StreamName

GroupKind = Literal["ordered", "queue"]
Place = tuple[StreamId, PartitionIndex]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEntry:
    """A stream as meta.db holds it: `config` has only the entries that were given."""

    id: StreamId
    name: StreamName
    partitions: int
    config: Mapping[str, str]
    created_ms: int
    updated_ms: int
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """What a start finds: the epoch to stamp from now on, and whether the last run ended cleanly."""

    epoch: Epoch
    clean: bool
    cluster_id: str


class Meta:
    """One meta.db, held open. `close()` finishes what was submitted."""

    def __init__(self, path: Path, *, reserve: Path) -> None:
        self._reserve = reserve
        try:
            self._writing = open_database(path)
        except StorageFailed:
            if not self._give_up_reserve():  # opening needs a few pages too, and a full disk must still start
                raise
            self._writing = open_database(path)
        self._reading = connect(path)
        self._read_lock = threading.Lock()
        self._keep_reserve()
        self._writer = Writer(self._writing, make_room=self._give_up_reserve)

    @classmethod
    def open(cls, directory: Path) -> Self:
        return cls(directory / "meta.db", reserve=directory / "meta.reserve")

    def close(self) -> None:
        self._writer.close()
        with self._read_lock:
            self._reading.close()
        self._writing.close()

    @property
    def commit_count(self) -> int:
        """Transactions made durable since the start: with group commit, fewer than requests."""
        return self._writer.commit_count

    # --- starts and stops ------------------------------------------------------------------------

    def boot(self, new_cluster_id: str) -> Boot:
        """Notes a start, durably, before anything else is written. After an unclean end the epoch moves on."""

        def work(connection: sqlite3.Connection) -> Boot:
            facts = dict(connection.execute("SELECT name, value FROM facts").fetchall())
            clean = facts.get("clean", "yes") == "yes"
            epoch = int(facts.get("epoch", "0")) + (0 if clean else 1)
            cluster_id = facts.get("cluster_id", new_cluster_id)
            _put_facts(connection, {"epoch": str(epoch), "clean": "no", "cluster_id": cluster_id})
            return Boot(epoch=Epoch(epoch), clean=clean, cluster_id=cluster_id)

        return self._writer.submit(work, frees_space=True).result()

    def stopped_cleanly(self) -> Future[None]:
        """Notes that every partition was closed with its checkpoint: the next start need not recover."""
        return self._writer.submit(lambda connection: _put_facts(connection, {"clean": "yes"}), frees_space=True)

    # --- streams ---------------------------------------------------------------------------------

    def streams(self) -> list[StreamEntry]:
        """All of them, those half-way through being deleted too."""
        rows = self._read(
            "SELECT id, name, partitions, config, created_ms, updated_ms, deleting FROM streams ORDER BY name"
        )
        return [
            StreamEntry(
                id=StreamId(stream_id),
                name=StreamName(name),
                partitions=partitions,
                config=json.loads(config),
                created_ms=created_ms,
                updated_ms=updated_ms,
                deleting=bool(deleting),
            )
            for stream_id, name, partitions, config, created_ms, updated_ms, deleting in rows
        ]

    def create_stream(self, entry: StreamEntry, *, then: Callable[[StreamEntry], None]) -> Future[StreamEntry]:
        values = (
            entry.id,
            entry.name,
            entry.partitions,
            json.dumps(dict(entry.config)),
            entry.created_ms,
            entry.updated_ms,
        )

        def work(connection: sqlite3.Connection) -> StreamEntry:
            taken = connection.execute(_LIKE_NAMED, (entry.name,)).fetchone()
            if taken:
                raise name_taken(entry.name, taken[0])
            connection.execute(
                "INSERT INTO streams (id, name, partitions, config, created_ms, updated_ms) VALUES (?, ?, ?, ?, ?, ?)",
                values,
            )
            return entry

        return self._writer.submit(work, then=then)

    def mark_deleting(self, stream_id: StreamId, *, then: Callable[[None], None]) -> Future[None]:
        """The point of no return of a delete: cursors go, the name is free, the files are to be freed."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE streams SET deleting = 1 WHERE id = ?", (stream_id,))
            connection.execute("DELETE FROM cursors WHERE stream_id = ?", (stream_id,))

        return self._writer.submit(work, then=then, frees_space=True)

    def forget_stream(self, stream_id: StreamId) -> Future[None]:
        """The end of a delete, when its files are gone."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM streams WHERE id = ?", (stream_id,))

        def then(_: None) -> None:
            self._keep_reserve()

        return self._writer.submit(work, then=then, frees_space=True)

    # --- groups and cursors ----------------------------------------------------------------------

    def ensure_group(self, name: GroupName, kind: GroupKind, now_ms: int) -> Future[None]:
        return self._writer.submit(lambda connection: _ensure_group(connection, name, kind, now_ms))

    def delete_group(self, name: GroupName) -> Future[bool]:
        """With its cursors; whether there was one."""

        def work(connection: sqlite3.Connection) -> bool:
            connection.execute("DELETE FROM cursors WHERE group_name = ?", (name,))
            return connection.execute("DELETE FROM groups WHERE name = ?", (name,)).rowcount > 0

        return self._writer.submit(work, frees_space=True)

    def groups(self) -> list[tuple[GroupName, GroupKind]]:
        rows = self._read("SELECT name, kind FROM groups ORDER BY name")
        return [(GroupName(name), cast("GroupKind", kind)) for name, kind in rows]

    def commit_cursors(
        self, group: GroupName, cursors: Mapping[Place, Cursor], epoch_of: Callable[[Place], Epoch]
    ) -> Future[None]:
        """A cursor of a stream that is gone is dropped: its commit is as if it had come just before the delete.

        `epoch_of` says in which epoch a place's cursor is known to be within the log (`clamp_cursors`).
        """
        rows = [
            (group, *place, one.offset, one.epoch, one.metadata, one.committed_ms, epoch_of(place), place[0])
            for place, one in cursors.items()
        ]
        now_ms = max((one.committed_ms for one in cursors.values()), default=0)

        def work(connection: sqlite3.Connection) -> None:
            _ensure_group(connection, group, "ordered", now_ms)
            connection.executemany(
                "INSERT OR REPLACE INTO cursors SELECT ?, ?, ?, ?, ?, ?, ?, ?"
                " WHERE EXISTS (SELECT 1 FROM streams WHERE id = ? AND deleting = 0)",
                rows,
            )

        return self._writer.submit(work)

    def cursors(self, group: GroupName) -> dict[Place, Cursor]:
        rows = self._read(
            "SELECT stream_id, partition, offset, leader_epoch, metadata, committed_ms FROM cursors"
            " WHERE group_name = ? ORDER BY stream_id, partition",
            (group,),
        )
        return {
            (StreamId(stream_id), PartitionIndex(partition)): Cursor(
                offset=Offset(offset), epoch=Epoch(epoch), metadata=metadata, committed_ms=committed_ms
            )
            for stream_id, partition, offset, epoch, metadata, committed_ms in rows
        }

    def doubtful_places(self, group: GroupName, epoch: Epoch) -> list[Place]:
        """Where `group` has a cursor from before the last crash, which may stand behind the end of its log."""
        rows = self._read(
            "SELECT stream_id, partition FROM cursors WHERE group_name = ? AND boot_epoch < ?", (group, epoch)
        )
        return [(StreamId(stream_id), PartitionIndex(partition)) for stream_id, partition in rows]

    def clamp_cursors(self, place: Place, end: Offset, epoch: Epoch) -> Future[list[tuple[GroupName, Offset]]]:
        """Sets cursors from before the last crash that stand behind the log's end to it; returns where they stood."""
        beyond = (*place, end, epoch)

        def work(connection: sqlite3.Connection) -> list[tuple[GroupName, Offset]]:
            found = connection.execute(
                "SELECT group_name, offset FROM cursors"
                " WHERE stream_id = ? AND partition = ? AND offset > ? AND boot_epoch < ?",
                beyond,
            ).fetchall()
            if found:
                connection.execute(
                    "UPDATE cursors SET offset = ?, leader_epoch = -1, boot_epoch = ?"
                    " WHERE stream_id = ? AND partition = ? AND offset > ? AND boot_epoch < ?",
                    (end, epoch, *beyond),
                )
            return [(GroupName(group), Offset(offset)) for group, offset in found]

        return self._writer.submit(work)

    # --- producer ids ----------------------------------------------------------------------------

    def grant_producer_ids(self, count: int) -> Future[ProducerId]:
        """The first of `count` ids that nobody was given before and nobody will be given again."""

        def work(connection: sqlite3.Connection) -> ProducerId:
            row = connection.execute("SELECT value FROM facts WHERE name = 'next_producer_id'").fetchone()
            first = int(row[0]) if row else 0
            _put_facts(connection, {"next_producer_id": str(first + count)})
            return ProducerId(first)

        return self._writer.submit(work)

    # --- helpers ---------------------------------------------------------------------------------

    def _read(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        with self._read_lock:
            try:
                return self._reading.execute(query, parameters).fetchall()
            except sqlite3.Error as why:
                raise StorageFailed(f"meta.db could not be read ({why}): look at the disk, then start again") from why

    def _keep_reserve(self) -> None:
        """A file that holds room for deletes; without room for it now, the next delete or start tries again."""
        try:
            descriptor = os.open(self._reserve, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(descriptor).st_size < META_RESERVE_BYTES:
                    os.posix_fallocate(descriptor, 0, META_RESERVE_BYTES)
            finally:
                os.close(descriptor)
        except OSError:
            self._give_up_reserve()

    def _give_up_reserve(self) -> bool:
        """Frees a little room on a full disk; whether there was some to free."""
        try:
            self._reserve.unlink()
        except OSError:
            return False
        return True


def name_taken(name: str, by: str) -> StreamExists | InvalidStreamName:
    """Why a stream cannot be called `name` while there is one called `by`."""
    if name == by:
        return StreamExists(f"the stream {name!r} exists already: use it, or delete it first")
    return InvalidStreamName(
        f"the stream {name!r} collides with the existing stream {by!r}: "
        "names that differ only in '.' and '_' are one in Kafka's metrics; choose another"
    )


def _put_facts(connection: sqlite3.Connection, facts: Mapping[str, str]) -> None:
    connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())


def _ensure_group(connection: sqlite3.Connection, name: GroupName, kind: GroupKind, now_ms: int) -> None:
    connection.execute("INSERT OR IGNORE INTO groups VALUES (?, ?, ?)", (name, kind, now_ms))
    (held,) = connection.execute("SELECT kind FROM groups WHERE name = ?", (name,)).fetchone()
    if held != kind:
        raise GroupKindMismatch(
            f"the group {name!r} is {_KINDS[held]}, and cannot be {_KINDS[kind]} too: "
            "choose another name, or delete the group first"
        )


_LIKE_NAMED = "SELECT name FROM streams WHERE replace(name, '.', '_') = replace(?, '.', '_') AND deleting = 0"
_KINDS = {"ordered": "an ordered group (read with group())", "queue": "a queue (read with queue())"}
