"""What tests of the store do and look at, in few words."""

from __future__ import annotations

import shutil
from pathlib import Path

from headwater.batch import BatchRecord, decode, encode, parse
from headwater.config import Settings
from headwater.errors import WireError
from headwater.log import Partition
from headwater.model import Cursor, GroupName, Offset, PartitionIndex
from headwater.store import Place, Store, StreamEntry

GROUP = GroupName("readers")
NOW = 1_700_000_000_000


def settings(path: Path) -> Settings:
    return Settings(data=str(path))


def create(store: Store, name: str = "orders", partitions: int = 2, **config: str) -> StreamEntry:
    given = {key.replace("_", "."): value for key, value in config.items()}
    return store.create(name, partitions, given, NOW).result(5)


def place_of(entry: StreamEntry, index: int = 0) -> Place:
    return entry.id, PartitionIndex(index)


def append(partition: Partition, *values: bytes) -> None:
    records = [
        BatchRecord(offset=number, timestamp_ms=NOW, key=None, value=value, headers=())
        for number, value in enumerate(values)
    ]
    (answer,) = partition.append([parse(memoryview(bytearray(encode(records))))])
    if isinstance(answer, WireError):
        raise answer


def values(partition: Partition) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = partition.start
    while offset < partition.end:
        for piece in partition.read(offset, 1 << 20, upto=partition.end):
            view, at = memoryview(piece.bytes()), 0
            while at < len(view):
                batch = parse(view, at)
                found += [record.value for record in decode(batch)]
                at += batch.length
                offset = Offset(batch.next_offset)
    return found


def commit(store: Store, entry: StreamEntry, offset: int, index: int = 0) -> None:
    cursor = Cursor(offset=Offset(offset), committed_ms=NOW)
    store.commit_cursors(GROUP, {place_of(entry, index): cursor}).result(5)


def offsets(store: Store) -> dict[int, int]:
    return {place[1]: cursor.offset for place, cursor in store.cursors(GROUP).items()}


def as_if_killed(store: Store, to: Path) -> Store:
    """A store over what kill -9 at this moment would leave on disk; `store` itself goes on."""
    shutil.copytree(store.settings.data, to)
    return Store.open(settings(to))


def files_of(store: Store, entry: StreamEntry) -> list[str]:
    return [path.name for path in (Path(store.settings.data) / "streams").glob(f"*/{entry.id.hex()}/*")]
