"""The partitions that are open: each is opened once, when it is first asked for, however many threads ask at once.

Opening may mean recovering, which can take seconds; only those who ask for that partition wait. A stream can be
deleted meanwhile: who is opening one of its partitions then finds it gone, and frees what it has opened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from headwater.errors import StorageFailed, UnknownStream, UnknownStreamId
from headwater.log import Partition
from headwater.meta import Place, StreamEntry
from headwater.model import PartitionIndex
from headwater.store.registry import Registry


class Partitions:
    def __init__(self, registry: Registry, open_one: Callable[[StreamEntry, Place], Partition]) -> None:
        self._registry = registry
        self._open_one = open_one
        self._lock = threading.Lock()
        self._open: dict[Place, Partition] = {}
        self._opening: dict[Place, Future[Partition]] = {}
        self._closed = False

    def opened(self, place: Place) -> Partition | None:
        return self._open.get(place)

    def open(self, place: Place) -> Partition:
        """The partition at `place`, opened now if nobody did yet. Blocks while it is recovered."""
        found = self._open.get(place)
        if found is not None:
            return found
        with self._lock:
            if place in self._open:
                return self._open[place]
            mine = place not in self._opening
            if mine:
                entry = self._entry_of(place)
                self._opening[place] = Future()
            opening = self._opening[place]
        if mine:
            self._answer(entry, place, opening)
        return opening.result()

    def take(self, entry: StreamEntry) -> list[Partition]:
        """The open partitions of a stream that has left the registry; nobody is opening one when this returns."""
        places: list[Place] = [(entry.id, PartitionIndex(index)) for index in range(entry.partitions)]
        with self._lock:
            taken = [self._open.pop(place) for place in places if place in self._open]
            opening = [self._opening[place] for place in places if place in self._opening]
        for future in opening:
            future.exception()  # whoever opens it sees that the stream is gone, and frees it
        return taken

    def take_all(self) -> list[tuple[Place, Partition]]:
        """Every open partition; none can be opened any more."""
        with self._lock:
            self._closed = True
            opening = list(self._opening.values())
        for future in opening:
            future.exception()
        with self._lock:
            taken = list(self._open.items())
            self._open.clear()
        return taken

    def _entry_of(self, place: Place) -> StreamEntry:
        stream_id, index = place
        if self._closed:
            raise StorageFailed("the broker is stopping: ask again when it is back")
        entry = self._registry.known(stream_id)
        if not 0 <= index < entry.partitions:
            raise UnknownStream(f"the stream {entry.name!r} has no partition {index}: it has {entry.partitions}")
        return entry

    def _answer(self, entry: StreamEntry, place: Place, opening: Future[Partition]) -> None:
        try:
            partition = self._open_one(entry, place)
            if not self._keep(place, partition):
                partition.delete()
                raise UnknownStreamId(f"the stream {entry.name!r} was deleted meanwhile")  # noqa: TRY301
        except BaseException as why:  # noqa: BLE001  it goes to everybody who waits for this partition
            with self._lock:
                self._opening.pop(place, None)
            opening.set_exception(why)
        else:
            opening.set_result(partition)

    def _keep(self, place: Place, partition: Partition) -> bool:
        with self._lock:
            if self._registry.with_id(place[0]) is None:
                return False  # still noted as opening, so that the removal waits until it is freed
            del self._opening[place]
            self._open[place] = partition
            return True
