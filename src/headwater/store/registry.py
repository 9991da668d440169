"""Every living stream, in memory: by name and by id. Asked on each request, so it never touches the disk.

Changed only in meta's writing thread, right after a change is durable and before anybody is told of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors import UnknownStream, UnknownStreamId
from headwater.meta import StreamEntry
from headwater.model import StreamId, StreamName


class Registry:
    """Streams that are there: not those whose files are still being freed."""

    def __init__(self, entries: Iterable[StreamEntry]) -> None:
        self._by_name: dict[str, StreamEntry] = {}
        self._by_id: dict[bytes, StreamEntry] = {}
        self._by_folded: dict[str, StreamEntry] = {}
        self.version = 0  # moves with every change: who has derived something from the streams sees that it is stale
        for entry in entries:
            self.add(entry)

    def add(self, entry: StreamEntry) -> None:
        self._by_id[entry.id] = entry
        self._by_name[entry.name] = entry
        self._by_folded[folded(entry.name)] = entry
        self.version += 1

    def remove(self, entry: StreamEntry) -> None:
        self._by_id.pop(entry.id, None)
        if (named := self._by_name.get(entry.name)) is not None and named.id == entry.id:
            del self._by_name[entry.name]
            del self._by_folded[folded(entry.name)]
        self.version += 1

    def named(self, name: str) -> StreamEntry | None:
        return self._by_name.get(name)

    def like_named(self, name: str) -> StreamEntry | None:
        """The stream that stands in the way of one called `name`: the same, or one that Kafka cannot tell from it."""
        return self._by_folded.get(folded(name))

    def with_id(self, stream_id: bytes) -> StreamEntry | None:
        return self._by_id.get(stream_id)

    def all(self) -> list[StreamEntry]:
        return list(self._by_name.values())

    def known(self, name_or_id: StreamName | StreamId) -> StreamEntry:
        """That stream, or the error that fits how it was named."""
        if isinstance(name_or_id, str):
            entry = self.named(name_or_id)
            if entry is None:
                raise UnknownStream(f"there is no stream {name_or_id!r}: create it first")
        else:
            entry = self.with_id(name_or_id)
            if entry is None:
                raise UnknownStreamId(
                    f"there is no stream with the id {name_or_id.hex()}: it was deleted, or never was"
                )
        return entry


def folded(name: str) -> str:
    return name.replace(".", "_")
