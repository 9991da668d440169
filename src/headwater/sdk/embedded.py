"""The broker of `./.headwater`, for a client that was given no address: found if it runs, started if not.

It is a process of its own, in a process group of its own (Ctrl-C does not reach it), and its output goes to
`.headwater/broker.log` (inherited pipes would block callers that capture output). Each client process shares the lock
on `.headwater/clients`; a broker that finds nobody on it for a while closes. Several programs that start at the same
instant may start several brokers: the directory's lock leaves one, and the others' clients connect to it. A child that
is forked is no client: it closes its copies of the lock and of the connections, which would keep the broker.

Only an embedded broker is started again when it is gone. `headwater up` serves until it is told to stop, and is nobody's
to resurrect.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
import time
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

from headwater.config import EMBEDDED_LOOK_SECONDS, EMBEDDED_START_SECONDS, Settings, settings_file
from headwater.errors import ConnectionFailed, InvalidSetting
from headwater.store import directory

_PAUSE_SECONDS = 0.02  # between two looks at a directory whose broker is coming or going
_LOG_TAIL_BYTES = 2_000


class Embedded:
    """One client's part in the broker of a data directory."""

    def __init__(self, data: str | Path | None) -> None:
        self._data = Path(_data_directory() if data is None else data).absolute()
        self._clients: directory.Clients | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._watch: asyncio.Task[None] | None = None
        self.address = ""
        _all.add(self)

    async def open(self) -> str:
        """The address of a broker that answers, started if need be. Cancelling leaves it to close by itself."""
        try:
            self._clients = directory.Clients(self._data)
        except (OSError, ValueError) as why:
            raise InvalidSetting(
                f"the data directory {self._data} cannot be used ({why}): correct that, or choose connect(data=...)"
            ) from why
        # A broker that is closing keeps the lock until its end: whoever gets it finds the directory free, or soon free.
        if not await asyncio.to_thread(self._clients.join, EMBEDDED_START_SECONDS):
            raise ConnectionFailed(f"the broker of {self._data} does not finish closing: stop it, or try again")
        self.address = await self._find_or_start()
        return self.address

    def keep(self, moved: Callable[[str], Awaitable[None]], address: str) -> None:
        """From now on a broker that is gone is started again; `moved` is told when its address is another."""
        self._watch = asyncio.create_task(self._look_after(moved, address), name="headwater embedded broker")

    async def close(self) -> None:
        """Lets the broker go: it closes some seconds after its last client."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._clients is not None:
            self._clients.leave()
        if self._child is not None:
            self._child.poll()
            _left.append(self._child)

    async def _look_after(self, moved: Callable[[str], Awaitable[None]], address: str) -> None:
        while True:
            await asyncio.sleep(EMBEDDED_LOOK_SECONDS)
            if directory.holder(self._data) is None:
                last = directory.address(self._data)
                if last is not None and last.kind == "embedded":
                    with contextlib.suppress(ConnectionFailed):  # tried again at the next look
                        await self._find_or_start()
            where = directory.address(self._data)
            if where is not None and str(where) != address:
                address = self.address = str(where)
                await moved(address)

    async def _find_or_start(self) -> str:
        deadline = time.monotonic() + EMBEDDED_START_SECONDS
        while time.monotonic() < deadline:
            holder = directory.holder(self._data)
            if holder is None:
                await self._start()
            else:
                where = directory.address(self._data)
                if where is not None and where.pid == holder and await _answers(where):
                    return str(where)
            await asyncio.sleep(_PAUSE_SECONDS)
        raise ConnectionFailed(
            f"no broker answers for {self._data} within {EMBEDDED_START_SECONDS:g} s: see {self._data / 'broker.log'}"
            f"{self._last_words()}"
        )

    async def _start(self) -> None:
        """Starts a broker unless ours is on its way; one that ended without a holder to blame says why in its log."""
        if self._child is not None:
            code = self._child.poll()
            if code is None:
                return
            self._child = None
            if code not in {0, -9, -15} and directory.holder(self._data) is None:
                raise ConnectionFailed(f"the broker of {self._data} did not start:{self._last_words()}")
            return
        self._child = await asyncio.to_thread(self._spawn)

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headwater", "up", "--embedded", "--data", str(self._data)]
        with (self._data / "broker.log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
            )

    def _last_words(self) -> str:
        with contextlib.suppress(OSError), (self._data / "broker.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
            if lines:
                return " " + lines[-1]
        return " its log is empty"


_left: list[subprocess.Popen[bytes]] = []  # brokers we started, which outlive their clients: kept so that none warns


_all: weakref.WeakSet[Embedded] = weakref.WeakSet()


def _leave_connections_to_the_parent() -> None:
    """In a forked child: nothing closes them otherwise, and its copies outlive the parent's (so would the broker)."""
    addresses = {one.address for one in _all if one.address}
    if not addresses:
        return
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in [int(one.name) for one in Path("/dev/fd").iterdir()]:  # Linux and macOS both have it
        with contextlib.suppress(OSError):  # not connected, or the descriptor of this very listing
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode) and _peer(descriptor) in addresses:
                os.dup2(
                    nowhere, descriptor, inheritable=False
                )  # a dead client in this child must not meet another file
    os.close(nowhere)


def _peer(descriptor: int) -> str:
    sock = socket.socket(fileno=descriptor)
    try:
        if sock.family not in {socket.AF_INET, socket.AF_INET6}:
            return ""
        host, port = sock.getpeername()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    finally:
        sock.detach()


os.register_at_fork(after_in_child=_leave_connections_to_the_parent)


async def _answers(where: directory.Address) -> bool:
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_connection(where.host, where.port)
    except OSError:
        return False
    writer.close()
    return True


def _data_directory() -> str:
    return Settings.resolve({}, os.environ, settings_file()).data
