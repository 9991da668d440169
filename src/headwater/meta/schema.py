"""The tables of meta.db, as numbered migrations; the number of those applied stands in the file.

A migration is never edited once it has been released: a later one is added. An older file is brought up to date in
one transaction, a newer one is refused, since its tables may mean what this version does not know.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from headwater.config import FORMAT_VERSION
from headwater.errors import DataDamaged, FormatTooNew, StorageFailed

APPLICATION_ID = 0x48445752  # "HDWR": what `file meta.db` shows, and how a foreign database is told apart

# A stream's name is unique among the living only: while the files of a deleted stream are still being freed, its
# name may be used again (with another id). Names that differ only in '.' and '_' are one, as in Kafka, whose metrics
# cannot tell them apart: so every stream here can be carried there. `boot_epoch` of a cursor is the data directory's epoch when it was
# committed: if that has moved on, a crash lies between, and the log may be shorter than the cursor believes.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE streams (
            id BLOB PRIMARY KEY,
            name TEXT NOT NULL,
            partitions INTEGER NOT NULL,
            config TEXT NOT NULL,
            created_ms INTEGER NOT NULL,
            updated_ms INTEGER NOT NULL,
            deleting INTEGER NOT NULL DEFAULT 0
        ) WITHOUT ROWID""",
        "CREATE UNIQUE INDEX living_names ON streams (replace(name, '.', '_')) WHERE deleting = 0",
        "CREATE TABLE groups (name TEXT PRIMARY KEY, kind TEXT NOT NULL, created_ms INTEGER NOT NULL) WITHOUT ROWID",
        """CREATE TABLE cursors (
            group_name TEXT NOT NULL,
            stream_id BLOB NOT NULL,
            partition INTEGER NOT NULL,
            offset INTEGER NOT NULL,
            leader_epoch INTEGER NOT NULL,
            metadata TEXT NOT NULL,
            committed_ms INTEGER NOT NULL,
            boot_epoch INTEGER NOT NULL,
            PRIMARY KEY (group_name, stream_id, partition)
        ) WITHOUT ROWID""",
        "CREATE INDEX cursors_by_partition ON cursors (stream_id, partition)",
    ),
)


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose every commit is on disk before it returns (WAL, synchronous=FULL)."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def open_database(path: Path) -> sqlite3.Connection:
    """Opens meta.db, brought up to date; a newer, a foreign or a rotten file is refused by name, and left as it is."""
    connection: sqlite3.Connection | None = None
    try:
        connection = connect(path)
        applied = _judge(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")  # stays in the file, so it comes after judging whose file it is
        _migrate(connection, applied)
    except BaseException as why:
        if connection is not None:
            connection.close()
        if isinstance(why, sqlite3.OperationalError):
            raise StorageFailed(
                f"{path} cannot be opened ({why}): look at the disk and its permissions, then start again"
            ) from why
        if isinstance(why, sqlite3.DatabaseError):
            raise DataDamaged(
                f"{path} is not what was written ({why}): restore it from a copy, or choose --data"
            ) from why
        raise
    return connection


def _judge(connection: sqlite3.Connection, path: Path) -> int:
    """How many migrations the file has seen; raises if it is not ours, or from a later version."""
    applied: int = connection.execute("PRAGMA user_version").fetchone()[0]
    owner: int = connection.execute("PRAGMA application_id").fetchone()[0]
    if owner != APPLICATION_ID:
        if applied or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise DataDamaged(f"{path} is a database, but not one of Headwater's: move it away, or choose --data")
        return 0
    known = len(MIGRATIONS)
    if applied > known or _format_in(connection) > FORMAT_VERSION:
        raise FormatTooNew(
            f"{path} was written by a newer Headwater (its tables are of version {applied}, this one knows {known}): "
            "upgrade Headwater, or choose --data"
        )
    return applied


def _format_in(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM facts WHERE name = 'format'").fetchone()
    return int(row[0]) if row else 0


def _migrate(connection: sqlite3.Connection, applied: int) -> None:
    if applied == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    for statements in MIGRATIONS[applied:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute("INSERT OR REPLACE INTO facts VALUES ('format', ?)", (str(FORMAT_VERSION),))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")
