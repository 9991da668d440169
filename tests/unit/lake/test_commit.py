from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException

from headwater import config
from headwater.errors import AlreadyLanded, LandingRefused
from headwater.lake import Advance, Landed, commit, landed, move, settle, write_range
from headwater.lake.durable import flush_path
from headwater.lake.sweep import sweep
from tests.unit.lake.models import STREAM_ID, Lake, place, records, small


def offsets(lake, target=None):
    return [line["_offset"] for line in lake.lines(target or lake.table)]


def at(end, epoch=0):
    return Landed(end=end, epoch=epoch)


def test_files_and_token_move_together(lake):
    """One snapshot brings the files and the token, in the properties and in its own summary."""
    assert landed(lake.catalog, lake.table, STREAM_ID) == {}
    lake.land(records(0, 10, epoch=2))
    assert landed(lake.catalog, lake.table, STREAM_ID) == {0: at(10, 2)}
    table = lake.catalog.load_table("headwater.orders")
    name = f"headwater.landed.{STREAM_ID}.0"
    assert table.properties[name] == table.current_snapshot().summary[name] == "10:2"
    assert len(table.snapshots()) == 1


def test_tokens_are_per_stream_id_and_partition(lake):
    """Partitions, and streams that bear the same name one after the other, have tokens of their own."""
    other = "f" * 32
    lake.land(records(0, 5), place(0))
    lake.land(records(0, 7), place(3))
    lake.land(records(0, 9), place(0, stream_id=other))
    assert landed(lake.catalog, lake.table, STREAM_ID) == {0: at(5), 3: at(7)}
    assert landed(lake.catalog, lake.table, other) == {0: at(9)}
    assert len(offsets(lake)) == 21


def test_a_range_is_trimmed_per_table(lake):
    """After a kill between the two commits, the range lands again in the table that lacks it, and only there."""
    batch = records(0, 10, bad=[3, 8])
    written = lake.write(batch)
    commit(lake.catalog, lake.table, written, {place(): Advance(seen=None, to=at(10))})
    again = lake.land(records(0, 12, bad=[3, 8]))
    assert {one.table: one.first_offset for one in again} == {
        "headwater.orders": 10,
        "headwater.orders_dead_letters": 3,
    }
    assert offsets(lake) == [one for one in range(12) if one not in {3, 8}]
    assert offsets(lake, lake.dead) == [3, 8]


def test_a_token_moves_without_files(lake):
    """A table that gets none of a range's records knows that it has landed the range all the same."""
    lake.land(records(0, 10))
    assert lake.token(lake.dead) == at(10)
    assert lake.lines(lake.dead) == []
    lake.land(records(10, 12, bad=[10, 11]))
    assert lake.token(lake.table) == at(12)
    assert offsets(lake) == list(range(10))


def test_what_landed_does_not_land_twice(lake):
    """A commit whose token was not what the driver saw changes nothing."""
    lake.land(records(0, 10))
    written = lake.write(records(10, 12))
    for seen in (None, at(4), at(10, 1)):
        with pytest.raises(AlreadyLanded, match="another one lands the same stream"):
            commit(lake.catalog, lake.table, written, {place(): Advance(seen=seen, to=at(12))})
    assert offsets(lake) == list(range(10))


def test_files_must_lie_in_the_advance(lake):
    """Files outside of what the token moves over are refused: they would land beside their token."""
    written = lake.write(records(0, 10))
    for advances in ({}, {place(1): Advance(seen=None, to=at(10))}, {place(): Advance(seen=None, to=at(9))}):
        with pytest.raises(LandingRefused, match="defect"):
            commit(lake.catalog, lake.table, written, advances)


def test_landing_never_takes_a_token_back(lake):
    """Only `move` goes back: an advance that would is a defect, and changes nothing."""
    lake.land(records(0, 10))
    for end in (10, 4):
        with pytest.raises(LandingRefused, match="moves a token forward"):
            commit(lake.catalog, lake.table, [], {place(): Advance(seen=at(10), to=at(end))})
    assert lake.token(lake.table) == at(10)


def test_a_lost_tail_lands_again(lake):
    """Where the log was cut behind the token, `move` takes it back, and the new records with old offsets land."""
    lake.land(records(0, 10))
    for target in (lake.table, lake.dead):
        move(lake.catalog, target, {place(): Advance(seen=at(10), to=at(6))})
    lake.land(records(6, 9, epoch=1))
    assert lake.token(lake.table) == at(9, 1)
    found = [(one["_offset"], one["_epoch"]) for one in lake.lines(lake.table)]
    assert found == [*((one, 0) for one in range(10)), *((one, 1) for one in (6, 7, 8))]


