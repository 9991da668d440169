"""Which meta.db is opened, which is brought up to date, and which is refused and left alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from headwater.errors import DataDamaged, FormatTooNew, StorageFailed
from headwater.meta.schema import MIGRATIONS, connect, open_database


def test_a_new_file_gets_every_migration_and_full_durability(tmp_path: Path) -> None:
    """An empty directory gets the tables of this version; commits are synced in full, in WAL."""
    connection = open_database(tmp_path / "meta.db")
    pragmas = [connection.execute(f"PRAGMA {one}").fetchone()[0] for one in ("user_version", "synchronous")]
    assert pragmas == [len(MIGRATIONS), 2]
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    connection.close()


def test_an_older_file_is_brought_up_to_date_and_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration added later runs on a file that has only the earlier ones."""
    connection = open_database(tmp_path / "meta.db")
    connection.execute("INSERT INTO groups VALUES ('g', 'ordered', 1)")
    connection.close()
    later = (*MIGRATIONS, ("ALTER TABLE groups ADD COLUMN note TEXT NOT NULL DEFAULT 'none'",))
    monkeypatch.setattr("headwater.meta.schema.MIGRATIONS", later)
    connection = open_database(tmp_path / "meta.db")
    assert connection.execute("SELECT * FROM groups").fetchall() == [("g", "ordered", 1, "none")]
    assert connection.execute("PRAGMA user_version").fetchone()[0] == len(later)
    connection.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a file's migrations are one transaction: half of them never stays."""
    open_database(tmp_path / "meta.db").close()
    later = (*MIGRATIONS, ("CREATE TABLE half (a)", "CREATE TABLE half (a)"))
    with monkeypatch.context() as patched:
        patched.setattr("headwater.meta.schema.MIGRATIONS", later)
        with pytest.raises(StorageFailed, match="half"):
            open_database(tmp_path / "meta.db")
    connection = open_database(tmp_path / "meta.db")
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone()[0] == 0
    connection.close()


@pytest.mark.parametrize(
    "newer",
    [f"PRAGMA user_version = {len(MIGRATIONS) + 1}", "UPDATE facts SET value = '2' WHERE name = 'format'"],
)
def test_a_newer_file_is_refused(tmp_path: Path, newer: str) -> None:
    """Tables or a format from a later version are not touched, and the message says what to do."""
    path = tmp_path / "meta.db"
    connection = open_database(path)
    connection.execute(newer)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(FormatTooNew, match=r"newer Headwater .* upgrade Headwater, or choose --data"):
        open_database(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [0, 1])
def test_a_foreign_database_is_refused_and_left_as_it_is(tmp_path: Path, version: int) -> None:
    """Somebody else's database under our name is not given our tables, nor put into WAL."""
    path = tmp_path / "meta.db"
    connection = connect(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(DataDamaged, match="not one of Headwater's"):
        open_database(path)
    assert path.read_bytes() == before


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    """Noise under our name is named as damage."""
    (tmp_path / "meta.db").write_bytes(b"noise" * 1000)
    with pytest.raises(DataDamaged, match="not what was written"):
        open_database(tmp_path / "meta.db")


def test_a_place_that_cannot_be_opened_is_the_operators_matter(tmp_path: Path) -> None:
    """A directory that is not there is a storage error with its path, not a traceback of SQLite's."""
    with pytest.raises(StorageFailed, match="absent"):
        open_database(tmp_path / "absent" / "meta.db")


def test_a_torn_wal_leaves_the_last_whole_commit(tmp_path: Path) -> None:
    """Bytes cut off the end of the WAL take whole transactions, never halves."""
    connection = open_database(tmp_path / "meta.db")
    for name in ("first", "second"):
        connection.execute("INSERT INTO groups VALUES (?, 'ordered', 1)", (name,))
    kept = (tmp_path / "meta.db").read_bytes(), (tmp_path / "meta.db-wal").read_bytes()
    connection.close()
    (tmp_path / "copy.db").write_bytes(kept[0])
    (tmp_path / "copy.db-wal").write_bytes(kept[1][:-100])
    copy = sqlite3.connect(tmp_path / "copy.db")
    assert copy.execute("SELECT name FROM groups").fetchall() == [("first",)]
    assert copy.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    copy.close()
