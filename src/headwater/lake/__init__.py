"""Tables: what a typed stream becomes when it lands, and how that happens exactly once.

Landing a stream takes four steps, each a function here, so that any engine can carry them out:

1. `ensure_targets(catalog, stream)` on the driver, once: the table and its `<stream>_dead_letters`, made or adopted.
   A `Target` is all that a task needs to write files for one table; it is small and pickles.
2. `landed(catalog, target, stream_id)` on the driver: how far this table has landed each partition, its *token*. Each
   table has its own; after a kill they may be one commit apart. Landing starts at the smallest, and each table's files
   are *trimmed* to what that table lacks.
3. `write_range(targets, judge, place, records, trim, attempt)` in a task: validates, writes Parquet, flushes it, and
   returns one `Written` per file. `Written` travels as JSON (`to_json`, `from_json`).
4. `commit(catalog, target, written, advances)` on the driver: files and token in one Iceberg snapshot, or neither.

    targets = ensure_targets(catalog, orders)
    seen = {t.table: landed(catalog, t, stream_id).get(0) for t in targets}
    trim = {table: token.end if token else 0 for table, token in seen.items()}
    written = write_range(targets, Judge(Order), place, records, trim, attempt=uuid4().hex)
    for t in targets:
        to = Landed(end=end, epoch=epoch of the last record before `end`, or -1)
        commit(catalog, t, written, {place: Advance(seen=seen[t.table], to=to)})      # takes its own files of `written`

`commit` moves a token only from the very value that the driver saw: another driver that was faster makes it raise
`AlreadyLanded`, and nothing is written twice. `move(...)` sets a token without files: back, where the log lost its tail
(the probe said so), or forward, where the log lost its beginning. Tokens that contradict the table's own history
(somebody rolled the table back) raise `LandingRefused`, which says how to choose.
"""

from headwater.errors import NotInstalled

try:
    from headwater.lake.catalog import open_catalog
    from headwater.lake.commit import Committed, commit, move, settle
    from headwater.lake.files import Written, write_range
    from headwater.lake.judge import Judge, Polled
    from headwater.lake.sql import Answer, sql
    from headwater.lake.tables import Target, ensure_targets
    from headwater.lake.token import Advance, Landed, Place, landed
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] not in {"pyarrow", "pyiceberg", "sqlalchemy"}:
        raise
    raise NotInstalled(f"tables need {missing.name}, which comes with: pip install 'headwater[spark]'") from missing

__all__ = [
    "Advance",
    "Answer",
    "Committed",
    "Judge",
    "Landed",
    "Place",
    "Polled",
    "Target",
    "Written",
    "commit",
    "ensure_targets",
    "landed",
    "move",
    "open_catalog",
    "settle",
    "sql",
    "write_range",
]
