"""The listening socket: what is bound, what clients are told, and who is let in."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import TYPE_CHECKING

from headwater.config import ACCEPT_PAUSE_SECONDS, ACCEPTS_PER_TURN, DESCRIPTORS_FOR_FLUSHES, LISTEN_BACKLOG, Settings
from headwater.errors import CannotListen, InvalidSetting
from headwater.log import is_among_the_last

if TYPE_CHECKING:
    from headwater.broker.server import Broker

PORT_MAX = 65_535
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Listener:
    def __init__(self, broker: Broker, settings: Settings) -> None:
        self._broker, self._settings = broker, settings
        self._socket: socket.socket | None = None
        self._reading = False

    def bind(self) -> tuple[str, int]:
        """Takes the address; connections wait in the kernel until `open`."""
        settings = self._settings
        if settings.port > PORT_MAX:  # the resolver would take it modulo 65536
            raise InvalidSetting(f"--port {settings.port}: ports end at {PORT_MAX}, choose one below, or 0 for any")
        family, address = _resolve(settings.host, settings.port)
        if not settings.insecure and not ipaddress.ip_address(address[0]).is_loopback:
            raise CannotListen(
                f"{settings.host} can be reached from other machines, and there is no authentication yet: "
                "leave --host out, or say --insecure"
            )
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind(address)
            sock.listen(LISTEN_BACKLOG)
        except OSError as why:
            sock.close()
            if why.errno == errno.EADDRINUSE:
                raise CannotListen(
                    f"{settings.host}:{settings.port} is taken: stop who listens there, or choose --port (0: any)"
                ) from why
            raise CannotListen(
                f"{settings.host}:{settings.port} cannot be listened on ({why.strerror}): choose --host and --port"
            ) from why
        self._socket = sock
        return self.bound

    @property
    def bound(self) -> tuple[str, int]:
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def advertised(self) -> tuple[str, int]:
        """What clients are told: what was bound, unless the operator knows better."""
        host, port = self.bound
        said = self._settings.advertise
        if said:
            name, colon, number = said.rpartition(":")
            if not colon:
                return said, port
            if not name or not number.isdigit():
                raise InvalidSetting(f"--advertise wants HOST or HOST:PORT, not {said!r}")
            return name.strip("[]"), int(number)
        if ipaddress.ip_address(host).is_unspecified:
            raise InvalidSetting(
                f"{host} is no address that a client could connect to: say --advertise HOST, the name they know"
            )
        return host, port

    def open(self) -> None:
        if self._socket is not None and not self._reading:
            self._reading = True
            self._broker.loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        if self._socket is not None:
            self._pause()
            self._socket.close()
            self._socket = None

    def _pause(self) -> None:
        if self._socket is not None and self._reading:
            self._reading = False
            self._broker.loop.remove_reader(self._socket.fileno())

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self._socket is None:
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as why:
                if why.errno not in _EXHAUSTED:
                    raise
                self._pause()
                self._broker.loop.call_later(ACCEPT_PAUSE_SECONDS, self.open)
                return
            full = len(self._broker.connections) >= self._settings.connections_max
            if full or is_among_the_last(sock.fileno(), DESCRIPTORS_FOR_FLUSHES):
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer_bytes)
            self._broker.welcome(sock, str(address[0]))


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, OverflowError) as why:
        raise CannotListen(f"{host}:{port} is no address of this machine ({why}): choose --host and --port") from why
    family, _, _, _, address = found[0]
    return family, (str(address[0]), int(address[1]))
