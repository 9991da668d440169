"""A Kafka client with nothing between the program and the socket, for benchmarks and for tests of the protocol.

`Raw` asks one request at a time. `lone` and `crowd` send a frame that is encoded once, so that what they measure is the
broker, not the client's own work.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from importlib import import_module
from types import ModuleType, TracebackType
from typing import Any, Self

from headwater.batch import BatchRecord, encode
from headwater.wire.framing import frame_request, parse_response_header

_INT32 = struct.Struct(">i")
PRODUCE_VERSION = 9


def codec(name: str) -> ModuleType:
    return import_module(f"headwater.wire.messages.{name}")


class Raw:
    """One connection, one request at a time."""

    def __init__(self, address: str, *, timeout: float = 30.0, client_id: str = "raw") -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def ask(self, name: str, version: int, /, **fields: Any) -> Any:
        """Sends `Request(**fields)` of that API, and returns its response."""
        self.send(name, version, **fields)
        return self.receive(name, version)

    def send(self, name: str, version: int, /, **fields: Any) -> None:
        self._correlation_id += 1
        self.socket.sendall(request_frame(name, version, self._correlation_id, self._client_id, **fields))

    def receive(self, name: str, version: int) -> Any:
        frame = self.receive_frame()
        module = codec(name)
        flexible = version >= module.FLEXIBLE_FROM and module.KEY != 18
        _, at = parse_response_header(frame, int(flexible))
        return module.decode_response(frame[at:], version)

    def receive_frame(self) -> memoryview:
        (length,) = _INT32.unpack(_exactly(self.socket, 4))
        return memoryview(_exactly(self.socket, length))


def request_frame(name: str, version: int, correlation_id: int, client_id: str, /, **fields: Any) -> bytes:
    module = codec(name)
    body = module.encode_request(module.Request(**fields), version)
    flexible = version >= module.FLEXIBLE_FROM
    parts: list[Any] = list(frame_request(module.KEY, version, correlation_id, client_id, body, flexible=flexible))
    return b"".join(parts)


def batch_of(values: list[bytes], *, timestamp_ms: int | None = None, **options: Any) -> bytes:
    now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
    return encode(
        [
            BatchRecord(offset=number, timestamp_ms=now_ms, key=None, value=value, headers=())
            for number, value in enumerate(values)
        ],
        **options,
    )


def produce_frame(stream: str, partition: int, batch: bytes, *, acks: int = -1) -> bytes:
    module = codec("produce")
    part = module.PartitionProduceData(index=partition, records=memoryview(batch))
    topic = module.TopicProduceData(name=stream, partition_data=[part])
    return request_frame("produce", PRODUCE_VERSION, 1, "raw", acks=acks, timeout_ms=30_000, topic_data=[topic])


def produce_error(frame: bytes | memoryview) -> int:
    """The error code of a Produce answer for one partition."""
    response = codec("produce").decode_response(memoryview(frame)[5:], PRODUCE_VERSION)
    return int(response.responses[0].partition_responses[0].error_code)


def lone(address: str, frame: bytes, count: int) -> list[float]:
    """Seconds of each of `count` round trips on one connection, one after another."""
    seconds = []
    with Raw(address) as raw:
        sock = raw.socket
        sock.settimeout(None)
        for number in range(count):
            begun = time.perf_counter()
            sock.sendall(frame)
            answer = sock.recv(4096)
            seconds.append(time.perf_counter() - begun)
            if number == 0 and (code := produce_error(answer[4:])):
                raise RuntimeError(f"the broker answered error {code}")
    return seconds


def crowd(address: str, frame: bytes, connections: int, seconds: float) -> float:
    """Requests a second of many connections that each send their next request as soon as the last was answered."""
    host, _, port = address.rpartition(":")
    epoll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as stack:
        for _ in range(connections):
            one = stack.enter_context(socket.create_connection((host, int(port))))
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sockets[one.fileno()] = one
            epoll.register(one.fileno(), select.EPOLLIN)
        stack.callback(epoll.close)
        for one in sockets.values():
            one.sendall(frame)
        answers = 0
        begun = time.perf_counter()
        end = begun + seconds
        while (now := time.perf_counter()) < end:
            for descriptor, _ in epoll.poll(1.0, connections):
                one = sockets[descriptor]
                if not one.recv(4096):
                    raise RuntimeError("the broker closed a connection")
                answers += 1
                one.send(frame)
        return answers / (now - begun)


def _exactly(sock: socket.socket, count: int) -> bytearray:
    buffer = bytearray(count)
    view, at = memoryview(buffer), 0
    while at < count:
        got = sock.recv_into(view[at:])
        if not got:
            raise ConnectionError(f"the connection ended after {at} of {count} bytes")
        at += got
    return buffer