def test_a_rollback_is_noticed(lake):
    """A table that was rolled back takes no records until somebody chooses; both choices work."""
    lake.land(records(0, 10))
    lake.land(records(10, 20))
    table = lake.catalog.load_table("headwater.orders")
    first = min(table.snapshots(), key=lambda one: one.sequence_number)
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    with pytest.raises(LandingRefused, match=r"rolled back[\s\S]*properties say 20:0, the current snapshot says 10:0"):
        landed(lake.catalog, lake.table, STREAM_ID)
    written = lake.write(records(20, 21))
    with pytest.raises(LandingRefused, match="settle"):
        commit(lake.catalog, lake.table, written, {place(): Advance(seen=at(20), to=at(21))})
    settle(lake.catalog, "headwater.orders", keep="history")
    assert lake.token(lake.table) == at(10)
    lake.land(records(10, 20))
    assert offsets(lake) == list(range(20))

    table = lake.catalog.load_table("headwater.orders")
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    settle(lake.catalog, "headwater.orders", keep="properties")
    lake.land(records(20, 22))
    assert offsets(lake) == [*range(10), 20, 21]


def test_changes_of_others_are_no_contradiction(lake):
    """A delete by somebody else has no token of ours, and landing goes on after it."""
    lake.land(records(0, 10))
    lake.land(records(0, 4), place(1))
    lake.catalog.load_table("headwater.orders").delete("_partition = 1")
    lake.land(records(10, 12))
    lake.land(records(4, 6), place(1))
    assert offsets(lake) == [*range(12), 4, 5]


def test_an_expired_history_is_no_contradiction(lake):
    """Where others changed the table and then let all our snapshots go, the properties are believed."""
    lake.land(records(0, 10))
    lake.land(records(0, 4), place(1))
    table = lake.catalog.load_table("headwater.orders")
    table.delete("_partition = 1")
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    assert len(table.refresh().snapshots()) == 1
    lake.land(records(10, 12))
    assert offsets(lake) == list(range(12))


def test_a_rollback_behind_the_first_landing_is_noticed(lake):
    """Going back to before our first snapshot takes everything away, and is a contradiction like any other."""
    table = lake.catalog.load_table("headwater.orders")
    table.append(table.scan().to_arrow())
    first = table.current_snapshot().snapshot_id
    lake.land(records(0, 10))
    lake.catalog.load_table("headwater.orders").manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(LandingRefused, match="properties say 10:0, the current snapshot says nothing"):
        lake.token(lake.table)


def test_a_conflict_starts_over_at_the_token(lake, monkeypatch):
    """Somebody's commit in between is no reason to fail, nor to land twice: the token is looked at again."""
    module = import_module("headwater.lake.commit")  # the package's attribute of that name is the function
    tries = []
    original = module._attempt

    def overtaken(table, *rest):
        tries.append(table)
        if len(tries) == 1:
            lake.catalog.load_table("headwater.orders").delete("_partition = 1")
        return original(table, *rest)

    lake.land(records(0, 1), place(1))
    lake.land(records(0, 5))
    monkeypatch.setattr(module, "_attempt", overtaken)
    written = lake.write(records(5, 10))
    commit(lake.catalog, lake.table, written, {place(): Advance(seen=at(5), to=at(10))})
    assert len(tries) == 2
    assert offsets(lake) == list(range(10))


def test_an_unknown_outcome_is_looked_up(lake, monkeypatch):
    """A commit that happened and was reported as failed is found in the table, and counts once."""
    module = import_module("headwater.lake.commit")  # the package's attribute of that name is the function
    original = module._attempt

    def reported_as_failed(*rest):
        original(*rest)
        monkeypatch.setattr(module, "_attempt", original)
        raise CommitFailedException("the answer was lost")

    monkeypatch.setattr(module, "_attempt", reported_as_failed)
    written = lake.write(records(0, 10))
    done = commit(lake.catalog, lake.table, written, {place(): Advance(seen=None, to=at(10))})
    assert done.records_count == 10
    assert offsets(lake) == list(range(10))


