"""One client: its requests in the order they came, its answers in the same order.

The socket is ours, not a transport's, since answers are files as often as bytes (`outbox.py`). All of this runs on the
loop's thread and blocks nowhere.

Produce requests may follow each other without waiting, up to `ANSWERS_WAITING_MAX`; after any other request the next
one waits for its answer, as in Kafka, where a client's requests never overtake each other. What has arrived meanwhile
stays in the inbox, and beyond it in the kernel: then the client's own writes block, which is how it learns of it.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headwater.broker.apis import Api
from headwater.broker.inbox import Inbox
from headwater.broker.outbox import Outbox
from headwater.config import (
    ANSWERS_WAITING_MAX,
    CONTENDED_BYTES_PER_SECOND_MIN,
    CONTENDED_GRACE_SECONDS,
    FRAME_BYTES_PER_SECOND_MIN,
    FRAME_GRACE_SECONDS,
    RECEIVE_BYTES,
)
from headwater.errors import HeadwaterError, ProtocolError
from headwater.wire.fields import Part
from headwater.wire.framing import frame_response

if TYPE_CHECKING:
    from headwater.broker.repeats import Shape
    from headwater.broker.server import Broker

log = logging.getLogger("headwater.broker")


class Reply:
    """One request's place in the order of answers. Answering it twice, or after its client has gone, does nothing."""

    __slots__ = ("api", "connection", "correlation_id", "on_close", "parts", "version")

    def __init__(self, connection: Connection, api: Api, version: int, correlation_id: int) -> None:
        self.connection, self.api, self.version, self.correlation_id = connection, api, version, correlation_id
        self.parts: list[Any] | None = None
        self.on_close: Callable[[], object] | None = None  # told when nobody waits for the answer any more

    def prepare(self, response: Any, version: int | None = None) -> None:
        """Encodes the answer; it leaves when `connection.deliver` is called and those before it have left."""
        said = self.version if version is None else version
        try:
            self.prepare_body(self.api.encode(response, said), said)
        except Exception as why:  # a bug; who else is answered in this turn has nothing to do with it
            log.exception("%s version %d has no encoding of its answer", self.api.name, said)
            self.connection.close(why)

    def prepare_body(self, body: Sequence[Part], version: int) -> None:
        """As `prepare`, for a body that is encoded already: bytes, and file ranges with a `length`."""
        self.parts = frame_response(self.correlation_id, self.api.response_header_version(version), body)

    def send(self, response: Any, version: int | None = None) -> None:
        """Prepares and delivers: the way of all answers that are not gathered."""
        self.on_close = None
        if self.connection.open:
            self.prepare(response, version)
            self.connection.deliver()

    def fail(self, why: Exception) -> None:
        """There is no answer to this request: its client is told by the end of its connection."""
        self.connection.close(why)


