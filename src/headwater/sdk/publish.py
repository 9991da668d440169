"""Publishing: one idempotent librdkafka producer per client, and a thread that collects its acknowledgements.

A lone record leaves at once (`SDK_LINGER_MS`); while a request is on its way, the library gathers the next. All
acknowledgements that one poll of the library brings come back in one call to the loop.
The order of `publish` calls is kept, also while the queue is full (`SDK_QUEUED_RECORDS`, `SDK_QUEUED_KBYTES`): who
finds it full waits in a row, and so does everybody after.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headwater.config import SDK_ANSWER_SECONDS, SDK_PARTITIONS_AGE_SECONDS, SDK_POLL_SECONDS
from headwater.errors import HeadwaterError, InvalidOption, InvalidValue, PublishFailed, RecordTooLarge
from headwater.model import Receipt, bytes_of
from headwater.sdk.border import MISSING, in_thread, made, mapped, not_found, persist, time_of, travels, writer_options
from headwater.sdk.codec import Codec, codec_of
from headwater.sdk.declare.outgoing import HeadersLike, Outgoing
from headwater.sdk.partitioner import RoundRobin, murmur2

if TYPE_CHECKING:
    from headwater.sdk.declare.stream import Stream
    from headwater.sdk.server import Server

Pairs = list[tuple[str, str | bytes | None]]
Wire = tuple[bytes, bytes | None, Pairs, int]  # value, key, headers, timestamp


class Delivery:
    """Records that one call published: their receipts as they come, and the future that has them all."""

    __slots__ = ("errors", "future", "left", "receipts")

    def __init__(self, count: int, future: asyncio.Future[None]) -> None:
        self.receipts: list[Receipt | None] = [None] * count
        self.errors: dict[int, KafkaError] = {}
        self.left = count
        self.future = future

    def settle(self, index: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors[index] = error
        else:
            self.receipts[index] = Receipt(
                partition=message.partition() or 0,
                offset=message.offset() or 0,
                timestamp=time_of(message.timestamp()[1]),
            )
        self.left -= 1
        if self.left == 0 and not self.future.done():
            self.future.set_result(None)


class Publisher:
    """Owned by a client, on whose loop it lives; begins with the first record."""

    def __init__(self, server: Server, address: str, kafka: Mapping[str, Any]) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._producer = made(Producer, writer_options(address, kafka))
        self._partitions: dict[str, tuple[int, float]] = {}
        self._asking: dict[str, asyncio.Task[int]] = {}
        self._turns: dict[str, RoundRobin] = {}
        self._queue = asyncio.Lock()  # held by whoever found the library's queue full
        self._room = asyncio.Event()
        self._settled: list[tuple[Delivery, int, KafkaError | None, Message]] = []
        self._closing: float | None = None
        self.broken = False  # the library gave this producer up: the next record takes a new publisher
        self._thread = threading.Thread(target=self._collect, name="headwater-publisher", daemon=True)
        self._thread.start()

    async def publish(self, stream: Stream[Any], outgoing: Outgoing[Any]) -> Receipt:
        codec = codec_of(stream.name, stream.model)
        wire, value = _wire(stream, codec, outgoing)
        delivery = Delivery(1, self._loop.create_future())
        await self._send(stream, wire, value, delivery, 0)
        await delivery.future
        if delivery.errors:
            failure = self._failure(stream.name, delivery.errors[0])
            if isinstance(failure, RecordTooLarge):
                limit = await self._server.record_bytes_max(stream.name)
                raise RecordTooLarge(f"{failure} (it has {len(wire[0])} bytes, {limit} are allowed)")
            raise failure
        receipt = delivery.receipts[0]
        assert receipt is not None
        return receipt

    async def publish_many(self, stream: Stream[Any], values: Iterable[Any]) -> list[Receipt]:
        codec = codec_of(stream.name, stream.model)
        if not isinstance(values, Iterable):
            raise InvalidValue(f"stream {stream.name!r}: publish_many takes several values, not {values!r:.200}")
        wires = [_wire(stream, codec, one if isinstance(one, Outgoing) else Outgoing(one)) for one in values]
        if not wires:
            return []
        delivery = Delivery(len(wires), self._loop.create_future())
        refused: HeadwaterError | None = None
        for index, (wire, value) in enumerate(wires):
            if self._sent_at_once(stream, wire, value, delivery, index):
                continue
            try:
                await self._send(stream, wire, value, delivery, index)
            except HeadwaterError as error:
                if index == 0:
                    raise
                refused = error
                delivery.left -= len(wires) - index
                break
        if delivery.left:
            await delivery.future
        receipts = [receipt for receipt in delivery.receipts if receipt is not None]
        if len(receipts) < len(wires):
            first = refused or self._failure(stream.name, next(iter(delivery.errors.values())))
            raise PublishFailed(_account(stream.name, delivery, first), receipts=tuple(delivery.receipts)) from first
        return receipts

    async def close(self, seconds: float) -> None:
        """Waits up to `seconds` for what is published and unacknowledged, then ends the thread.

        Cancelling forgets the wait; the thread still ends within `seconds`.
        """
        self._closing = time.monotonic() + seconds
        await asyncio.to_thread(self._thread.join)

    # --- one record on its way out -----------------------------------------------------------

    def _sent_at_once(self, stream: Stream[Any], wire: Wire, value: Any, delivery: Delivery, index: int) -> bool:
        """The usual case, without a coroutine for each record: all is known, and the library has room."""
        known = self._partitions.get(stream.name)
        own = stream.options.get("partition_function")
        if known is None or own is not None or known[1] < time.monotonic() or self._queue.locked():
            return False
        partition = self._partition(stream, wire[1], value, known[0])
        try:
            return self._produced(stream.name, partition, wire, partial(self._note, delivery, index))
        except (BufferError, HeadwaterError):
            return False  # met again on the long way, which knows what to do

    async def _send(self, stream: Stream[Any], wire: Wire, value: Any, delivery: Delivery, index: int) -> None:
        name, note = stream.name, partial(self._note, delivery, index)
        known = self._partitions.get(name)
        count = known[0] if known is not None and known[1] > time.monotonic() else await self._ask(name)
        partition = self._partition(stream, wire[1], value, count)
        if not self._queue.locked():
            with contextlib.suppress(BufferError):
                if not self._produced(name, partition, wire, note):
                    await self._again(name, partition, wire, note)
                return
        async with self._queue:
            while True:
                self._room.clear()
                try:
                    if not self._produced(name, partition, wire, note):
                        await self._again(name, partition, wire, note)
                except BufferError:
                    await self._room.wait()
                else:
                    return

    async def _again(self, name: str, partition: int, wire: Wire, note: Any) -> None:
        await self._look_again(name)
        if not self._produced(name, partition, wire, note):
            raise not_found(name)

    def _produced(self, name: str, partition: int, wire: Wire, note: Any) -> bool:
        """Whether the library took the record; not, when it thinks that the stream is gone."""
        value, key, headers, timestamp = wire
        try:
            self._producer.produce(name, value, key, partition, on_delivery=note, timestamp=timestamp, headers=headers)
        except KafkaException as error:
            if error.args[0].code() in MISSING:
                return False
            self.broken = self.broken or error.args[0].code() == KafkaError._FATAL  # noqa: SLF001
            raise mapped(error.args[0], f"publish to stream {name!r}", name) from None
        return True

    async def _look_again(self, name: str) -> None:
        """The library remembers a stream as gone: unless it really is, make it look, since it would not by itself."""
        self._partitions.pop(name, None)
        doing = f"publish to stream {name!r}"
        deadline = time.monotonic() + SDK_ANSWER_SECONDS
        while time.monotonic() < deadline:
            count = await self._ask(name)
            seen = await persist(
                lambda: in_thread(doing, asyncio.to_thread(self._producer.list_topics, name, SDK_ANSWER_SECONDS))
            )
            found = seen.topics[name]
            if found.error is None and len(found.partitions) >= count:
                return
        raise not_found(name)

    def _partition(self, stream: Stream[Any], key: bytes | None, value: Any, count: int) -> int:
        own = stream.options.get("partition_function")
        if own is not None:
            try:
                chosen = own(value)
            except Exception as error:
                raise InvalidOption(
                    f"stream {stream.name!r}: partition_function raised {type(error).__name__}: {error}"
                ) from error
            if not isinstance(chosen, int) or isinstance(chosen, bool) or not 0 <= chosen < count:
                raise InvalidOption(
                    f"stream {stream.name!r}: partition_function gave {chosen!r}, and there are partitions 0 to {count - 1}"
                )
            return chosen
        if key is not None:
            return murmur2(key) % count
        turn = self._turns.get(stream.name)
        if turn is None:
            turn = self._turns[stream.name] = RoundRobin()
        return turn.next(count)

    async def _ask(self, name: str) -> int:
        """How many partitions the stream has. Many callers share one question, and go on in their order."""
        asking = self._asking.get(name)
        if asking is None:
            asking = self._asking[name] = asyncio.create_task(self._server.partitions(name))
            asking.add_done_callback(partial(self._asked, name))
        return await asyncio.shield(asking)

    def _asked(self, name: str, asking: asyncio.Task[int]) -> None:
        del self._asking[name]
        if not asking.cancelled() and asking.exception() is None:
            self._partitions[name] = (asking.result(), time.monotonic() + SDK_PARTITIONS_AGE_SECONDS)

    def forget(self, name: str) -> None:
        """The stream was created or deleted by this client: ask again."""
        self._partitions.pop(name, None)

    def _failure(self, name: str, error: KafkaError) -> HeadwaterError:
        if error.code() in MISSING:
            self.forget(name)
        return mapped(error, f"publish to stream {name!r}", name)

    # --- acknowledgements, in the thread -----------------------------------------------------

    def _note(self, delivery: Delivery, index: int, error: KafkaError | None, message: Message) -> None:
        self._settled.append((delivery, index, error, message))

    def _collect(self) -> None:
        while True:
            self._poll(SDK_POLL_SECONDS if self._closing is None else SDK_POLL_SECONDS / 10)
            self._hand_over()
            if (self._closing is not None or self.broken) and not len(self._producer):
                return
            if self._closing is not None and time.monotonic() > self._closing:
                self._producer.purge()
                self._poll(0)
                self._hand_over()
                return

    def _poll(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds)
        except KafkaException:  # fatal: what it still has is given up, and fails with its own error
            self.broken = True
            self._producer.purge()

    def _hand_over(self) -> None:
        if self._settled:
            settled, self._settled = self._settled, []
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._settle, settled)

    def _settle(self, settled: list[tuple[Delivery, int, KafkaError | None, Message]]) -> None:
        for delivery, index, error, message in settled:
            delivery.settle(index, error, message)
        self._room.set()


def _wire(stream: Stream[Any], codec: Codec, outgoing: Outgoing[Any]) -> tuple[Wire, Any]:
    value, raw = codec.encode(stream.name, outgoing.value)
    key = codec.key_of(value) if outgoing.key is None else _bytes(stream.name, "a key", outgoing.key)
    headers: Pairs = [] if outgoing.headers is None else _pairs(stream.name, outgoing.headers)
    return (raw, key, headers, _ms(stream.name, outgoing.timestamp)), value


def _pairs(stream: str, headers: HeadersLike) -> Pairs:
    try:
        pairs = [(name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers)]
    except (TypeError, ValueError):
        raise InvalidValue(
            f"stream {stream!r}: headers are a mapping, or a list of (name, value), not {headers!r:.200}"
        ) from None
    for name, _ in pairs:
        _refuse_header_name(stream, name)
    return [
        (name, None if value is None else _bytes(stream, f"the value of header {name!r}", value))
        for name, value in pairs
    ]


def _refuse_header_name(stream: str, name: object) -> None:
    if not isinstance(name, str) or not travels(name):
        raise InvalidValue(f"stream {stream!r}: a header's name is text without zero characters, not {name!r:.200}")


def _bytes(stream: str, what: str, part: object) -> bytes:
    with contextlib.suppress(UnicodeEncodeError):
        if isinstance(part, str | bytes):
            return bytes_of(part)
    raise InvalidValue(f"stream {stream!r}: {what} is text that UTF-8 can carry, or bytes, not {part!r:.200}")


def _ms(stream: str, timestamp: datetime | None) -> int:
    """In milliseconds; 0 lets the library say now. A naive datetime means UTC."""
    if timestamp is None:
        return 0
    if not isinstance(timestamp, datetime):
        raise InvalidValue(f"stream {stream!r}: a timestamp is a datetime, not {timestamp!r:.200}")
    aware = timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)
    ms = round(aware.timestamp() * 1000)
    if ms <= 0:
        raise InvalidValue(f"stream {stream!r}: the timestamp {timestamp} is before 1970, and a record's cannot be")
    return ms


def _account(name: str, delivery: Delivery, first: HeadwaterError) -> str:
    written = [(index, receipt) for index, receipt in enumerate(delivery.receipts) if receipt is not None]
    shown = ", ".join(f"#{index} at {receipt.partition}:{receipt.offset}" for index, receipt in written[:20])
    more = f" and {len(written) - 20} more" if len(written) > 20 else ""
    return (
        f"{len(delivery.receipts) - len(written)} of {len(delivery.receipts)} records were not acknowledged by stream "
        f"{name!r} ({first}); written: {shown or 'none'}{more}; `receipts` of this error has them all"
    )
