"""Standard input, line by line, for a program that must also hear Ctrl-C and keep its connections alive.

A thread reads the descriptor, not `sys.stdin`: a thread that waits inside of Python's own buffer would hold a lock that
the interpreter wants when it ends. What has arrived is given at once, so that `tail -f x | headwater publish y` keeps up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator

from headwater.config import SDK_RECORD_BYTES_MAX
from headwater.errors import RecordTooLarge

_READ_BYTES = 256 * 1024


async def lines_of(descriptor: int, bytes_max: int = SDK_RECORD_BYTES_MAX) -> AsyncIterator[list[bytes]]:
    """The lines that came together, without their ends; empty ones are left out. Ends where the input ends."""
    begun: list[bytes] = []  # of a line whose end has not come yet
    begun_bytes = 0
    while data := await _read(descriptor):
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join([*begun, whole[0]])
            begun, begun_bytes = [], 0
            if found := [text for line in whole if (text := line.removesuffix(b"\r"))]:
                yield found
        begun.append(rest)
        begun_bytes += len(rest)
        if begun_bytes > bytes_max:
            raise RecordTooLarge(f"a line of the input is longer than {bytes_max} bytes: a record is one line")
    if last := b"".join(begun):
        yield [last]


async def _read(descriptor: int) -> bytes:
    """What is there, or the first that comes. Cancelling leaves the thread waiting: it ends with the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bytes] = loop.create_future()

    def settle(data: bytes, error: OSError | None) -> None:
        if not future.done():
            future.set_exception(error) if error else future.set_result(data)

    def read() -> None:
        data, error = b"", None
        try:
            data = os.read(descriptor, _READ_BYTES)
        except OSError as why:
            error = why
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
            loop.call_soon_threadsafe(settle, data, error)

    threading.Thread(target=read, name="headwater stdin", daemon=True).start()
    return await future
