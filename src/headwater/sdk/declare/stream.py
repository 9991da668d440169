"""The one class for programs and pipelines: `Stream[Model](name, **options)`.

A declared stream does no IO and pickles (by cloudpickle, since options may be lambdas). Its verbs (`create`, `publish`,
`group` ...) run on the client that is open, or on the one it was bound to by `hw.stream(s)`.
The model stands in brackets because `Stream[V1 | V2]("x")` type-checks, which `Stream("x", V1 | V2)` would not. Neither
frozen nor slotted: on Python 3.11 such a generic class loses `__orig_class__`, and with it the model.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, cast

from typing_extensions import TypeVar

from headwater.errors import InvalidOption
from headwater.model import Receipt, Record, StreamName, stream_name
from headwater.sdk.declare.options import StreamConfig, StreamOptions, joined, spelled
from headwater.sdk.declare.outgoing import HeadersLike, Outgoing
from headwater.sdk.declare.table import Table, brackets, model_of
from headwater.sdk.opened import the_client

if TYPE_CHECKING:
    from headwater.sdk.browse import BrowseStart
    from headwater.sdk.client import Client
    from headwater.sdk.describe import StreamDescription
    from headwater.sdk.group import Group

T = TypeVar("T", default=Any)

_declared: list[Stream[Any]] = []  # those with a destination, in order: few, unlike streams per user or chat


def declared() -> tuple[Stream[Any], ...]:
    """The streams that this process has declared to land somewhere: what `headwater run app.py` runs."""
    return tuple(_declared)


class Stream(Generic[T]):
    """A stream of `T`: a pydantic model, a union of models, `dict`, `str` or `bytes`; without brackets, any JSON."""

    def __init__(self, name: str, config: StreamConfig | None = None, /, **options: Unpack[StreamOptions]) -> None:
        self.name: StreamName = stream_name(name)
        self.options: StreamOptions = joined(name, config, options)
        self._client: Client | None = None
        if self.destination is not None:
            _declared.append(self)

    @property
    def model(self) -> Any:
        """What stands in the brackets; None without them."""
        model = model_of(self)
        if isinstance(model, TypeVar):
            raise InvalidOption(f"Stream[{model}]({self.name!r}): a type variable says no type: write the model itself")
        return model

    @property
    def destination(self) -> Table[Any] | None:
        """The table this stream lands in."""
        return self.options.get("destination")

    @property
    def client(self) -> Client:
        """The client that this stream is bound to, or the one that is open."""
        return self._client if self._client is not None else the_client(self.name)

    def bound(self, client: Client) -> Self:
        """The same stream on `client`, whatever else is open. `hw.stream(s)` is the short way to say it."""
        mine = copy.copy(self)
        mine._client = client  # noqa: SLF001  a copy of our own
        return mine

    async def create(self) -> Self:
        """Makes the stream with its options, and returns it; an existing one is fine if it fits what is written here.

        Cancelling forgets the wait: the stream may be there or not.
        """
        await self.client.create(self)
        return self

    async def exists(self) -> bool:
        return await self.client.exists(self.name)

    async def describe(self) -> StreamDescription:
        """Id, partitions with their offsets, configs and times: what the server knows about the stream."""
        return await self.client.describe(self.name)

    async def delete(self) -> None:
        """Frees the stream's data and cursors. Deleting what is not there is fine.

        Cancelling forgets the wait, not the deletion.
        """
        await self.client.delete(self.name)

    async def publish(
        self,
        value: T | Mapping[str, Any],
        *,
        key: str | bytes | None = None,
        headers: HeadersLike | None = None,
        timestamp: datetime | None = None,
    ) -> Receipt:
        """Sends one record and returns where it stands once the server has acknowledged it.

        Records of one key stay in order in one partition; without a key partitions take turns. A mapping is validated
        as the model. Cancelling forgets the wait, not the write.
        """
        return await self.client.publish(self, Outgoing(value, key, headers, timestamp))

    async def publish_many(
        self, values: Iterable[T | Mapping[str, Any] | Outgoing[T] | Outgoing[Mapping[str, Any]]]
    ) -> list[Receipt]:
        """Sends many records together; receipts come in their order.

        All of it is acknowledged, or one `PublishFailed` lists what was written. Values are validated before the first
        is sent. Cancelling forgets the wait, not the writes.
        """
        return await self.client.publish_many(self, values)

    def group(self, name: str) -> Group[T]:
        """Readers that share this stream: partitions are split among the members, and the group keeps a cursor."""
        from headwater.sdk.group import Group

        return Group(self, name)

    def records(self, *, start: BrowseStart = "beginning", follow: bool = False) -> AsyncIterator[Record[T]]:
        """Reads without a group: what is there now, by partition and offset; with `follow`, also what comes.

        No cursor moves. Cancelling loses nothing.
        """
        from headwater.sdk.browse import browse

        return browse(self.client.options, self.name, self.model, start=start, follow=follow)

    def __repr__(self) -> str:
        said = spelled(cast("dict[str, Any]", self.options))
        return f"Stream{brackets(model_of(self))}({self.name!r}{', ' if said else ''}{said})"

    def __getstate__(self) -> dict[str, Any]:
        """What pickles is the declaration: a client stays in the process that opened it."""
        return {**self.__dict__, "_client": None}
