"""A client that is held open as long as a run lasts: it keeps an embedded broker alive, and creates what the app declares.

The client is asyncio and the run is not, so it lives on a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from headwater.sdk.client import Client, connect
from headwater.sdk.declare import Stream

R = TypeVar("R")


class Attachment:
    """`with Attachment(...) as server:` ; `server.client` is what librdkafka needs to reach it."""

    def __init__(self, address: str | None, kafka: Mapping[str, Any], data: Path) -> None:
        self._address, self._kafka, self._data = address, dict(kafka), data
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="attachment", daemon=True)
        self._open: Client | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._open = self._run(self._enter)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client = self._open
        if client is not None:
            self._run(partial(client.__aexit__, None, None, None))
        self._end()

    @property
    def client(self) -> dict[str, Any]:
        """Options of librdkafka. Asked anew for each plan: an embedded broker may come back on another port."""
        assert self._open is not None  # used inside of `with`
        return {**self._kafka, "bootstrap.servers": self._open.address}

    def create(self, streams: Iterable[Stream[Any]]) -> None:
        """Makes those that are not there; raises `StreamDiffers` where one is, with other options."""
        client = self._open
        assert client is not None  # used inside of `with`
        for stream in streams:
            self._run(partial(client.create, stream))

    async def _enter(self) -> Client:
        return await connect(self._address, kafka=self._kafka, data=self._data).__aenter__()

    def _run(self, call: Callable[[], Awaitable[R]]) -> R:
        async def awaited() -> R:
            return await call()

        future: Future[R] = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        return future.result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
