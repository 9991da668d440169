"""Ordered groups, alive: the coordinator of `headwater.groups` with a clock, futures for its tokens, and the store.

The coordinator decides; here is only what it must not know: time, waiting, chance, the disk, and how a subscription is
written. All of it runs on the broker's loop.

**Streams that go.** `store.version` moves when a stream comes or goes. Each call here compares the ids of the streams
that members read with those they had, before it asks the coordinator: a commit by name cannot reach a stream that was
created under the name of a deleted one, however closely the two follow each other (see `_look_at_streams`).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.config import MEMBER_ID_NAME_CHARS_MAX, Settings
from headwater.errors import ProtocolError, WireError
from headwater.groups import Coordinator, Identity, Join, Joined, Limits, Protocol, Refused, Sync, Synced
from headwater.model import Cursor, GroupName, StreamId, StreamName
from headwater.wire.messages import consumer_protocol_subscription as subscription

if TYPE_CHECKING:
    from headwater.meta import Place
    from headwater.store import Store

CONSUMER = "consumer"  # the protocol type whose subscriptions can be read; others (Connect's) name no streams
SUBSCRIPTION_VERSION_MAX = 3  # a newer one only has more at its end


class GroupShell:
    """Owned by the broker: `start` and `stop` once each, on its loop. After `stop` everybody is sent on."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._coordinator = Coordinator(
            Limits(
                session_timeout_min_ms=settings.session_timeout_min_ms,
                session_timeout_max_ms=settings.session_timeout_max_ms,
                rebalance_delay_ms=settings.rebalance_delay_ms,
                members_max=settings.group_members_max,
            )
        )
        self._ids: dict[StreamName, StreamId] = {}  # of the streams that members read, as they were when they joined
        self._streams_version = store.version
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Answers everybody who waits with NotCoordinator, so that clients find the next start."""
        self._coordinator.stop(_now_ms())
        self._after()

    # --- what the handlers ask -------------------------------------------------------------------

    async def join(self, join: Join) -> Joined | Refused:
        """Waits until the members have gathered. Cancelling forgets the wait, not the member."""
        self._look_at_streams()
        self._remember(join)
        future: asyncio.Future[Joined | Refused] = asyncio.get_running_loop().create_future()
        self._coordinator.join(join, future, _now_ms())
        self._after()
        return await future

    async def sync(self, sync: Sync) -> Synced | Refused:
        """Waits until the leader has shared out. Cancelling forgets the wait, not the member."""
        self._look_at_streams()
        future: asyncio.Future[Synced | Refused] = asyncio.get_running_loop().create_future()
        self._coordinator.sync(sync, future, _now_ms())
        self._after()
        return await future

    def heartbeat(self, group: GroupName, who: Identity, generation: int) -> None:
        """Raises what the member has to be told."""
        self._look_at_streams()
        try:
            self._coordinator.heartbeat(group, who, generation, _now_ms())
        finally:
            self._after()

    def leave(self, group: GroupName, members: Sequence[Identity]) -> list[WireError | None]:
        self._look_at_streams()
        try:
            return self._coordinator.leave(group, members, _now_ms())
        finally:
            self._after()

    async def commit(self, group: GroupName, who: Identity, generation: int, cursors: Mapping[Place, Cursor]) -> None:
        """Returns when the cursors are durable; raises why they are not. Cancelling forgets the answer, not the commit.

        The caller has found the streams' ids in this same turn of the loop: what it found is compared here.
        """
        self._look_at_streams()
        try:
            self._coordinator.check_commit(group, who, generation, _now_ms())
        finally:
            self._after()
        await asyncio.shield(asyncio.wrap_future(self._store.commit_cursors(group, cursors)))

    async def cursors(self, group: GroupName) -> dict[Place, Cursor]:
        """Where the group stands, in a thread: after a crash its partitions may have to be opened first.

        Cancelling forgets the answer.
        """
        return await asyncio.get_running_loop().run_in_executor(None, self._store.cursors, group)

    # --- time ------------------------------------------------------------------------------------

    def _after(self) -> None:
        """After each call: hands out the answers that became ready, and sees to it that the next tick comes."""
        for token, answer in self._coordinator.take_answers():
            assert isinstance(token, asyncio.Future)
            if not token.done():  # its client may be gone
                token.set_result(answer)
        wait_ms = self._coordinator.next_tick_ms()
        loop = asyncio.get_running_loop()
        if self._timer is not None and (wait_ms is None or self._timer.when() > loop.time() + wait_ms / 1000):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and wait_ms is not None:
            self._timer = loop.call_later(wait_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._look_at_streams()
        self._coordinator.tick(_now_ms())
        self._after()

    # --- streams that come and go ----------------------------------------------------------------

    def _look_at_streams(self) -> None:
        """Sends the readers of streams that are not what they were back to joining.

        A delete moves the version before its name can be used again, so whoever has found the new stream under the
        name sees here that the version has moved.
        """
        version = self._store.version
        if version == self._streams_version:
            return
        self._streams_version = version
        read = self._coordinator.streams_read()
        self._ids = {name: known for name, known in self._ids.items() if name in read}
        for name in list(read):
            entry, known = self._store.stream(name), self._ids.pop(name, None)
            if entry is not None:
                self._ids[name] = entry.id
            if known is not None and (entry is None or entry.id != known):
                self._coordinator.stream_deleted(name, _now_ms())

    def _remember(self, join: Join) -> None:
        """Notes the ids of what the member is about to read. What others read already is compared, not noted anew."""
        read = self._coordinator.streams_read()
        for protocol in join.protocols:
            for name in protocol.streams:
                entry = self._store.stream(name)
                if entry is not None and not (name in read and name in self._ids):
                    self._ids[name] = entry.id


def fresh_member_id(name: str | None) -> str:
    """As Kafka makes them: the client's or the instance's name, and something that nobody else has."""
    return f"{(name or '')[:MEMBER_ID_NAME_CHARS_MAX]}-{uuid.uuid4()}"


def protocol_of(protocol_type: str, name: str, metadata: bytes | memoryview) -> Protocol:
    """A protocol with the streams that its subscription names; what cannot be read names none, as in Kafka."""
    raw = bytes(metadata)
    streams: frozenset[StreamName] = frozenset()
    if protocol_type == CONSUMER and len(raw) >= 2:
        version = min(int.from_bytes(raw[:2], "big", signed=True), SUBSCRIPTION_VERSION_MAX)
        try:
            said = subscription.decode(memoryview(raw)[2:], max(version, 0))
            streams = frozenset(map(StreamName, said.topics))
        except ProtocolError:
            pass
    return Protocol(name=name, metadata=raw, streams=streams)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
