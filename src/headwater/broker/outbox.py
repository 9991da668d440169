"""Answers of one connection, on their way to its socket: bytes, and ranges of files that the kernel sends itself.

The socket is written by nobody else. A head goes with MSG_MORE before the range it announces, so that both leave in
full packets; the kernel's send buffer is kept at 100 KiB (`send_buffer_bytes`), which measured 1.5x the rate of larger
ones. What the client does not take at once stays here, and of a file only the place: a slow reader costs little memory.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from headwater.config import GATHERED_BYTES, SENDFILE_BYTES_MIN
from headwater.errors import StorageFailed


class FileRange(Protocol):
    """Bytes of an open file; the log's `Slice` is one."""

    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...
    def fileno(self) -> int: ...
    def bytes(self) -> bytes: ...


Part = bytes | bytearray | memoryview | FileRange
MEMORY = (bytes, bytearray, memoryview)


class Outbox:
    __slots__ = ("_parts", "_sent")

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self._sent = 0  # bytes of the first part

    def put(self, parts: Sequence[Part]) -> None:
        self._parts.extend(parts)

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def held_bytes(self) -> int:
        """Of memory: file ranges hold none."""
        return sum(len(part) for part in self._parts if isinstance(part, MEMORY))

    def _gather(self) -> None:
        """What comes next becomes one piece: neighbouring bytes, and short file ranges.

        Those are read, which is cheaper than a call to send each. It is done when they are about to leave, and not
        far ahead: an answer may name a thousand short ranges, and its client may take none of them.
        """
        parts = self._parts
        run: list[bytes | bytearray | memoryview] = []
        size = 0
        while parts and size < GATHERED_BYTES:
            part = parts[0]
            if isinstance(part, MEMORY):
                run.append(part)
                size += len(part)
            elif part.length < SENDFILE_BYTES_MIN:
                read = part.bytes()
                if len(read) < part.length:
                    raise _cut()
                run.append(read)
                size += part.length
            else:
                break
            parts.popleft()
        if run:
            parts.appendleft(b"".join(run) if len(run) > 1 else run[0])

    def clear(self) -> None:
        self._parts.clear()

    def send(self, sock: socket.socket) -> bool:
        """Sends what the socket takes now; True when all is gone. OSError when the client is."""
        parts = self._parts
        while parts:
            if not self._sent and (len(parts) > 1 or parts[0].__class__ is not bytes):
                self._gather()
            part = parts[0]
            try:
                if isinstance(part, MEMORY):
                    size = len(part)
                    flags = socket.MSG_MORE if len(parts) > 1 else 0
                    gone = sock.send(memoryview(part)[self._sent :] if self._sent else part, flags)
                else:
                    size = part.length
                    gone = os.sendfile(sock.fileno(), part.fileno(), part.position + self._sent, size - self._sent)
                    if gone == 0:
                        raise _cut()
            except BlockingIOError:
                return False
            self._sent += gone
            if self._sent == size:
                parts.popleft()
                self._sent = 0
            elif not isinstance(part, MEMORY):
                return False  # the socket is full; asking again would only hear so
        return True


def _cut() -> StorageFailed:
    return StorageFailed("a log file is shorter than its partition believes: it was cut from outside")
