"""What spans the log and meta.db, without a network. Crash tests enter here.

    Store        one data directory, held by this process: streams, partitions, cursors, producer ids (store.py)
    directory    who holds a data directory, where its broker answers, which clients it has; for clients too
    configs      a stream's configs in Kafka's names: parse, describe

Seams, of threads and futures (`concurrent.futures`, answered when durable; nothing here imports asyncio):

    Store.open(settings, files=None) -> Store                  raises DataDirectoryHeld, FormatTooNew, DataDamaged ...
    store.announce(kind, host, port)                           writes the address; `directory.address(data)` reads it
    store.stream(name) | stream_by_id(id) | streams()          in memory; `store.version` moves when they change
    store.check_new(name, partitions, config)                  validates without creating
    store.create(name, partitions, config, now_ms)             -> Future[StreamEntry]; raises at once what check_new does
    store.delete(name or id)                                   -> Future[StreamEntry]; raises UnknownStream(Id) at once
    store.opened(place)                                        -> Partition or None, without touching the disk
    store.partition(place)                                     -> Partition; may recover for seconds: in a thread
    store.commit_cursors(group, {place: cursor})               -> Future[None]
    store.cursors(group)                                       -> {place: cursor}; in a thread, it may open partitions
    store.groups() | ensure_group(...) | delete_group(name)
    store.producer_id()                                        -> Future[ProducerId]
    store.close()                                              flushes, checkpoints, notes a clean stop

A place is (stream id, partition index). `Store` is loaded when it is first asked for, so that a client that only needs
`directory` does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.meta import GroupKind, Place, StreamEntry
    from headwater.store.store import Store

__all__ = ["GroupKind", "Place", "Store", "StreamEntry"]


def __getattr__(name: str) -> Any:
    if name == "Store":
        from headwater.store.store import Store

        return Store
    if name in __all__:
        from headwater import meta

        return getattr(meta, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
