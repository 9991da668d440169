"""One data directory, held by this process: what spans the log and meta.db holds together."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.config import PARTITIONS_MAX
from headwater.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidStreamName,
    StreamExists,
    UnknownStream,
    UnknownStreamId,
    WireError,
)
from headwater.log import Partition
from headwater.model import PartitionIndex, StreamId, StreamName
from headwater.store import Store, StreamEntry
from headwater.store.store import RESERVED_IDS
from tests.unit.store.acts import (
    GROUP,
    NOW,
    append,
    as_if_killed,
    commit,
    create,
    files_of,
    place_of,
    settings,
    values,
)

# --- streams -------------------------------------------------------------------------------------


def test_a_stream_is_found_by_name_and_id_and_again_after_a_restart(tmp_path: Path) -> None:
    """What was created is listed with its definition, in this run and the next."""
    store = Store.open(settings(tmp_path))
    entry = create(store, flush_messages="1")
    assert (entry.name, entry.partitions, entry.config, entry.created_ms) == ("orders", 2, {"flush.messages": "1"}, NOW)
    assert (store.stream("orders"), store.stream_by_id(entry.id), store.streams()) == (entry, entry, [entry])
    store.close()
    store = Store.open(settings(tmp_path))
    assert store.streams() == [entry]
    store.close()


def test_ids_are_random_and_never_reserved(store: Store) -> None:
    """Each stream gets 16 bytes of its own, that read as text do not begin like an option."""
    ids = [create(store, f"s{number}").id for number in range(50)]
    assert len(set(ids)) == 50
    assert not RESERVED_IDS & set(ids)
    assert all(len(one) == 16 and one[0] >> 2 != 62 for one in ids)


def test_what_cannot_be_created_is_refused_and_leaves_nothing(store: Store) -> None:
    """Names, partition counts and configs are checked, an existing or colliding name is refused."""
    entry = create(store, "a.b")
    for name, partitions, config, error in (
        ("bad name", 1, {}, InvalidStreamName),
        ("x", 0, {}, InvalidPartitions),
        ("x", -1, {}, InvalidPartitions),
        ("x", PARTITIONS_MAX + 1, {}, InvalidPartitions),
        ("x", 1, {"retention.ms": "1"}, InvalidConfig),
        ("a.b", 1, {}, StreamExists),
        ("a_b", 1, {}, InvalidStreamName),
    ):
        with pytest.raises(error):
            store.create(name, partitions, config, NOW).result(5)
        with pytest.raises(error):
            store.check_new(name, partitions, config)
    assert store.streams() == [entry]


def test_of_two_creates_at_once_one_wins(store: Store) -> None:
    """Two that were asked for before either was durable do not both succeed."""
    answers = [store.create("orders", 1, {}, NOW) for _ in range(2)]
    errors = [one.exception(5) for one in answers]
    assert sorted(type(one).__name__ for one in errors) == ["NoneType", "StreamExists"]
    assert len(store.streams()) == 1


def test_of_two_creates_at_once_with_colliding_names_one_wins(store: Store) -> None:
    """Names that Kafka cannot tell apart collide also before either stream is durable."""
    answers = [store.create(name, 1, {}, NOW) for name in ("a.b", "a_b")]
    assert [type(one.exception(5)).__name__ for one in answers] == ["NoneType", "InvalidStreamName"]
    assert [one.name for one in store.streams()] == ["a.b"]
    store.delete(StreamName("a.b")).result(5)
    create(store, "a_b")


def test_the_version_moves_when_streams_do(store: Store) -> None:
    """Who keeps something derived from the streams sees that it is stale."""
    before = store.version
    create(store)
    after = store.version
    store.delete(StreamName("orders")).result(5)
    assert before < after < store.version


# --- partitions ----------------------------------------------------------------------------------


def test_a_partition_has_no_files_until_its_first_record(store: Store) -> None:
    """Opening and reading the ends makes nothing; the first append does."""
    entry = create(store)
    partition = store.partition(place_of(entry))
    assert (partition.start, partition.end, files_of(store, entry)) == (0, 0, [])
    append(partition, b"one")
    assert files_of(store, entry) != []


def test_records_are_there_again_after_a_kill_and_after_a_clean_stop(store: Store, tmp_path: Path) -> None:
    """What was acked is read back by the next run, of either kind; only the kill moves the epoch."""
    entry = create(store)
    append(store.partition(place_of(entry)), b"one", b"two")
    again = as_if_killed(store, tmp_path / "killed")
    for _ in range(2):
        assert again.epoch == 1
        partition = again.partition(place_of(entry))
        assert values(partition) == [b"one", b"two"]
        partition.check()
        again.close()
        again = Store.open(settings(tmp_path / "killed"))
    again.close()


def test_a_partition_is_opened_once_for_all_who_ask(store: Store) -> None:
    """Threads that ask at once get the same partition, and then it is known without opening."""
    place = place_of(create(store))
    assert store.opened(place) is None
    found: list[Partition] = []
    threads = [threading.Thread(target=lambda: found.append(store.partition(place))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert {id(one) for one in found} == {id(store.opened(place))}


def test_a_partition_that_is_not_there_is_named(store: Store) -> None:
    """An index beyond the stream's partitions and an id that no stream has are different errors."""
    entry = create(store)
    for index in (-1, 2):
        with pytest.raises(UnknownStream, match=f"no partition {index}: it has 2"):
            store.partition(place_of(entry, index))
    with pytest.raises(UnknownStreamId):
        store.partition((StreamId(bytes(16)), PartitionIndex(0)))


