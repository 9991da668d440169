"""The one table of what is served: ApiVersions answers from it, and every request is looked up in it.

One line per API. Its codec (`headwater.wire.messages.<name>`) and its handler (`headwater.broker.handlers.<name>`)
are imported at its first use: importing all of them takes longer than everything else a start does.

A handler's module has `async def handle(request, context) -> response`. What it raises as a `WireError` it has to map
into its own response; only a bug gets out, which is logged with its traceback and closes the connection: an
UNKNOWN_SERVER_ERROR would make some clients number their records anew and write them twice. Produce and
Fetch have `begin(broker, connection, reply, request)` instead: they answer when something happens, without a task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any

from headwater.broker.context import Context

Decode = Callable[[memoryview, int], Any]
Encode = Callable[[Any, int], Sequence[Any]]
Handle = Callable[[Any, Context], Awaitable[Any]]
Begin = Callable[[Any, Any, Any, Any], None]


class Api:
    """One API: its key, the versions that are served, and (once asked for) its codec and its handler."""

    __slots__ = ("_loaded", "advertised_low", "flexible_from", "high", "key", "low", "name")

    def __init__(
        self, key: int, name: str, low: int, high: int, *, flexible_from: int, advertised_low: int | None = None
    ) -> None:
        self.key, self.name, self.low, self.high = key, name, low, high
        self.flexible_from = flexible_from
        self.advertised_low = low if advertised_low is None else advertised_low
        self._loaded: tuple[Decode, Encode, Any] | None = None

    @property
    def decode(self) -> Decode:
        return (self._loaded or self._load())[0]

    @property
    def encode(self) -> Encode:
        return (self._loaded or self._load())[1]

    @property
    def handle(self) -> Handle:
        handle: Handle = (self._loaded or self._load())[2].handle
        return handle

    @property
    def begin(self) -> Begin:
        begin: Begin = (self._loaded or self._load())[2].begin
        return begin

    def response_header_version(self, version: int) -> int:
        """0 or 1. ApiVersions always answers with 0, so that a client of any age can read it (KIP-511)."""
        return int(version >= self.flexible_from and self.key != 18)

    def _load(self) -> tuple[Decode, Encode, Any]:
        codec = import_module(f"headwater.wire.messages.{self.name}")
        handler = import_module(f"headwater.broker.handlers.{self.name}")
        self._loaded = codec.decode_request, codec.encode_response, handler
        return self._loaded


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        # Kafka 4 advertises Produce from 0 though it serves from 3: older librdkafka sends uncompressed otherwise (KAFKA-18659)
        Api(0, "produce", 3, 13, flexible_from=9, advertised_low=0),
        Api(1, "fetch", 4, 18, flexible_from=12),
        Api(2, "list_offsets", 1, 11, flexible_from=6),
        Api(3, "metadata", 0, 13, flexible_from=9),
        Api(8, "offset_commit", 2, 10, flexible_from=8),
        Api(9, "offset_fetch", 1, 10, flexible_from=6),
        Api(10, "find_coordinator", 0, 6, flexible_from=3),
        Api(11, "join_group", 0, 9, flexible_from=6),
        Api(12, "heartbeat", 0, 4, flexible_from=4),
        Api(13, "leave_group", 0, 5, flexible_from=4),
        Api(14, "sync_group", 0, 5, flexible_from=4),
        Api(18, "api_versions", 0, 4, flexible_from=3),
        Api(19, "create_topics", 2, 7, flexible_from=5),
        Api(20, "delete_topics", 1, 6, flexible_from=4),
        Api(22, "init_producer_id", 0, 5, flexible_from=2),  # Kafka 4.3 holds 6 back: it is for two-phase commit
        Api(23, "offset_for_leader_epoch", 2, 4, flexible_from=4),
        Api(32, "describe_configs", 1, 4, flexible_from=4),
        Api(60, "describe_cluster", 0, 2, flexible_from=0),
    )
}
