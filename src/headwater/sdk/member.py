"""One member of an ordered group: a librdkafka consumer in a thread of its own.

The thread never stops polling, whatever the program does with its records: so heartbeats go out, rebalances are
answered, and a blocking handler stalls nobody. When the program is slower than the log, partitions are paused.

Positions are ours, not librdkafka's. On assignment the cursors are looked up and given to `assign`, since
`auto.offset.reset=error`, which never jumps over lost records in silence, would also fail a group without cursors.
A cursor moves when a record is *done*, it is committed every `commit_seconds`, when a partition is given back, and at
the end. A partition that a rebalance takes and gives back goes on after the last record given to the program, not at
the cursor: so a member that joins makes nobody read twice.

Only this thread calls the consumer: since 2.16 confluent-kafka lets one thread in at a time, and not in turn, so that a
commit from another thread may wait for ever behind a loop that polls. What the program asks is a command instead, and
while the program has a record in hand the thread waits for commands, not in the library, so that commits are prompt.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater.config import (
    SDK_ANSWER_SECONDS,
    SDK_GONE_SECONDS,
    SDK_IDENTITY_SECONDS,
    SDK_POLL_SECONDS,
    SDK_READ_AHEAD_RECORDS,
)
from headwater.errors import ConnectionFailed, HeadwaterError, RecordsLost
from headwater.sdk.border import FATAL, LOST, MISSING, made, mapped, reader_options
from headwater.sdk.cursors import Cursors, Start
from headwater.sdk.holding import Hold, ReadAhead, Taken

OnLost = Literal["error", "skip"]

log = logging.getLogger("headwater")
_CHUNK_RECORDS = SDK_READ_AHEAD_RECORDS // 4
_PATIENCE_SECONDS = 1.0  # full for so long: pause the partitions, and go on answering rebalances


class Member:
    """Reads one stream for one group. Its verbs are for the loop it was made on, unless they say otherwise.

    `identify` gives the stream's id, or None when there is none; `identity` is the one that is meant. `watches`: make
    sure of it now and then, since the server tells nobody that a stream was deleted (ours sends its members to join).
    `release_seconds`: how long partitions that a rebalance takes are kept for the record in the program's hands, until
    the program calls `finished`.
    """

    def __init__(
        self,
        address: str,
        kafka: Mapping[str, Any],
        group: str,
        stream: str,
        *,
        identify: Callable[[], bytes | None],
        identity: bytes,
        watches: bool,
        start: Start,
        on_lost: OnLost,
        commit_seconds: float | None,
        release_seconds: float = 0,
    ) -> None:
        self.group, self.stream = group, stream
        self.skipped = 0  # records that were lost and jumped over, with on_lost="skip"
        self._on_lost, self._commit_seconds = on_lost, commit_seconds
        self._identify = identify
        self._identity: bytes | None = identity
        self._suspicious = False  # something happened that a deletion explains
        self._watches, self._identity_at = watches, time.monotonic() + SDK_IDENTITY_SECONDS
        self._release_seconds = min(release_seconds, threading.TIMEOUT_MAX)
        self._loop = asyncio.get_running_loop()
        self._options = reader_options(address, kafka, group)
        self._consumer = made(Consumer, self._options)
        self._moved = ""
        self._ahead = ReadAhead()
        self._cursors = Cursors(group, stream, start)
        self._error: Exception | None = None
        self._raised: Exception | None = None  # by a callback
        self._stopping = False
        self._some = asyncio.Event()  # records, an error, or the end
        self._joined = asyncio.Event()
        self._hungry = False  # the program waits for a record
        self._asked = threading.Event()  # the program wants something of the thread
        self._commits: deque[tuple[Hold, Future[None]]] = deque()
        self._commit_at = time.monotonic() + (commit_seconds or 0)
        self._thread = threading.Thread(target=self._run, name=f"headwater-{group}", daemon=True)
        self._thread.start()

    # --- for the program's loop --------------------------------------------------------------

    async def joined(self) -> None:
        """Returns when the group has given this member its part. Cancelling forgets the wait."""
        try:
            async with asyncio.timeout(SDK_ANSWER_SECONDS):
                await self._joined.wait()
        except TimeoutError:
            raise mapped(
                KafkaError(KafkaError.REQUEST_TIMED_OUT), f"join group {self.group!r} of stream {self.stream!r}"
            ) from None
        if self._error is not None:
            raise self._error

    async def next(self) -> Taken | None:
        """The next record, or None when the member stops. Cancelling loses nothing."""
        while True:
            if self._stopping:
                return None
            taken = self._ahead.take()
            if taken is not None:
                return taken
            if self._error is not None:
                raise self._error
            self._some.clear()
            if not len(self._ahead) and self._error is None and not self._stopping:
                self._hungry = True
                self._asked.set()
                try:
                    await self._some.wait()
                finally:
                    self._hungry = False

    def take(self) -> Taken | None:
        """The next record if it is here already."""
        return None if self._stopping else self._ahead.take()

    def finished(self) -> None:
        """The program has nothing in hand any more."""
        self._ahead.idle.set()

    def move(self, address: str) -> None:
        """The server answers at another address now: join there."""
        self._moved = address

    def stop_giving(self) -> None:
        """`next` gives no more records."""
        self._stopping = True
        self._some.set()
        self._asked.set()

    async def commit(self, taken: Taken) -> None:
        """Commits the cursor behind this record, and returns when the server has it."""
        taken.mark_done()
        future: Future[None] = Future()
        self._commits.append((taken.hold, future))
        self._asked.set()
        await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Commits what is done and leaves the group. Cancelling forgets the wait; the thread ends by itself."""
        self.stop_giving()
        await asyncio.to_thread(self._thread.join, SDK_ANSWER_SECONDS)

    # --- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._subscribe()
            while not self._stopping:
                self._turn()
        except HeadwaterError as error:
            self._fail(error)
        except KafkaException as error:
            self._fail(mapped(error.args[0], f"read stream {self.stream!r} as group {self.group!r}", self.stream))
        except Exception as error:  # noqa: BLE001  a thread has nobody else to tell
            self._fail(error)
        while not self._stopping:  # failed: stay a member until the program has seen it and closes
            with contextlib.suppress(KafkaException, HeadwaterError):
                self._serve()
                self._consumer.poll(SDK_POLL_SECONDS)
        self._leave()

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            [self.stream],
            on_assign=self._guarded(self._assigned),
            on_revoke=self._guarded(self._revoked),
            on_lost=self._guarded(self._assignment_lost),
        )

    def _guarded(self, callback: Callable[[list[TopicPartition]], None]) -> Callable[..., None]:
        """What a callback raises is raised after the poll: on its way through the library it would be mangled."""

        def guarded(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                callback(partitions)
            except Exception as error:  # noqa: BLE001  raised by `_turn`
                self._raised = error

        return guarded

    def _turn(self) -> None:
        """One look for records, within `SDK_POLL_SECONDS`."""
        if self._moved:
            self._join_elsewhere()
        if self._ahead.full and not self._ahead.room.wait(_PATIENCE_SECONDS):
            self._wait_paused()
        self._serve()
        busy = not self._hungry and self._joined.is_set()
        message = self._consumer.poll(0 if busy else SDK_POLL_SECONDS)
        if self._raised is not None:
            raise self._raised
        if message is not None:
            self._sort_out([message, *self._consumer.consume(_CHUNK_RECORDS, 0)])
        elif busy:
            self._asked.wait(SDK_POLL_SECONDS / 2)
            self._asked.clear()

    def _serve(self) -> None:
        """What the program asked for, and what is due."""
        for _ in range(len(self._commits)):
            hold, future = self._commits.popleft()
            try:
                if self._cursors.commit_one(self._consumer, hold):
                    future.set_result(None)
                else:
                    self._commits.append((hold, future))
            except HeadwaterError as error:
                future.set_exception(error)
        now = time.monotonic()
        if self._commit_seconds is not None and now >= self._commit_at:
            self._commit_done()
        if self._suspicious or (self._watches and now >= self._identity_at):
            self._is_another_stream()

    def _join_elsewhere(self) -> None:
        self._options["bootstrap.servers"], self._moved = self._moved, ""
        self._ahead.drop()
        self._cursors.forget("its server moved")
        self._consumer.close()
        self._consumer = made(Consumer, self._options)
        self._subscribe()

    def _wait_paused(self) -> None:
        """The program is slow. Records that still arrive while pausing are kept; the queue may run over by those."""
        paused = self._consumer.assignment()
        self._consumer.pause(paused)
        while not self._stopping and not self._ahead.room.is_set():
            self._serve()
            message = self._consumer.poll(0)
            if message is not None:
                self._sort_out([message])
            else:
                self._asked.wait(SDK_POLL_SECONDS / 2)
                self._asked.clear()
        mine = {one.partition for one in self._consumer.assignment()}
        self._consumer.resume([one for one in paused if one.partition in mine])

    def _sort_out(self, messages: list[Message]) -> None:
        good: list[Taken] = []
        for message in messages:
            error = message.error()
            if error is None:
                hold = self._cursors.holds.get(message.partition() or 0)
                if hold is not None:
                    hold.fetched = (message.offset() or 0) + 1
                    good.append(Taken(hold, message))
                continue
            self._hand_over(good)
            good = []
            self._on_error(error, message)
        self._hand_over(good)

    def _hand_over(self, records: list[Taken]) -> None:
        if records:
            self._ahead.fill(records)
            self._wake(self._some)

    def _on_error(self, error: KafkaError, message: Message) -> None:
        code = error.code()
        if code in LOST:
            self._lost_records(message)
        elif code in MISSING:
            self._is_another_stream()
        elif error.fatal() or code in FATAL:
            raise mapped(error, f"read stream {self.stream!r} as group {self.group!r}", self.stream)
        else:  # the library tries again by itself
            log.debug("group %s of stream %s: %s", self.group, self.stream, error.str())

    # --- rebalances, in the thread, inside of poll -------------------------------------------

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        mine = [one.partition for one in partitions]
        places = self._cursors.take_up(self._consumer, mine, self._is_stopping)
        if places is not None:
            self._consumer.assign(places)
            self._suspicious = not places
            self._wake(self._joined)

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self._ahead.drop()
        self._ahead.idle.wait(self._release_seconds)
        self._commit_done()
        self._cursors.give_back()

    def _assignment_lost(self, partitions: list[TopicPartition]) -> None:
        """The group went on without us, or the stream was deleted."""
        self._suspicious = True
        self._ahead.drop()
        self._cursors.forget("the group went on without this member")

    def _commit_done(self) -> None:
        self._commit_at = time.monotonic() + (self._commit_seconds or 0)
        if self._commit_seconds is not None:
            with contextlib.suppress(KafkaException):  # what is not committed now is at the next turn, or read again
                self._cursors.commit_done(self._consumer)

    # --- what goes wrong ---------------------------------------------------------------------

    def _lost_records(self, message: Message) -> None:
        """The position is not in the log: retention or an accident took records, or the log was cut behind it."""
        partition = message.partition() or 0
        hold = self._cursors.holds.get(partition)
        if hold is None or self._is_another_stream():
            return
        position = hold.fetched if message.offset() is None else message.offset() or 0
        if hold.fetched < 0 or position < hold.fetched:
            return  # of an assignment that is over: the library hands such errors on, records it drops
        found = self._cursors.ends(self._consumer, partition, self._is_stopping)
        if found is None:
            return
        start, end = found
        if self._on_lost == "error":
            raise RecordsLost(
                f"group {self.group!r} stands at offset {position} of partition {partition} of stream "
                f"{self.stream!r}, where the log has {start} to {end}: records were lost. Read on with "
                f'on_lost="skip", which counts them, or take another group'
            )
        target = min(max(position, start), end)
        self.skipped += max(0, target - position)
        log.warning(
            "group %s: partition %s of stream %s goes on at offset %s, not %s: records were lost",
            self.group, partition, self.stream, target, position,
        )  # fmt: skip
        self._ahead.drop()
        # Not seek: the library refuses it for a partition that it has stopped.
        self._consumer.assign(self._cursors.move(partition, target))

    def _is_another_stream(self) -> bool:
        """Whether the stream was deleted since this member joined. Then, says so once, waits, and joins it anew."""
        self._identity_at, self._suspicious = time.monotonic() + SDK_IDENTITY_SECONDS, False
        now = self._ask_identity(self._identity)
        if now == self._identity:
            return False
        if now is None:
            log.warning("group %s: stream %s was deleted: waiting until it is created again", self.group, self.stream)
        self._ahead.drop()
        self._cursors.forget("its stream was deleted")
        while now is None and not self._stopping:
            deadline = time.monotonic() + SDK_GONE_SECONDS
            while not self._stopping and time.monotonic() < deadline:
                self._consumer.poll(SDK_POLL_SECONDS)
            now = self._ask_identity(None)
        if not self._stopping:
            log.warning("group %s: stream %s was created again: reading on", self.group, self.stream)
            self._identity = now
            self._consumer.unsubscribe()
            self._subscribe()
        return True

    def _ask_identity(self, otherwise: bytes | None) -> bytes | None:
        """What the server says; `otherwise` while it says nothing."""
        try:
            return self._identify()
        except (HeadwaterError, TimeoutError):
            return otherwise

    def _is_stopping(self) -> bool:
        return self._stopping

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._wake(self._some)
        self._wake(self._joined)

    def _leave(self) -> None:
        with contextlib.suppress(KafkaException, HeadwaterError):
            self._serve()
            self._commit_done()
        while self._commits:
            hold, future = self._commits.popleft()
            future.set_exception(
                ConnectionFailed(f"partition {hold.partition} of {hold.stream!r}: the reader was closed")
            )
        with contextlib.suppress(KafkaException, HeadwaterError, RuntimeError):
            self._consumer.close()

    def _wake(self, event: asyncio.Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(event.set)
