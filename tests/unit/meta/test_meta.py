"""What meta.db promises to store: durable answers, names used again, cursors held against the log's end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from headwater.errors import GroupKindMismatch, InvalidStreamName, StorageFailed, StreamExists
from headwater.meta import Meta, StreamEntry
from headwater.model import Cursor, Epoch, GroupName, Offset, PartitionIndex, StreamId, StreamName

GROUP = GroupName("readers")


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[Meta]:
    opened = Meta.open(tmp_path)
    yield opened
    opened.close()


def an_entry(name: str = "orders", number: int = 1, config: Mapping[str, str] = MappingProxyType({})) -> StreamEntry:
    return StreamEntry(
        id=StreamId(number.to_bytes(16, "big")),
        name=StreamName(name),
        partitions=4,
        config=dict(config),
        created_ms=1_000,
        updated_ms=2_000,
    )


def create(meta: Meta, row: StreamEntry) -> StreamEntry:
    return meta.create_stream(row, then=lambda _: None).result(5)


def commit(meta: Meta, row: StreamEntry, offset: int, *, epoch: int = 0, group: GroupName = GROUP) -> None:
    cursor = Cursor(offset=Offset(offset), epoch=Epoch(3), metadata="here", committed_ms=7)
    meta.commit_cursors(group, {(row.id, PartitionIndex(0)): cursor}, lambda _: Epoch(epoch)).result(5)


def offsets(meta: Meta, group: GroupName = GROUP) -> list[int]:
    return [cursor.offset for cursor in meta.cursors(group).values()]


def test_a_stream_is_there_again_as_it_was_created(tmp_path: Path) -> None:
    """A stream's id, partitions, configs and times survive closing and opening."""
    meta = Meta.open(tmp_path)
    row = create(meta, an_entry(config={"flush.messages": "1"}))
    meta.close()
    meta = Meta.open(tmp_path)
    assert meta.streams() == [row]
    meta.close()


def test_what_is_done_before_the_answer_is_seen_after_it(meta: Meta) -> None:
    """`then` has run when the future is answered, and sees what was made durable."""
    seen: list[StreamEntry] = []
    row = meta.create_stream(an_entry(), then=seen.append).result(5)
    assert seen == [row]


def test_a_name_is_taken_once(meta: Meta) -> None:
    """A second stream of the same name is refused, and the first one stays."""
    row = create(meta, an_entry())
    with pytest.raises(StreamExists, match="'orders' exists already"):
        create(meta, an_entry(number=2))
    assert meta.streams() == [row]


def test_names_that_kafka_cannot_tell_apart_are_refused(meta: Meta) -> None:
    """A name that differs from a living one only in '.' and '_' is invalid, as in Kafka, until that one is gone."""
    old = create(meta, an_entry("a.b"))
    with pytest.raises(InvalidStreamName, match=r"'a_b' collides with the existing stream 'a.b'"):
        create(meta, an_entry("a_b", 2))
    meta.mark_deleting(old.id, then=lambda _: None).result(5)
    create(meta, an_entry("a_b", 2))


def test_a_name_is_free_again_while_the_old_files_are_still_being_freed(meta: Meta) -> None:
    """Once a delete is past its point of no return, the name can be used by a stream with another id."""
    old, new = create(meta, an_entry()), an_entry(number=2)
    meta.mark_deleting(old.id, then=lambda _: None).result(5)
    create(meta, new)
    assert {(row.id, row.deleting) for row in meta.streams()} == {(old.id, True), (new.id, False)}
    meta.forget_stream(old.id).result(5)
    assert meta.streams() == [new]


def test_a_deleted_stream_takes_its_cursors_along(meta: Meta) -> None:
    """A delete removes the stream's cursors, keeps those of others, and lets no late commit back in."""
    old, other = create(meta, an_entry()), create(meta, an_entry("other", 2))
    commit(meta, old, 5)
    commit(meta, other, 6)
    meta.mark_deleting(old.id, then=lambda _: None).result(5)
    assert offsets(meta) == [6]
    commit(meta, old, 5)
    assert offsets(meta) == [6]


