"""Bytes of one connection, on their way to becoming frames.

Small requests are read into the arena that all share. A frame that did not arrive whole gets a buffer of its own and
is read exactly to its end, so that its payload is not copied again; a large buffer stays for the next large frame.

What was handed out as a frame is never overwritten within the turn: left-over bytes move to a fresh buffer instead.
"""

from __future__ import annotations

import mmap
from struct import Struct
from typing import Protocol

from headwater.broker.limits import Arena
from headwater.config import FRAME_BYTES_MIN, MAPPED_BYTES_MIN, PARTIAL_BYTES, RECEIVE_BYTES
from headwater.errors import ProtocolError

_INT32 = Struct(">i")
_NOTHING = memoryview(bytearray(0))


class Source(Protocol):
    """What is read from: a socket that does not block."""

    def recv_into(self, buffer: memoryview, /) -> int: ...


class Inbox:
    __slots__ = ("_arena", "_at", "_end", "_frame_bytes_max", "_last", "_own", "_view", "_want")

    def __init__(self, arena: Arena, frame_bytes_max: int) -> None:
        self._arena = arena
        self._frame_bytes_max = frame_bytes_max
        self._own = False  # whether _view is a buffer of ours, or a piece of the arena
        self._view = _NOTHING
        self._at = self._end = 0  # what of _view is received, and not yet handed out
        self._want = 0  # where the next read into a buffer of ours ends
        self._last = 0  # bytes of the last large frame: the next one is probably as large

    @property
    def capacity(self) -> int:
        """Bytes of the buffer of its own, 0 without one."""
        return len(self._view) if self._own else 0

    @property
    def left(self) -> int:
        """Bytes received and not handed out."""
        return self._end - self._at

    @property
    def is_bare(self) -> bool:
        """Nothing is left, and there is no buffer that something could be done with."""
        return self._at == self._end and not self._own

    @property
    def begins_anew(self) -> bool:
        """The next read goes into a buffer whose frames were handed out before."""
        return self._own and not self._end

    def receive(self, sock: Source) -> int:
        """Reads once; 0 at the end of the stream. BlockingIOError when there is nothing."""
        if not self._own:
            room = self._arena.room()
            count = sock.recv_into(room)
            self._arena.took(count)
            self._view, self._at, self._end = room, 0, count
            return count
        count = sock.recv_into(self._view[self._end : self._want])
        self._end += count
        return count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, or None. ProtocolError when its length cannot be."""
        at = self._at
        have = self._end - at - 4
        if have < 0:
            return None
        (length,) = _INT32.unpack_from(self._view, at)
        if not FRAME_BYTES_MIN <= length <= self._frame_bytes_max:
            raise ProtocolError(
                f"a request of {length} bytes: {FRAME_BYTES_MIN} to {self._frame_bytes_max} are allowed"
                " (frame_bytes_max)"
            )
        if have < length:
            return None
        self._at = at = at + 4 + length
        return self._view[at - length : at]

    def need(self) -> int:
        """Bytes of a buffer that holds what is left, and the rest of its frame; 0 when this one will do."""
        left = self._end - self._at
        if left == 0:
            if self._own and len(self._view) <= RECEIVE_BYTES:
                self._let_go()
            elif self._own:
                self._at = self._end = 0
                self._want = self._last or len(self._view)
            return 0
        need = max(self._frame_bytes() if left >= 4 else 0, left)
        if self._own and self._at == 0 and need <= len(self._view):
            self._want = max(need, self._end)
            if self._want == self._end:
                self._want = len(self._view)
            return 0
        return need

    def grow(self, need: int) -> None:
        """Moves what is left to a fresh buffer of at least `need` bytes."""
        size = max(need, PARTIAL_BYTES)
        fresh = memoryview(mmap.mmap(-1, size) if size >= MAPPED_BYTES_MIN else bytearray(size))
        left = self._end - self._at
        fresh[:left] = self._view[self._at : self._end]
        self._own, self._view, self._at, self._end = True, fresh, 0, left
        self._want = need if need > left else size
        self._last = need if need > RECEIVE_BYTES else 0

    def rest(self) -> None:
        """Gives the large buffer back, when nothing is in it."""
        if self._own and self._end == self._at:
            self._let_go()

    def _frame_bytes(self) -> int:
        """Of the frame that has begun, its length included; a length that cannot be is met by next_frame."""
        (length,) = _INT32.unpack_from(self._view, self._at)
        return 4 + int(length) if FRAME_BYTES_MIN <= length <= self._frame_bytes_max else 0

    def _let_go(self) -> None:
        self._own, self._view, self._at, self._end = False, _NOTHING, 0, 0
