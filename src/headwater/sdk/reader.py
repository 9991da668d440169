"""Reading one record at a time: `group.read()`.

At least once: a record is done when the next one is asked for (or at its `commit()`), so what was in hand when a
program died is read again. The record in hand when the `async with` block ends is not done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Self

from confluent_kafka import Message
from typing_extensions import TypeVar

from headwater.config import SDK_TURN_RECORDS
from headwater.errors import InvalidOption, InvalidValue
from headwater.model import Headers, Record
from headwater.sdk.border import headers_of, time_of
from headwater.sdk.codec import Codec, codec_of
from headwater.sdk.cursors import Start
from headwater.sdk.declare.duration import Duration, seconds_of
from headwater.sdk.holding import Taken
from headwater.sdk.member import Member, OnLost

if TYPE_CHECKING:
    from headwater.sdk.client import Client
    from headwater.sdk.declare.stream import Stream

T = TypeVar("T", default=Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord(Record[T]):
    """A record that a group's reader gave, and the way to say that it is done."""

    _member: Member = field(repr=False, compare=False)
    _taken: Taken = field(repr=False, compare=False)

    async def commit(self) -> None:
        """Commits the group's cursor behind this record: it and all before it in its partition are done.

        An older one than was committed changes nothing. An error when the partition went to another member meanwhile.
        Cancelling forgets the wait, not the commit.
        """
        await self._member.commit(self._taken)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as the plain record it is: who read it stays in this process."""
        return _plain, (
            self.value, self.key_bytes, self.headers, self.timestamp, self.stream, self.partition, self.offset, self.epoch,
        )  # fmt: skip


class Reader(Generic[T]):
    """One member of a group, for `async with`. Not for several tasks at once: each takes a reader of its own."""

    def __init__(
        self, stream: Stream[T], group: str, *, commit_seconds: float | None, start: Start, on_lost: OnLost
    ) -> None:
        self._stream, self._group = stream, group
        self._commit_seconds, self._start, self._on_lost = commit_seconds, start, on_lost
        self._codec: Codec | None = None
        self._client: Client | None = None
        self._member: Member | None = None
        self._in_hand: Taken | None = None
        self._given = 0

    @property
    def skipped(self) -> int:
        """Offsets that were no longer in the log and were jumped over, with `on_lost="skip"`."""
        return 0 if self._member is None else self._member.skipped

    async def __aenter__(self) -> Self:
        """Joins the group; returns when it has given this member its part. Cancelling leaves it again."""
        client = self._client = self._stream.client
        self._codec = codec_of(self._stream.name, self._stream.model)
        identity = await client.require(self._stream.name)
        self._member = client.member(
            self._group,
            self._stream.name,
            identity,
            start=self._start,
            on_lost=self._on_lost,
            commit_seconds=self._commit_seconds,
        )
        try:
            await self._member.joined()
        except BaseException:
            await client.let_go(self._member)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Commits what is done and leaves the group."""
        member, self._member = self._member, None
        if member is not None and self._client is not None:
            await self._client.let_go(member)

    def __aiter__(self) -> AsyncIterator[GroupRecord[T]]:
        return self

    async def __anext__(self) -> GroupRecord[T]:
        record = await self.get()
        if record is None:
            raise StopAsyncIteration
        return record

    async def get(self, timeout: Duration | None = None) -> GroupRecord[T] | None:
        """The next record; None when `timeout` has passed without one, or when the client was closed.

        Asking says that the record before is done. Cancelling loses no record.
        """
        member = self._member
        if member is None:
            raise InvalidOption(f"this reader of group {self._group!r} is not open: use it inside of `async with`")
        if self._in_hand is not None and self._commit_seconds is not None:
            self._in_hand.mark_done()
        self._in_hand = None
        self._given += 1
        if self._given % SDK_TURN_RECORDS == 0:
            await asyncio.sleep(0)  # else a backlog would keep signals and other tasks waiting
        taken = member.take()
        if taken is None:
            seconds = None if timeout is None else seconds_of(timeout, "timeout")
            try:
                async with asyncio.timeout(seconds):
                    taken = await member.next()
            except TimeoutError:
                return None
        if taken is None:
            return None
        self._in_hand = taken
        assert self._codec is not None
        fields = record_fields(self._codec, taken.message, self._stream.name)
        return GroupRecord(_member=member, _taken=taken, **fields)


def record_fields(codec: Codec, message: Message, stream: str) -> dict[str, Any]:
    """What a `Record` is made of. A value that is not what the stream's model says is an error that names its place."""
    raw = message.value()
    partition, offset = message.partition() or 0, message.offset() or 0
    try:
        value = codec.decode(stream, raw if raw is None or isinstance(raw, bytes) else str(raw).encode())
    except InvalidValue as error:
        raise InvalidValue(f"{error} (partition {partition}, offset {offset})") from error.__cause__
    key: Any = message.key()
    epoch = message.leader_epoch()
    return {
        "value": value,
        "key_bytes": key,
        "headers": Headers(headers_of(message)),
        "timestamp": time_of(message.timestamp()[1]),
        "stream": stream,
        "partition": partition,
        "offset": offset,
        "epoch": -1 if epoch is None else epoch,
    }


def _plain(
    value: Any,
    key: bytes | None,
    headers: Headers,
    timestamp: datetime,
    stream: str,
    partition: int,
    offset: int,
    epoch: int,
) -> Record[Any]:
    return Record(
        value=value, key_bytes=key, headers=headers, timestamp=timestamp, stream=stream, partition=partition,
        offset=offset, epoch=epoch,
    )  # fmt: skip
