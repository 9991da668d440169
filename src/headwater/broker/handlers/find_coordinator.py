"""FindCoordinator (10), versions 0-6.

v1 key types and an error message; v3 flexible; v4 many keys at once, each with an answer of its own; v6 share groups.
One node coordinates every group, so the answer is always this broker, as it is advertised.

Differs from Kafka: transactions (key type 1) are refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, at which clients
stop instead of asking for ever; share groups (key type 2) with INVALID_REQUEST, as Kafka does while they are off.
"""

from __future__ import annotations

from headwater.broker.context import Context
from headwater.broker.server import NODE_ID
from headwater.errors import InvalidRequest, TransactionsNotServed, WireError
from headwater.wire.messages.find_coordinator import Coordinator, Request, Response

MANY_FROM = 4
GROUP, TRANSACTION, SHARE = 0, 1, 2


async def handle(request: Request, context: Context) -> Response:
    """Never waits."""
    keys = request.coordinator_keys if context.version >= MANY_FROM else [request.key]
    found = [_find(key, request.key_type, context) for key in keys]
    if context.version >= MANY_FROM:
        return Response(coordinators=found)
    (one,) = found
    return Response(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


def _find(key: str, key_type: int, context: Context) -> Coordinator:
    try:
        _check(key_type)
    except WireError as why:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=why.code, error_message=str(why))
    host, port = context.broker.advertised
    return Coordinator(key=key, node_id=NODE_ID, host=host, port=port, error_message=None)


def _check(key_type: int) -> None:
    if key_type == TRANSACTION:
        raise TransactionsNotServed("transactions are not served: leave out transactional.id")
    if key_type == SHARE:
        raise InvalidRequest("share groups are not served: read with an ordered group")
    if key_type != GROUP:
        raise InvalidRequest(f"there is no coordinator of type {key_type}: 0 is a group's")
