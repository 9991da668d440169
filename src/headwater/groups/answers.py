"""What members ask, and what they are answered: the values that go into the coordinator and come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.errors import WireError
from headwater.model import GroupName, StreamName

Token = object  # stands for an answer that is still owed; the caller's own, never looked into


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One way of sharing out partitions that a member knows, with its subscription as the leader will read it."""

    name: str
    metadata: bytes
    streams: frozenset[StreamName] = frozenset()  # what the metadata subscribes to, as far as it could be read

    def same_as(self, other: Protocol) -> bool:
        return self.name == other.name and self.metadata == other.metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who speaks: a member id, and the name of a static member (KIP-345) if it is one."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    group: GroupName
    who: Identity
    fresh_id: str  # the id this member gets if it has none: drawn by the caller, since chance is not pure
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    id_required: bool = True  # KIP-394: a new dynamic member is told its id first, and joins with it
    may_skip: bool = True  # KIP-814: a static leader that comes back is told to skip the assignment

    def same_protocols(self, known: tuple[Protocol, ...]) -> bool:
        return len(known) == len(self.protocols) and all(map(Protocol.same_as, self.protocols, known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Joiner:
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    generation: int
    protocol_type: str
    protocol_name: str
    leader_id: str
    member_id: str
    members: tuple[Joiner, ...] = ()  # for the leader alone
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    group: GroupName
    who: Identity
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)  # by member id; the leader's count, others' do not


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    protocol_type: str
    protocol_name: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    error: WireError
    member_id: str = ""  # with MemberIdRequired: the id to join with


Answer = Joined | Synced | Refused
