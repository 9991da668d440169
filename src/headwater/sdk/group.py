"""An ordered group: its partitions are split among the members, and it keeps a cursor in each.

Another group gets every record again. A group comes into being with its first member; a new one starts at the
beginning. Which records are done, and so not read again after a restart: see `Reader` and `Subscription`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal

from typing_extensions import TypeVar

from headwater.config import SDK_COMMIT_SECONDS
from headwater.errors import InvalidOption
from headwater.model import Record
from headwater.sdk.border import travels
from headwater.sdk.declare.duration import Duration, seconds_of
from headwater.sdk.handlers import wants_record
from headwater.sdk.reader import Reader
from headwater.sdk.subscription import Subscription

if TYPE_CHECKING:
    from headwater.sdk.cursors import Start
    from headwater.sdk.declare.stream import Stream
    from headwater.sdk.member import OnLost

T = TypeVar("T", default=Any)


class Group(Generic[T]):
    """Made by `stream.group("name")`, without IO."""

    def __init__(self, stream: Stream[T], name: str) -> None:
        if not isinstance(name, str) or not name or not travels(name):
            raise InvalidOption(f"a group of stream {stream.name!r} cannot be called {name!r}: give it a name")
        self.stream, self.name = stream, name

    def read(
        self,
        *,
        commit: Duration | Literal["manual"] = SDK_COMMIT_SECONDS,
        start: Start = "beginning",
        on_lost: OnLost = "error",
    ) -> Reader[T]:
        """One member, as `async with group.read() as reader: async for record in reader: ...`.

        A record is done when the next is asked for, and cursors are committed every `commit` (5 s) and at the end; with
        `commit="manual"` it is done at `await record.commit()`. `start` is where a new group begins: "beginning" or
        "end". `on_lost`: what to do when records are no longer in the log: "error", or "skip" and count them.
        """
        seconds = None if commit == "manual" else seconds_of(commit, f"commit of group {self.name!r}")
        _one_of(start, ("beginning", "end"), "start")
        _one_of(on_lost, ("error", "skip"), "on_lost")
        return Reader(self.stream, self.name, commit_seconds=seconds, start=start, on_lost=on_lost)

    async def subscribe(
        self,
        handler: Callable[[T], Any] | Callable[[Record[T]], Any],
        *,
        start: Start = "beginning",
        on_lost: OnLost = "error",
        stop_timeout: Duration = "30s",
    ) -> Subscription[T]:
        """One member that gives each record to `handler`, one at a time, until it is stopped or the client closes.

        Its annotation decides what the handler gets: the value, or `Record[...]`. It may be sync or async; a record is
        done when it returns. When it raises, the subscription ends, its record uncommitted; `hw.run()` then drains the
        others and raises `HandlerError`. Returns when the member has joined. Cancelling this call ends the member.
        """
        _one_of(start, ("beginning", "end"), "start")
        _one_of(on_lost, ("error", "skip"), "on_lost")
        record = wants_record(handler, self.stream.name, self.stream.model)
        client = self.stream.client
        identity = await client.require(self.stream.name)
        subscription: Subscription[T] = Subscription(
            client, self.stream, self.name, handler, identity=identity,
            record=record, start=start, on_lost=on_lost, stop_seconds=seconds_of(stop_timeout, "stop_timeout"),
        )  # fmt: skip
        await subscription.joined()
        return subscription


def _one_of(value: object, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise InvalidOption(f"{what} is {' or '.join(map(repr, allowed))}, not {value!r}")