# --- deleting ------------------------------------------------------------------------------------


def test_a_deleted_stream_leaves_nothing(store: Store) -> None:
    """Once a delete is answered its files and cursors are gone, its name is free, and its id is unknown."""
    entry = create(store)
    partition = store.partition(place_of(entry))
    append(partition, b"one")
    commit(store, entry, 1)
    assert store.delete(entry.id).result(5) == entry
    assert (store.streams(), files_of(store, entry), store.cursors(GROUP)) == ([], [], {})
    assert not list((Path(store.settings.data) / "streams").glob("*/*"))
    assert store.opened(place_of(entry)) is None
    with pytest.raises(UnknownStreamId):
        store.partition(place_of(entry))
    with pytest.raises(UnknownStream, match="create it first"):
        store.delete(StreamName("orders"))


def test_a_recreated_stream_starts_fresh(store: Store) -> None:
    """Neither records nor cursors of the old stream reach the one that has its name now."""
    old = create(store)
    append(store.partition(place_of(old)), b"old")
    commit(store, old, 1)
    store.delete(StreamName("orders")).result(5)
    new = create(store)
    commit(store, old, 1)
    partition = store.partition(place_of(new))
    assert new.id != old.id
    assert (partition.start, partition.end, store.cursors(GROUP)) == (0, 0, {})


def test_the_partition_of_a_deleted_stream_takes_nothing_more(store: Store) -> None:
    """Whoever still holds the partition gets an error for an append, and its listeners are told."""
    partition = store.partition(place_of(create(store)))
    append(partition, b"one")
    told = threading.Event()
    partition.add_listener(told.set)
    store.delete(StreamName("orders")).result(5)
    assert told.is_set()
    with pytest.raises(WireError):
        append(partition, b"late")


def test_deleting_beside_opening_leaves_nothing(store: Store) -> None:
    """A partition that is being opened while its stream is deleted is not left behind."""
    for number in range(20):
        entry = create(store, f"s{number}")
        thread = threading.Thread(target=lambda entry=entry: _ignore_gone(store, entry))
        thread.start()
        store.delete(entry.id).result(5)
        thread.join()
        assert store.opened(place_of(entry)) is None
    assert not list((Path(store.settings.data) / "streams").glob("*/*"))


def _ignore_gone(store: Store, entry: StreamEntry) -> None:
    with suppress(WireError):
        append(store.partition(place_of(entry)), b"one")


def test_two_deletes_at_once_are_both_answered(store: Store) -> None:
    """Deleting what is being deleted is no error, and waits for the same end."""
    entry = create(store)
    append(store.partition(place_of(entry)), b"one")
    answers = [store.delete(entry.id) for _ in range(2)]
    assert [one.result(5) for one in answers] == [entry, entry]
    assert files_of(store, entry) == []


def test_a_deleted_group_is_gone_with_its_cursors_and_its_kind(store: Store) -> None:
    """A group is listed with its kind from its first commit until it is deleted."""
    entry = create(store)
    commit(store, entry, 1)
    assert store.groups() == [(GROUP, "ordered")]
    assert store.delete_group(GROUP).result(5)
    assert (store.groups(), store.cursors(GROUP)) == ([], {})
    store.ensure_group(GROUP, "queue", NOW).result(5)
    assert store.groups() == [(GROUP, "queue")]