class Connection:
    """See the module. `close` may be called at any time, from anything on the loop's thread, and more than once."""

    __slots__ = (
        "_broker",
        "_held",
        "_inbox",
        "_outbox",
        "_owed",
        "_reading",
        "_replies",
        "_serving",
        "_socket",
        "_writing",
        "active_at",
        "alone",
        "fd",
        "open",
        "partial_since",
        "peer",
        "shape",
        "waits_for_room",
    )

    def __init__(self, broker: Broker, sock: socket.socket, peer: str) -> None:
        self._broker, self._socket, self.peer = broker, sock, peer
        self.fd = sock.fileno()
        self._inbox = Inbox(broker.arena, broker.settings.frame_bytes_max)
        self._outbox = Outbox()
        self._replies: deque[Reply] = deque()
        self.alone: Reply | None = None  # a request that the next one has to wait for
        self._held = 0  # bytes of the budget: of the inbox's buffer
        self._owed = 0  # and of answers the client does not take
        self._reading = self._writing = self._serving = False
        self.waits_for_room = False
        self.shape: Shape | None = None  # of its last Produce request
        self.open = True
        self.active_at = time.monotonic()
        self.partial_since = 0.0  # when the request began that has not arrived whole; 0: there is none
        self._read(True)

    # --- in --------------------------------------------------------------------------------------

    def _readable(self) -> None:
        broker, inbox = self._broker, self._inbox
        if broker.gather.turn:
            broker.gather.make_way(buffer_is_used_again=inbox.begins_anew)
        else:
            broker.arena.reset()
        try:
            count = inbox.receive(self._socket)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as why:
            self.close(why)
            return
        if count == 0:
            self.close(None)
            return
        self.active_at = broker.now
        self._serve()

    def _serve(self) -> None:
        """Takes up what has arrived, as far as it may be taken up now."""
        if self._serving:
            return  # an answer that came at once: the loop below goes on by itself
        self._serving = True
        inbox, take_up = self._inbox, self._broker.take_up
        try:
            while (
                self.alone is None
                and not self._writing
                and not self._broker.draining
                and len(self._replies) < ANSWERS_WAITING_MAX
            ):
                frame = inbox.next_frame()
                if frame is None:
                    break
                self.partial_since = 0.0
                take_up(self, frame)
                if not self.open:
                    return
        except ProtocolError as why:
            self.close(why)
            return
        except Exception as why:
            log.exception("a request of %s could not be taken up", self.peer)
            self.close(why)  # silence would have it wait for an answer that nobody is making
            return
        finally:
            self._serving = False
        if not inbox.is_bare or not self._reading:
            self._settle()

    def _settle(self) -> None:
        """What did not become a request is kept, and reading goes on, or waits."""
        inbox = self._inbox
        need = inbox.need()
        if need:
            self._make_room(need)
        blocked = self.alone is not None or self._writing or len(self._replies) >= ANSWERS_WAITING_MAX
        left = inbox.left
        if not left or blocked:
            self.partial_since = 0.0
        elif not self.partial_since:
            self.partial_since = time.monotonic()
            self._broker.dawdlers.add(self)
        self._read(not self.waits_for_room and not (left and blocked))

    def _make_room(self, need: int) -> None:
        """A larger buffer, as soon as the budget of all connections has room for it."""
        want = need if need > RECEIVE_BYTES else 0
        broker = self._broker
        broker.budget_for(self._held).give(self._held)  # of the old buffer, from which what is left is taken out
        self._held = 0
        if want and not broker.budget_for(want).take(want, self._room_was_made):
            self.waits_for_room = True
            self._inbox.grow(self._inbox.left)
            return
        self._held = want
        self._inbox.grow(need)

    def _room_was_made(self) -> None:
        self.waits_for_room = False
        need = self._inbox.need()
        self._held = need
        self._inbox.grow(need)
        self.partial_since = time.monotonic()
        self._read(True)

    def _read(self, wanted: bool) -> None:
        if wanted != self._reading and self.open:
            self._reading = wanted
            if wanted:
                self._broker.loop.add_reader(self.fd, self._readable)
            else:
                self._broker.loop.remove_reader(self.fd)

    # --- out -------------------------------------------------------------------------------------

    def expect(self, reply: Reply, *, alone: bool) -> None:
        """An answer will follow; if `alone`, nothing else is taken up before it."""
        self._replies.append(reply)
        if alone:
            self.alone = reply

    def deliver(self) -> None:
        """Sends the answers that are there, up to the first that is not."""
        if not self.open:
            return
        replies = self._replies
        ready: list[Any] | None = None
        while replies and (parts := replies[0].parts) is not None:
            if replies.popleft() is self.alone:
                self.alone = None
            ready = parts if ready is None else ready + parts
        if ready is not None:
            self._outbox.put(ready)
            if not self._writing:
                self._send()
        if self.open and self.alone is None and self._inbox.left:
            self._serve()

    def _send(self) -> None:
        try:
            done = self._outbox.send(self._socket)
        except (OSError, HeadwaterError) as why:
            self.close(why)
            return
        self.active_at = self._broker.now
        if self._owed or not done:
            owes = 0 if done else self._outbox.held_bytes
            self._broker.budget.give(self._owed - owes)
            self._owed = owes
        if done and self._writing:
            self._writing = False
            self._broker.loop.remove_writer(self.fd)
            self._serve()
        elif not done and not self._writing:
            self._writing = True
            self._broker.loop.add_writer(self.fd, self._send)

    # --- its end ---------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """An answer is outstanding, or not yet taken by the client."""
        return bool(self._replies) or self._writing

    @property
    def awaits_answer(self) -> bool:
        return bool(self._replies)

    def dawdles(self, now: float) -> bool:
        """The request that it began comes too slowly."""
        if not self.partial_since or self.waits_for_room:
            return False
        beyond = now - self.partial_since - FRAME_GRACE_SECONDS
        return beyond > 0 and self._inbox.left < beyond * FRAME_BYTES_PER_SECOND_MIN

    def was_reset(self) -> bool:
        """Asks the socket. Uvloop tells of a reset once, with the data that came before it if there are some.

        Whoever has only read those is not told again, and would keep the connection until it is idle for too long.
        """
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def hoards(self, now: float) -> bool:
        """It was given room that others wait for, and does not fill it."""
        began = now - self.partial_since
        slow = self._inbox.left < began * CONTENDED_BYTES_PER_SECOND_MIN
        return bool(self._held and self.partial_since) and began > CONTENDED_GRACE_SECONDS and slow

    def rest(self) -> None:
        """Nothing came for a while: the large buffer goes back."""
        if self._held and not self._inbox.left:
            self._inbox.rest()
            self._broker.budget_for(self._held).give(self._held)
            self._held = 0

    def close(self, why: Exception | None) -> None:
        if not self.open:
            return
        self._read(False)
        self.open = False
        if self._writing:
            self._broker.loop.remove_writer(self.fd)
        self._socket.close()
        self._outbox.clear()
        broker = self._broker
        if self.waits_for_room:
            broker.budget.forget(self._room_was_made)
            broker.budget_of_small.forget(self._room_was_made)
        if self._held or self._owed:
            broker.budget_for(self._held).give(self._held)
            broker.budget.give(self._owed)
            self._held = self._owed = 0
        replies, self._replies = self._replies, deque()
        for reply in replies:
            if reply.on_close is not None:
                reply.on_close()
        self._broker.gone(self, why)
