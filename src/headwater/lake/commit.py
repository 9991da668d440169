"""The commit: files and token in one Iceberg snapshot, or neither.

Compare and swap. Load the table, hold its tokens against what the driver saw, and commit once, on the condition that
the table's head has not moved; if it has, begin again at the tokens. pyiceberg's own retry would put the same files on
top of whatever came between (two drivers, both landed: every record doubled), so it is switched off in the table.

Each advance makes a snapshot, one without files too: the head is what the condition looks at, and the token stands in
the snapshot's summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from headwater import config
from headwater.errors import AlreadyLanded, InvalidOption, LandingRefused
from headwater.lake.catalog import is_busy, load_table
from headwater.lake.files import Written
from headwater.lake.sweep import sweep
from headwater.lake.tables import Target
from headwater.lake.token import Advance, Landed, Place, tokens_in, tokens_of, tokens_of_history


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What a commit did."""

    table: str
    snapshot_id: int
    records_count: int
    files_count: int


def commit(catalog: Any, target: Target, written: Iterable[Written], advances: Mapping[Place, Advance]) -> Committed:
    """Puts the files of `written` that are this table's into it, and moves its tokens, both or neither.

    Raises AlreadyLanded, with nothing changed, if any token is not what `advances` say was seen. Commits that others
    make to the table meanwhile are no conflict as long as the tokens stand.
    """
    for place, advance in advances.items():
        if advance.seen and advance.to.end <= advance.seen.end:
            raise LandingRefused(
                f"{place}: landing moves a token forward, and this is {advance.seen} to {advance.to}: "
                "this is a defect: report it"
            )
    mine = [one for one in written if one.table == target.table]
    for one in mine:
        step = advances.get(one.place)
        start = step.seen.end if step and step.seen else 0
        if step is None or not start <= one.first_offset <= one.last_offset < step.to.end:
            raise LandingRefused(
                f"{one.path} holds {one.place} {one.first_offset} to {one.last_offset}, and the token would move "
                f"{step}: this is a defect: report it"
            )
    return _swap(catalog, target, mine, advances)


def move(catalog: Any, target: Target, moves: Mapping[Place, Advance]) -> Committed:
    """Sets tokens without files: back to where a log was cut, or forward over a beginning that is gone.

    For tokens that the log contradicts; the records in the table stay, told apart by `_epoch`.
    """
    return _swap(catalog, target, [], moves)


def settle(catalog: Any, table: str, *, keep: Literal["history", "properties"]) -> dict[str, str]:
    """Ends a contradiction between a table's properties and its history; returns the tokens that hold now.

    `history`: the current snapshot is right, and what it lacks is landed again. `properties`: what was taken away
    stays away.
    """
    if keep not in {"history", "properties"}:
        raise InvalidOption(f'settle(keep={keep!r}): choose "history" or "properties"')
    loaded = load_table(catalog, table)
    history = tokens_of_history(loaded)
    said = tokens_in(loaded.properties)
    tokens = said if keep == "properties" or history is None else history
    gone = [name for name in said if name not in tokens]
    _attempt(loaded, [], tokens, gone)
    return tokens


def _swap(catalog: Any, target: Target, written: list[Written], advances: Mapping[Place, Advance]) -> Committed:
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    tried: set[int] = set()
    for _ in range(config.COMMIT_TRIES_MAX):
        table = load_table(catalog, target.table)
        _same_table(table, target)
        done = next((one.snapshot_id for one in table.snapshots() if one.snapshot_id in tried), None)
        if done is None:
            tokens = tokens_of(table)
            _seen(tokens, advances, target)
            tokens |= {place.property_name: str(advance.to) for place, advance in advances.items()}
            try:
                done = _attempt(table, written, tokens, [], tried.add)
            except (CommitFailedException, CommitStateUnknownException):
                continue  # somebody was faster, or nobody knows: the table says which, at the next load
        return Committed(
            table=target.table,
            snapshot_id=done,
            records_count=sum(one.records_count for one in written),
            files_count=len(written),
        )
    raise LandingRefused(
        f"table {target.table}: other writers were faster {config.COMMIT_TRIES_MAX} times in a row: "
        "let them commit less often, then start again; nothing is lost"
    )


def _same_table(table: Any, target: Target) -> None:
    if str(table.metadata.table_uuid) != target.uuid or table.spec().spec_id != target.spec_id:
        raise LandingRefused(
            f"table {target.table} was made anew, or partitioned otherwise, while records were landing in it: start again"
        )


def _seen(tokens: Mapping[str, str], advances: Mapping[Place, Advance], target: Target) -> None:
    for place, advance in advances.items():
        said = tokens.get(place.property_name)
        now = Landed.parse(said) if said is not None else None
        if now != advance.seen:
            raise AlreadyLanded(
                f"table {target.table}, stream {place.stream}, partition {place.partition}: this driver began at "
                f"{advance.seen or 'nothing'}, and the table is at {now or 'nothing'}: another one lands the same "
                "stream: leave it to that one, or stop it and start again"
            )


def _attempt(
    table: Any,
    written: list[Written],
    tokens: Mapping[str, str],
    gone: list[str],
    about_to: Callable[[int], None] = lambda _: None,
) -> int:
    """One try; returns the snapshot it made. SQLite that is busy raises CommitFailedException like any conflict."""
    from pyiceberg.exceptions import CommitFailedException

    change = table.transaction()
    if gone:
        change.remove_properties(*gone)
    change.set_properties(dict(tokens))
    append = change.update_snapshot(snapshot_properties=dict(tokens)).merge_append()
    for one in written:
        append.append_data_file(_data_file(table, one))
    about_to(append.snapshot_id)
    append.commit()
    expired = _expire(table, change)
    try:
        changed = change.commit_transaction()
    except Exception as error:
        if is_busy(error):
            raise CommitFailedException(str(error)) from error
        raise
    if expired:
        with suppress(OSError):  # what is done is done; the next sweep takes what this one could not
            sweep(changed)
    return int(append.snapshot_id)


def _expire(table: Any, change: Any) -> bool:
    """Lets old snapshots go in the commit that would be one too many: metadata is read and written by each commit."""
    from pyiceberg.table.update.snapshot import ExpireSnapshots

    snapshots = sorted(table.snapshots(), key=lambda one: one.sequence_number or 0)
    if len(snapshots) < config.SNAPSHOTS_MAX:
        return False
    kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [one.snapshot_id for one in snapshots[: -config.SNAPSHOTS_KEPT] if one.snapshot_id not in kept]
    ExpireSnapshots(change).by_ids(old).commit()
    return True


def _data_file(table: Any, written: Written) -> Any:
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=written.path,
        file_format=FileFormat.PARQUET,
        partition=Record() if written.day is None else Record(written.day),
        record_count=written.records_count,
        file_size_in_bytes=written.size_bytes,
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **written.statistics,
    )
