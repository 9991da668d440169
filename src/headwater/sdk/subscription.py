"""A handler at work: `await group.subscribe(handler)`.

At least once: a record is done when its handler has returned. Before partitions are given back in a rebalance, the
handler's record is finished and committed, so that the next member begins behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from headwater.config import SDK_COMMIT_SECONDS, SDK_TURN_RECORDS
from headwater.errors import HandlerError
from headwater.model import Record
from headwater.sdk.codec import codec_of
from headwater.sdk.cursors import Start
from headwater.sdk.handlers import caller
from headwater.sdk.holding import Taken
from headwater.sdk.member import OnLost
from headwater.sdk.reader import record_fields

if TYPE_CHECKING:
    from headwater.sdk.client import Client
    from headwater.sdk.declare.stream import Stream

T = TypeVar("T", default=Any)


class Subscription(Generic[T]):
    """One member and its handler, owned by a client. `stop()` ends it; the client's close does too."""

    def __init__(
        self,
        client: Client,
        stream: Stream[T],
        group: str,
        handler: Callable[[Any], Any],
        *,
        identity: bytes,
        record: bool,
        start: Start,
        on_lost: OnLost,
        stop_seconds: float,
    ) -> None:
        self.stream, self.group = stream.name, group
        self.error: Exception | None = None
        self._client, self._record, self._stop_seconds = client, record, stop_seconds
        self._codec = codec_of(stream.name, stream.model)
        self._member = client.member(
            group, stream.name, identity, start=start, on_lost=on_lost, commit_seconds=SDK_COMMIT_SECONDS,
            release_seconds=stop_seconds,
        )  # fmt: skip
        self._call, self._let_go = caller(handler, group)
        self._work = asyncio.create_task(self._run(), name=f"headwater {group}")
        client.add(self)

    @property
    def skipped(self) -> int:
        """Offsets that were no longer in the log and were jumped over, with `on_lost="skip"`."""
        return self._member.skipped

    @property
    def ended(self) -> asyncio.Task[None]:
        """Done when the subscription has ended, by `stop()` or by an error, which `error` then holds."""
        return self._work

    async def joined(self) -> None:
        try:
            await self._member.joined()
        except BaseException:
            self._client.remove(self)
            await self._end()
            raise

    async def stop(self) -> None:
        """Finishes the record in hand within `stop_timeout`, commits, and leaves the group; stopping twice is fine.

        A handler that takes longer is cancelled (a blocking one is left to its thread), its record uncommitted.
        Raises what ended the subscription before, if something did. Cancelling this call cancels the handler. Called
        by the handler itself it returns at once: the record in hand is the last.
        """
        if asyncio.current_task() is self._work:
            self._member.stop_giving()
            return
        await self._end()
        if self._client.remove(self) and self.error is not None:
            raise self.error

    async def _end(self) -> None:
        self._member.stop_giving()
        try:
            await asyncio.wait({self._work}, timeout=self._stop_seconds)
        finally:
            self._work.cancel()
        await asyncio.wait({self._work})

    async def _run(self) -> None:
        try:
            given = 0
            while (taken := await self._member.next()) is not None:
                given += 1
                try:
                    if given % SDK_TURN_RECORDS == 0:
                        await asyncio.sleep(0)  # else a backlog would keep signals and other tasks waiting
                    await self._handle(taken)
                finally:
                    self._member.finished()
        except Exception as error:  # noqa: BLE001  raised by `stop`, `run`, or the client's close
            self.error = error
        finally:
            if self.error is None:  # an error stays with the client until it is told
                self._client.remove(self)
            self._let_go()
            await self._client.let_go(self._member)

    async def _handle(self, taken: Taken) -> None:
        message = taken.message
        try:
            fields = record_fields(self._codec, message, self.stream)
            await self._call(Record(**fields) if self._record else fields["value"])
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # by us; otherwise it is something of the handler's own that was cancelled
            partition, offset = message.partition() or 0, message.offset() or 0
            said = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise HandlerError(
                f"the handler of group {self.group!r} failed at stream {self.stream!r}, partition {partition}, offset "
                f"{offset}: {said}: the record is not committed, and is read again",
                stream=self.stream, partition=partition, offset=offset,
            ) from error  # fmt: skip
        taken.mark_done()
