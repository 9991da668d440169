"""JoinGroup (11), versions 0-9.

v0 has no rebalance timeout: the session timeout counts; v4 a new member is told its id first (KIP-394); v5 static
members (KIP-345); v6 flexible; v7 the protocol type is answered; v8 a reason, which only logs would use (KIP-800); v9
a static leader that comes back is told to skip the assignment (KIP-814).

Answered when all members have gathered, or the slowest one's rebalance timeout is over: see groups/states.py.

Differs from Kafka: the first rebalance of an empty group waits for nobody (`rebalance_delay_ms` is 0); a request that
is repeated while the first still waits ends the first with REBALANCE_IN_PROGRESS; members of all groups together have
a limit (GROUP_MAX_SIZE_REACHED).
"""

from __future__ import annotations

from headwater.broker.context import Context
from headwater.broker.group_shell import fresh_member_id, protocol_of
from headwater.groups import Identity, Join, Joined
from headwater.model import GroupName
from headwater.wire.messages.join_group import JoinGroupResponseMember, Request, Response

REBALANCE_TIMEOUT_FROM = 1
ID_REQUIRED_FROM = 4
PROTOCOL_TYPE_FROM = 7
SKIP_ASSIGNMENT_FROM = 9


async def handle(request: Request, context: Context) -> Response:
    """Cancelling forgets the wait; the member stays until its session is over."""
    version = context.version
    has_timeout = version >= REBALANCE_TIMEOUT_FROM
    answer = await context.broker.groups.join(
        Join(
            group=GroupName(request.group_id),
            who=Identity(member_id=request.member_id, instance_id=request.group_instance_id),
            fresh_id=fresh_member_id(request.group_instance_id or context.client_id),
            protocol_type=request.protocol_type,
            protocols=tuple(protocol_of(request.protocol_type, one.name, one.metadata) for one in request.protocols),
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
            id_required=version >= ID_REQUIRED_FROM,
            may_skip=version >= SKIP_ASSIGNMENT_FROM,
        )
    )
    if not isinstance(answer, Joined):
        return Response(
            error_code=answer.error.code,
            member_id=answer.member_id,
            protocol_name=None if version >= PROTOCOL_TYPE_FROM else "",
        )
    return Response(
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        leader=answer.leader_id,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(member_id=one.member_id, group_instance_id=one.instance_id, metadata=one.metadata)
            for one in answer.members
        ],
    )
