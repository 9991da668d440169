"""How long a broker runs: until a signal, or, embedded, until nobody needs it any more.

An embedded broker was started by a client for itself and all others on this data directory. Each client process shares
a lock on `clients`; who can take that lock alone has no clients. The lock is tried and let go again, so that a client
is never kept out, until the broker is about to close: then it keeps it, and a client that comes starts a new broker.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable

from headwater.broker.server import Broker
from headwater.config import CLIENTS_PROBE_SECONDS, Settings
from headwater.store import Store, directory


async def serve(store: Store, settings: Settings, ready: Callable[[str, int], None]) -> None:
    """Listens, calls `ready`, and returns when it has drained. A second signal ends the process at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        if stopping.is_set():
            os._exit(1)  # what a kill would leave: the next start recovers it
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    broker = Broker(store, settings)
    host, port = await broker.start()
    try:
        store.announce("embedded" if settings.embedded else "served", host, port)
        gc.freeze()  # what is there by now stays: no later collection pauses to look at it
        ready(host, port)
        if settings.embedded:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(_until_nobody_is_left(broker, settings, stopping))
                await stopping.wait()
                watch.cancel()
        else:
            await stopping.wait()
    finally:
        await broker.stop()


async def _until_nobody_is_left(broker: Broker, settings: Settings, stopping: asyncio.Event) -> None:
    """Sets `stopping` after `linger` seconds without client processes and without connections. Cancelling ends it."""
    clients = directory.Clients(settings.data)
    quiet_since = time.monotonic()
    while not stopping.is_set():
        await asyncio.sleep(CLIENTS_PROBE_SECONDS)
        if broker.connections or not clients.absent():
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since >= settings.linger and clients.shut_out():
            broker.keep = clients  # held until this process ends: who comes now starts a new broker
            stopping.set()
