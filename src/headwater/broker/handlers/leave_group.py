"""LeaveGroup (13), versions 0-5.

v3 many members at once, each with an answer of its own, static ones by their instance id alone; v4 flexible; v5 a
reason, which only logs would use (KIP-800). Behaves as Kafka does.
"""

from __future__ import annotations

from headwater.broker.context import Context
from headwater.errors import UnknownMember, WireError
from headwater.groups import Identity
from headwater.model import GroupName
from headwater.wire.messages.leave_group import MemberIdentity, MemberResponse, Request, Response

MANY_FROM = 3


async def handle(request: Request, context: Context) -> Response:
    """Never waits."""
    many = context.version >= MANY_FROM
    asked = request.members if many else [MemberIdentity(member_id=request.member_id)]
    members = [Identity(member_id=one.member_id, instance_id=one.group_instance_id) for one in asked]
    outcomes: list[WireError | None]
    try:
        outcomes = context.broker.groups.leave(GroupName(request.group_id), members)
    except UnknownMember as why:  # no group, no members: Kafka says so to each
        outcomes = [why] * len(members)
    except WireError as why:
        return Response(error_code=why.code)
    if not many:
        return Response(error_code=_code(outcomes[0]))
    return Response(
        members=[
            MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=_code(outcome))
            for one, outcome in zip(asked, outcomes, strict=True)
        ]
    )


def _code(outcome: WireError | None) -> int:
    return 0 if outcome is None else outcome.code
