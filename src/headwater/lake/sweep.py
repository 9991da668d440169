"""Takes away manifests that no snapshot names any more.

Each commit writes two small files of metadata, and the snapshots that name them expire by the dozen. Left alone, a table
that lands once a second would gather a hundred thousand of them in a day. What is younger than
`METADATA_KEPT_SECONDS` stays: it may belong to a commit under way, or to a reader that began on an older snapshot.

Data files are never touched here.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyarrow import fs

from headwater import config


def sweep(table: Any, now: datetime | None = None) -> list[str]:
    """Removes what no snapshot of `table` names and nobody can still be reading; returns the paths.

    Only where the catalog's files are read through pyarrow, which can list them.
    """
    if not hasattr(table.io, "fs_by_scheme"):
        return []
    folder = f"{table.location()}/metadata"
    scheme, netloc, path = table.io.parse_location(folder, table.io.properties)
    store = table.io.fs_by_scheme(scheme, netloc)
    named = _named(table)
    before = (now or datetime.now(UTC)) - timedelta(seconds=config.METADATA_KEPT_SECONDS)
    gone = [
        one.path
        for one in store.get_file_info(fs.FileSelector(path, allow_not_found=True))
        if one.base_name.endswith(".avro") and one.base_name not in named and one.mtime < before
    ]
    for one in gone:
        store.delete_file(one)
    return gone


def _named(table: Any) -> set[str]:
    """The names of all manifest lists and manifests of the snapshots that are left."""
    names = set()
    for snapshot in table.snapshots():
        names.add(snapshot.manifest_list)
        names.update(manifest.manifest_path for manifest in snapshot.manifests(table.io))
    return {name.rsplit("/", 1)[-1] for name in names}