def test_history_stays_short(lake, monkeypatch):
    """Snapshots and metadata files do not grow with the number of commits, and the token survives their expiry."""
    monkeypatch.setattr(config, "SNAPSHOTS_MAX", 12)
    monkeypatch.setattr(config, "SNAPSHOTS_KEPT", 4)
    for start in range(30):
        lake.land(records(start, start + 1))
    table = lake.catalog.load_table("headwater.orders")
    assert len(table.snapshots()) <= 12
    assert len(table.current_snapshot().manifests(table.io)) <= 20
    folder = Path(table.metadata_location.removeprefix("file://")).parent
    assert len(list(folder.glob("*.metadata.json"))) <= 30
    assert offsets(lake) == list(range(30))


def test_manifests_that_nobody_names_are_taken_away(lake, monkeypatch):
    """Expired snapshots leave no manifests behind, once nobody can be reading them; the table reads as before."""
    monkeypatch.setattr(config, "SNAPSHOTS_MAX", 6)
    monkeypatch.setattr(config, "SNAPSHOTS_KEPT", 2)
    for start in range(20):
        lake.land(records(start, start + 1))
    table = lake.catalog.load_table("headwater.orders")
    manifests = lake.directory / "lake" / "warehouse" / "headwater" / "orders" / "metadata"
    assert len(list(manifests.glob("*.avro"))) > 35  # all of them: they are young
    later = datetime.now(UTC) + timedelta(seconds=config.METADATA_KEPT_SECONDS + 60)
    assert len(sweep(table, later)) > 10
    named = {manifest.manifest_path for one in table.snapshots() for manifest in one.manifests(table.io)}
    assert len(list(manifests.glob("*.avro"))) == len(table.snapshots()) + len(named)
    assert sweep(table, later) == []
    assert offsets(lake) == list(range(20))


def test_a_table_made_anew_is_refused(lake):
    """Files that were written for a table that is gone do not land in its namesake."""
    written = lake.write(records(0, 3))
    lake.catalog.drop_table("headwater.orders")
    Lake(lake.directory, small())
    with pytest.raises(LandingRefused, match="made anew"):
        commit(lake.catalog, lake.table, written, {place(): Advance(seen=None, to=at(3))})


def test_everything_a_commit_names_is_flushed_first(lake, monkeypatch):
    """Data files, manifests and metadata, and the directories that lead to them, are on the disk before the commit."""
    from headwater.lake import durable

    flushed = set()

    def remember(path):
        flush_path(path)
        flushed.add(path)

    monkeypatch.setattr(durable, "flush_path", remember)
    lake.land(records(0, 10, bad=[1]))
    warehouse = lake.directory / "lake" / "warehouse"
    files = [one for one in warehouse.rglob("*") if one.is_file() and "00000-" not in one.name]
    assert len(files) == 8  # for each table: data, manifest, manifest list, metadata
    assert set(files) <= flushed
    assert {one.parent for one in files} <= flushed


@pytest.mark.parametrize("stage", ["writing", "abandoned"])
def test_a_failed_attempt_lands_nothing(lake, stage):
    """An attempt that fails leaves its own directory at most; no table names what is in it."""

    def breaks():
        yield records(0, 10, bad=[2])
        raise ConnectionError("the log is gone")

    if stage == "writing":
        with pytest.raises(ConnectionError):
            write_range((lake.table, lake.dead), lake.judge, place(), breaks(), {}, "attempt-1")
    else:
        write_range((lake.table, lake.dead), lake.judge, place(), [records(0, 10)], {}, "attempt-1")
    lake.land(records(0, 10, bad=[2]))
    assert offsets(lake) == [one for one in range(10) if one != 2]
    left = {one.parent.name for one in lake.directory.rglob("*.parquet")}
    assert ("attempt-1" in left) == (stage == "abandoned")


def test_of_two_drivers_one_lands(lake):
    """Two processes that land the same range at the same moment: one does, the other is told, nothing is doubled."""
    command = [sys.executable, "-m", "tests.unit.lake.racer", str(lake.directory)]
    root = Path(__file__).resolve().parents[3]
    racers = [
        subprocess.Popen(
            command, cwd=root, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ}
        )
        for _ in range(2)
    ]
    try:
        for racer in racers:
            assert heard(racer) == "ready"
        for start in range(0, 100, 10):
            for racer in racers:
                tell(racer, str(start))
            assert [heard(racer) for racer in racers] == ["written"] * 2
            for racer in racers:
                tell(racer, "go")
            assert sorted(heard(racer) for racer in racers) == ["landed", "late"]
    finally:
        for racer in racers:
            racer.communicate(timeout=10)
    assert offsets(lake) == list(range(100))


def tell(racer, line):
    assert racer.stdin
    racer.stdin.write(line + "\n")
    racer.stdin.flush()


def heard(racer):
    assert racer.stdout
    return racer.stdout.readline().strip()
