"""A data directory that is started again, after a stop or a kill; and the one process that may have it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headwater.errors import (
    DataDirectoryHeld,
    FormatTooNew,
    StorageFailed,
)
from headwater.store import Store, directory
from tests.unit.store.acts import (
    NOW,
    append,
    as_if_killed,
    commit,
    create,
    offsets,
    place_of,
    settings,
)

# --- after a crash -------------------------------------------------------------------------------


def test_cursors_behind_a_shorter_log_are_set_to_its_end_and_reported(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a crash a cursor is never beyond the records that are left, opened or not, and the log says so."""
    entry = create(store)
    append(store.partition(place_of(entry)), b"one")
    commit(store, entry, 1)
    commit(store, entry, 700, index=1)
    with caplog.at_level(logging.WARNING):
        again = as_if_killed(store, tmp_path / "killed")
        assert offsets(again) == {0: 1, 1: 0}
    assert "stood at offset 700 of stream orders, partition 1, which now ends at 0" in caplog.text
    again.close()


def test_a_cursor_committed_before_the_log_was_looked_at_is_judged_too(store: Store, tmp_path: Path) -> None:
    """A commit that repeats an old position right after a crash does not escape the comparison."""
    entry = create(store)
    commit(store, entry, 700)
    again = as_if_killed(store, tmp_path / "killed")
    commit(again, entry, 700)
    assert offsets(again) == {0: 0}
    commit(again, entry, 5)
    assert offsets(again) == {0: 5}
    again.close()


def test_without_a_crash_a_cursor_is_what_was_committed(store: Store) -> None:
    """As in Kafka, a group may stand beyond the end of a log that lost nothing."""
    entry = create(store)
    commit(store, entry, 42)
    assert offsets(store) == {0: 42}


def test_the_epoch_and_the_cluster_id_belong_to_the_directory(store: Store, tmp_path: Path) -> None:
    """A kill moves the epoch, a clean stop does not, and the cluster id never changes."""
    assert store.epoch == 0
    assert store.cluster_id.startswith("headwater-")
    again = as_if_killed(store, tmp_path / "killed")
    assert (again.epoch, again.was_clean, again.cluster_id) == (1, False, store.cluster_id)
    again.close()
    again = Store.open(settings(tmp_path / "killed"))
    assert (again.epoch, again.was_clean) == (1, True)
    again.close()


def test_producer_ids_do_not_come_back_after_a_kill(store: Store, tmp_path: Path) -> None:
    """An id that was given is never given again, whatever became of the run that gave it."""
    given = store.producer_id().result(5)
    again = as_if_killed(store, tmp_path / "killed")
    assert again.producer_id().result(5) > given
    again.close()


# --- the directory -------------------------------------------------------------------------------


def test_a_second_store_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    """One process owns a directory; the refusal names its pid and where it answers."""
    store = Store.open(settings(tmp_path))
    store.announce("served", "127.0.0.1", 9092)
    with pytest.raises(DataDirectoryHeld, match=r"\(127.0.0.1:9092\)"):
        Store.open(settings(tmp_path))
    store.close()
    Store.open(settings(tmp_path)).close()
    where = directory.address(tmp_path)
    assert where is not None
    assert where.port == 9092


def test_a_refused_open_frees_the_directory(tmp_path: Path) -> None:
    """A start that fails half-way holds nothing: once its cause is gone, the next one succeeds."""
    Store.open(settings(tmp_path)).close()
    (tmp_path / "FORMAT").write_text("headwater 9\n")
    with pytest.raises(FormatTooNew):
        Store.open(settings(tmp_path))
    (tmp_path / "FORMAT").write_text("headwater 1\n")
    kept = (tmp_path / "meta.db").read_bytes()
    (tmp_path / "meta.db").write_bytes(b"noise" * 1000)
    with pytest.raises(Exception, match="not what was written"):
        Store.open(settings(tmp_path))
    (tmp_path / "meta.db").write_bytes(kept)
    Store.open(settings(tmp_path)).close()


def test_a_closed_store_answers_with_an_error(tmp_path: Path) -> None:
    """What is asked of a store that is closed does not hang, and closing it twice is fine."""
    store = Store.open(settings(tmp_path))
    entry = create(store)
    store.close()
    store.close()
    for ask in (
        lambda: store.partition(place_of(entry)),
        lambda: store.create("x", 1, {}, NOW).result(5),
        lambda: store.delete(entry.id).result(5),
        lambda: store.producer_id().result(5),
    ):
        with pytest.raises(StorageFailed):
            ask()
