"""Heartbeat (12), versions 0-4.

v3 static members; v4 flexible. The way a member learns that it has to join again: REBALANCE_IN_PROGRESS when the
others gather, UNKNOWN_MEMBER_ID when it is out.

Differs from Kafka: UNKNOWN_MEMBER_ID also comes after a restart of the broker, since generations live in memory, and
when a stream that the group reads was deleted, so that no old commit reaches a stream created under its name.
"""

from __future__ import annotations

from headwater.broker.context import Context
from headwater.errors import WireError
from headwater.groups import Identity
from headwater.model import GroupName
from headwater.wire.messages.heartbeat import Request, Response


async def handle(request: Request, context: Context) -> Response:
    """Never waits."""
    who = Identity(member_id=request.member_id, instance_id=request.group_instance_id)
    try:
        context.broker.groups.heartbeat(GroupName(request.group_id), who, request.generation_id)
    except WireError as why:
        return Response(error_code=why.code)
    return Response()