def test_cursors_come_back_whole(tmp_path: Path) -> None:
    """Offset, leader epoch, metadata and commit time survive closing and opening; the last commit wins."""
    meta = Meta.open(tmp_path)
    row = create(meta, an_entry())
    commit(meta, row, 5)
    commit(meta, row, 4)
    meta.close()
    meta = Meta.open(tmp_path)
    assert meta.cursors(GROUP) == {
        (row.id, 0): Cursor(offset=Offset(4), epoch=Epoch(3), metadata="here", committed_ms=7)
    }
    assert meta.groups() == [(GROUP, "ordered")]
    meta.close()


def test_a_group_keeps_its_kind(meta: Meta) -> None:
    """A queue's name is refused for cursors, with both kinds in the message, until it is deleted."""
    row = create(meta, an_entry())
    meta.ensure_group(GROUP, "queue", 1).result(5)
    with pytest.raises(GroupKindMismatch, match=r"is a queue .* ordered group"):
        commit(meta, row, 1)
    assert offsets(meta) == []
    assert meta.delete_group(GROUP).result(5)
    commit(meta, row, 1)
    assert offsets(meta) == [1]


def test_deleting_a_group_takes_its_cursors(meta: Meta) -> None:
    """A deleted group has no cursors and is not listed; deleting what is not there says so."""
    row = create(meta, an_entry())
    commit(meta, row, 1)
    assert meta.delete_group(GROUP).result(5)
    assert (meta.cursors(GROUP), meta.groups()) == ({}, [])
    assert not meta.delete_group(GROUP).result(5)


def test_cursors_behind_the_end_of_a_shorter_log_are_set_to_it_once(meta: Meta) -> None:
    """Only cursors of before the crash move, and where they stood is reported."""
    row = create(meta, an_entry())
    place = (row.id, PartitionIndex(0))
    commit(meta, row, 100, epoch=0)
    commit(meta, row, 50, epoch=0, group=GroupName("behind"))
    commit(meta, row, 90, epoch=1, group=GroupName("later"))
    assert meta.doubtful_places(GROUP, Epoch(1)) == [place]
    assert meta.clamp_cursors(place, Offset(60), Epoch(1)).result(5) == [(GROUP, 100)]
    assert (offsets(meta), offsets(meta, GroupName("behind")), offsets(meta, GroupName("later"))) == ([60], [50], [90])
    assert meta.clamp_cursors(place, Offset(10), Epoch(1)).result(5) == [(GroupName("behind"), 50)]
    assert meta.doubtful_places(GROUP, Epoch(1)) == []


def test_the_epoch_moves_only_after_an_unclean_end(tmp_path: Path) -> None:
    """One epoch per data directory: kept over a clean stop, bumped over any other; the cluster id stays."""
    found: list[tuple[int, bool, str]] = []
    for clean in (True, False, False, True, True):
        meta = Meta.open(tmp_path)
        boot = meta.boot(f"headwater-{len(found)}")
        found.append((boot.epoch, boot.clean, boot.cluster_id))
        if clean:
            meta.stopped_cleanly().result(5)
        meta.close()
    ends = [(0, True), (0, True), (1, False), (2, False), (2, True)]
    assert found == [(epoch, clean, "headwater-0") for epoch, clean in ends]


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    """Ids that were granted are gone, also when nobody used them before the end."""
    granted = []
    for _ in range(3):
        meta = Meta.open(tmp_path)
        granted.append(meta.grant_producer_ids(1000).result(5))
        meta.close()
    assert granted == [0, 1000, 2000]


def test_a_closed_meta_answers_instead_of_hanging(tmp_path: Path) -> None:
    """What is asked after closing gets an error at once; what was asked before is finished."""
    meta = Meta.open(tmp_path)
    before = meta.create_stream(an_entry(), then=lambda _: None)
    meta.close()
    assert before.result(0).name == "orders"
    with pytest.raises(StorageFailed, match="stopping"):
        meta.delete_group(GROUP).result(0)
