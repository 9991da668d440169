"""SyncGroup (14), versions 0-5.

v3 static members; v4 flexible; v5 the member has to say which protocol it believes in: INCONSISTENT_GROUP_PROTOCOL when
it does not, or when it is not the group's. The leader's request carries everybody's part; the others' is answered when it has come.

Differs from Kafka: a request that is repeated while the first still waits ends the first with REBALANCE_IN_PROGRESS.
"""

from __future__ import annotations

from headwater.broker.context import Context
from headwater.errors import InconsistentGroupProtocol
from headwater.groups import Identity, Sync, Synced
from headwater.model import GroupName
from headwater.wire.messages.sync_group import Request, Response

PROTOCOL_FROM = 5


async def handle(request: Request, context: Context) -> Response:
    """Cancelling forgets the wait; the member stays until its session is over."""
    if context.version >= PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        return Response(error_code=InconsistentGroupProtocol.code)
    answer = await context.broker.groups.sync(
        Sync(
            group=GroupName(request.group_id),
            who=Identity(member_id=request.member_id, instance_id=request.group_instance_id),
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={one.member_id: bytes(one.assignment) for one in request.assignments},
        )
    )
    if not isinstance(answer, Synced):
        return Response(error_code=answer.error.code)
    return Response(
        protocol_type=answer.protocol_type, protocol_name=answer.protocol_name, assignment=answer.assignment
    )
