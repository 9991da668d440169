"""`headwater.connect()`: the client that streams use while it is open.

A client owns what it starts: one publisher, and the members of groups. Closing it (the end of `async with`) stops them
all, each within its bound, and then forgets the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from headwater.config import SDK_CONNECT_SECONDS, SDK_PUBLISH_SECONDS
from headwater.errors import ConnectionFailed, HandlerError, InvalidOption, NotConnected
from headwater.model import Receipt, stream_name
from headwater.sdk import opened
from headwater.sdk.border import not_found, refuse_reserved
from headwater.sdk.declare.options import StreamConfig, StreamOptions
from headwater.sdk.declare.outgoing import Outgoing
from headwater.sdk.declare.stream import Stream
from headwater.sdk.describe import StreamDescription
from headwater.sdk.embedded import Embedded
from headwater.sdk.member import Member
from headwater.sdk.publish import Publisher
from headwater.sdk.server import Server, id_of

if TYPE_CHECKING:
    from headwater.sdk.subscription import Subscription

T = TypeVar("T")


def connect(
    address: str | None = None, *, kafka: Mapping[str, Any] | None = None, data: str | Path | None = None
) -> Client:
    """A client, for `async with headwater.connect() as hw:`.

    `address` ("host:9092"), else `HEADWATER_URL`, else the broker that holds the directory `data` (`./.headwater`, or
    what `HEADWATER_DATA` or headwater.toml say); if nobody does, one is started for us as a separate process, which
    closes some seconds after its last client. `kafka` passes options of
    the Kafka client through, such as `{"security.protocol": "SSL"}`.
    """
    return Client(address or os.environ.get("HEADWATER_URL") or None, kafka or {}, data)


class Client:
    """Open between `__aenter__` and `__aexit__`, on one event loop, in one process."""

    def __init__(self, address: str | None, kafka: Mapping[str, Any], data: str | Path | None = None) -> None:
        refuse_reserved(kafka)
        self.address = address or ""
        self._kafka = dict(kafka)
        self._embedded: Embedded | None = None if address else Embedded(data)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._server: Server | None = None
        self._publisher: Publisher | None = None
        self._members: set[Member] = set()
        self._subscriptions: list[Subscription[Any]] = []
        self._subscribed = False  # ever: then run() ends with the last of them, also with one that ended before

    async def __aenter__(self) -> Self:
        """Returns when the server has answered. Cancelling leaves nothing open; a broker started for us closes later."""
        if self._loop is not None:
            raise NotConnected("this client was opened before: make a new one with headwater.connect()")
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()
        try:
            if self._embedded is not None:
                self.address = await self._embedded.open()
            server = Server(self.address, self._kafka)
            await server.meet(SDK_CONNECT_SECONDS)
        except BaseException:
            await self._release()
            raise
        self._server = server
        if self._embedded is not None:
            self._embedded.keep(self._moved, self.address)
        opened.opened(self)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stops subscriptions and readers, waits for what was published, and lets the server go.

        An error of a handler that nobody has seen yet is raised here, unless another is on its way.
        """
        opened.closed(self)
        seen = await self._drain()
        for member in list(self._members):
            await self.let_go(member)
        if self._publisher is not None:
            await self._publisher.close(SDK_PUBLISH_SECONDS if kind is None else 0)
        self._server = self._publisher = None
        await self._release()
        if seen is not None and kind is None:
            raise seen

    async def _moved(self, address: str) -> None:
        """The embedded broker came back under another address: its port was taken meanwhile.

        What was published and not acknowledged by then fails: whether the old broker wrote it is not known.
        """
        server = Server(address, self._kafka)
        with contextlib.suppress(ConnectionFailed):
            await server.meet(SDK_CONNECT_SECONDS)
        self.address, self._server = address, server
        for member in self._members:
            member.move(address)
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.close(0)

    async def _release(self) -> None:
        if self._embedded is not None:
            await self._embedded.close()

    @property
    def options(self) -> dict[str, Any]:
        """What a Kafka client needs to reach this server: for reads that belong to no group."""
        self._open()
        return {**self._kafka, "bootstrap.servers": self.address}

    # --- streams -----------------------------------------------------------------------------

    @overload
    def stream(self, stream: Stream[T], /) -> Stream[T]: ...
    @overload
    def stream(
        self, stream: str, config: StreamConfig | None = None, /, **options: Unpack[StreamOptions]
    ) -> Stream: ...
    def stream(self, stream: Any, config: StreamConfig | None = None, /, **options: Unpack[StreamOptions]) -> Any:
        """Binds a declared stream to this client; or declares one by name and binds it."""
        if isinstance(stream, Stream):
            if config is not None or options:
                raise InvalidOption(f"stream {stream.name!r} is declared already: its options stand there")
            return stream.bound(self)
        return Stream[Any](stream, config, **options).bound(self)

    async def streams(self) -> list[str]:
        """The names of all streams, in order."""
        return await self._open().names()

    async def describe(self, stream: str | Stream[Any]) -> StreamDescription:
        return await self._open().describe(_name(stream))

    async def exists(self, stream: str | Stream[Any]) -> bool:
        return await self._open().find(_name(stream)) is not None

    async def require(self, stream: str) -> bytes:
        """The stream's id; an error that names `create()` unless it is there."""
        found = await self._open().find(stream)
        if found is None:
            raise not_found(stream)
        return id_of(found)

    async def create(self, stream: Stream[Any]) -> None:
        await self._open().create(stream.name, stream.options)
        if self._publisher is not None:
            self._publisher.forget(stream.name)

    async def delete(self, stream: str | Stream[Any]) -> None:
        """Frees the stream's data and cursors. Deleting what is not there is fine."""
        await self._open().delete(_name(stream))
        if self._publisher is not None:
            self._publisher.forget(_name(stream))

    # --- records -----------------------------------------------------------------------------

    async def publish(self, stream: Stream[Any], outgoing: Outgoing[Any]) -> Receipt:
        return await self._writer().publish(stream, outgoing)

    async def publish_many(self, stream: Stream[Any], values: Iterable[Any]) -> list[Receipt]:
        return await self._writer().publish_many(stream, values)

    def _writer(self) -> Publisher:
        server = self._open()
        if self._publisher is None or self._publisher.broken:  # a broken one ends by itself
            self._publisher = Publisher(server, self.address, self._kafka)
        return self._publisher

    # --- members and subscriptions -----------------------------------------------------------

    def member(self, group: str, stream: str, identity: bytes, **how: Any) -> Member:
        server = self._open()
        member = Member(
            self.address, self._kafka, group, stream,
            identify=lambda: (self._server or server).identify(stream), identity=identity,
            watches=not server.is_headwater, **how,
        )  # fmt: skip
        self._members.add(member)
        return member

    async def let_go(self, member: Member) -> None:
        self._members.discard(member)
        await member.close()

    def add(self, subscription: Subscription[Any]) -> None:
        self._subscriptions.append(subscription)
        self._subscribed = True

    def remove(self, subscription: Subscription[Any]) -> bool:
        """Whether it was still this client's."""
        if subscription not in self._subscriptions:
            return False
        self._subscriptions.remove(subscription)
        return True

    async def run(self) -> None:
        """Runs the subscriptions until SIGTERM or Ctrl-C, or until all have been stopped; then drains them.

        When a handler raises, its subscription ends, the others are drained, and `HandlerError` is raised. A second
        Ctrl-C interrupts at once. Cancelling ends the wait; the subscriptions go on until they are stopped, or the
        client closes.
        """
        self._open()
        told = asyncio.Event()
        with _signals(told.set):
            asked = asyncio.create_task(told.wait())
            try:
                while not told.is_set() and (self._subscriptions or not self._subscribed):
                    working = {one.ended for one in self._subscriptions}
                    if any(one.error is not None for one in self._subscriptions):
                        break
                    await asyncio.wait({asked, *working}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asked.cancel()
        error = await self._drain()
        if error is not None:
            raise error

    async def _drain(self) -> Exception | None:
        """Stops all subscriptions together; the first error that none of them has told yet."""
        outcomes = await asyncio.gather(*(one.stop() for one in list(self._subscriptions)), return_exceptions=True)
        errors = [one for one in outcomes if isinstance(one, Exception)]
        return next((one for one in errors if isinstance(one, HandlerError)), errors[0] if errors else None)

    def _open(self) -> Server:
        if self._server is None:
            raise NotConnected("this client is not open: use it inside of `async with headwater.connect() as hw:`")
        if os.getpid() != self._pid:
            raise NotConnected("this client was opened before this process was forked: open one in the child")
        loop = None
        with contextlib.suppress(RuntimeError):  # a thread that runs no loop
            loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise NotConnected("this client belongs to another event loop: open one on this loop")
        return self._server


def _name(stream: str | Stream[Any]) -> str:
    return stream.name if isinstance(stream, Stream) else stream_name(stream)


@contextlib.contextmanager
def _signals(told: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and the first SIGINT call `told`; before and after, and for a second one, things are as they were."""
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}

    def once(number: int) -> None:
        restore(number)
        told()

    def restore(number: int) -> None:
        if number in before:
            loop.remove_signal_handler(number)
            signal.signal(number, before.pop(number) or signal.SIG_DFL)

    for number in (int(signal.SIGTERM), int(signal.SIGINT)):
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # not the main thread
            handler = signal.getsignal(number)
            loop.add_signal_handler(number, once, number)
            before[number] = handler
    try:
        yield
    finally:
        for number in list(before):
            restore(number)
