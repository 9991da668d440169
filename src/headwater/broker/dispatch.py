"""From a frame to its handler.

An API that is not served, or a version that is not, ends the connection, as in Kafka; only ApiVersions answers a
version it does not know, in version 0 and with the table, so that a newer client can lower its voice.

Produce and Fetch are called back by what they wait for and have no task of their own. All other handlers are coroutines;
each runs as a task of the broker's group, and ends with its connection.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from headwater.broker import repeats
from headwater.broker.apis import APIS, Api
from headwater.broker.connection import Connection, Reply
from headwater.broker.context import Context
from headwater.errors import ProtocolError
from headwater.wire.framing import parse_request_header

if TYPE_CHECKING:
    from headwater.broker.server import Broker

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
FLEXIBLE_FROM = {api.key: api.flexible_from for api in APIS.values()}
log = logging.getLogger("headwater.broker")


class Dispatch:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.request_count = 0

    def take_up(self, connection: Connection, frame: memoryview) -> None:
        """Starts one request. ProtocolError when its connection has to end."""
        self.request_count += 1
        broker = self._broker
        if repeats.take_up(broker, connection, frame):
            return
        header = parse_request_header(frame, FLEXIBLE_FROM)
        api = APIS.get(header.api_key)
        if api is None:
            raise ProtocolError(f"API {header.api_key} is not served")
        version = header.version
        reply = Reply(connection, api, version, header.correlation_id)
        if not api.low <= version <= api.high:
            self._refuse_version(connection, reply)
            return
        body = frame[header.body_at :]
        if header.api_key == PRODUCE:
            request = api.decode(body, version)
            repeats.learn(broker, frame, reply, request)
            api.begin(broker, connection, reply, request)
            return
        broker.gather.flush_if_any()  # what this client sent before this request is written before it is answered
        if header.api_key == FETCH:
            request = api.decode(body, version)
            connection.expect(reply, alone=True)
            api.begin(broker, connection, reply, request)
            return
        request = api.decode(memoryview(bytes(body)), version)  # a task may look at it later than this turn
        connection.expect(reply, alone=True)
        context = Context(broker=broker, version=version, client_id=header.client_id, client_host="/" + connection.peer)
        task = broker.tasks.create_task(self._handle(api, request, context, reply))
        reply.on_close = task.cancel

    async def _handle(self, api: Api, request: Any, context: Context, reply: Reply) -> None:
        """Cancelled when its client goes away: forgets the answer, not what the handler has begun.

        Nothing may get out of it: a task group ends with the first of its tasks that fails, and the broker with it.
        """
        try:
            reply.send(await api.handle(request, context))
        except Exception as why:
            log.exception("%s version %d could not be answered", api.name, context.version)
            reply.on_close = None
            reply.fail(why)

    def _refuse_version(self, connection: Connection, reply: Reply) -> None:
        if reply.api.key != API_VERSIONS:
            raise ProtocolError(f"{reply.api.name} version {reply.version} is not served")
        from headwater.broker.handlers.api_versions import unsupported

        connection.expect(reply, alone=True)
        reply.send(unsupported(), version=0)
