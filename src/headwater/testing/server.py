"""The broker of `headwater.testing`: inside this process, on a thread and a loop of its own."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from headwater.broker.server import Broker
from headwater.config import Settings
from headwater.log import Files
from headwater.store import Store


class Server:
    """A running broker. It lives on its own thread and loop, so a blocking test does not hold it up."""

    def __init__(self, settings: Settings, files: Files | None = None) -> None:
        self.settings = settings
        self.store = Store.open(settings, files=files)
        self._started: Future[tuple[str, int]] = Future()
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="headwater-broker", daemon=True)
        self._thread.start()
        try:
            self.host, self.port = self._started.result()
        except BaseException:
            self._thread.join()
            self.store.close()
            raise

    @property
    def address(self) -> str:
        """What clients connect to."""
        return f"{self.host}:{self.port}"

    @property
    def data(self) -> str:
        return self.settings.data

    def statistics(self) -> dict[str, Any]:
        return self.broker.statistics()

    def stop(self) -> None:
        """Answers what is in hand, then closes everything; twice is fine."""
        if self._thread.is_alive() and self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
            self.store.close()

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve())
        except BaseException as why:  # noqa: BLE001  it belongs to the test's thread
            if not self._started.done():
                self._started.set_exception(why)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.broker = Broker(self.store, self.settings)
        self._started.set_result(await self.broker.start())
        await self._stopping.wait()
        await self.broker.stop()


@contextmanager
def broker(*, files: Files | None = None, **settings: Any) -> Iterator[Server]:
    """See the package: `headwater.testing.broker`."""
    with tempfile.TemporaryDirectory(prefix="headwater-", ignore_cleanup_errors=True) as scratch:
        server = Server(Settings(**{"data": scratch, "port": 0, **settings}), files)
        try:
            yield server
        finally:
            server.stop()
