"""A group member that speaks the bare protocol: it says exactly what it is told to, in the version it is told to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from bench.raw_client import Raw, codec
from tests.unit.broker.conftest import eventually

SUBSCRIPTION = codec("consumer_protocol_subscription")
NEWEST = {"join_group": 9, "sync_group": 5, "heartbeat": 4, "leave_group": 5, "offset_commit": 9, "offset_fetch": 9}


def subscription(*streams: str, version: int = 1) -> bytes:
    body = SUBSCRIPTION.encode(SUBSCRIPTION.ConsumerProtocolSubscription(topics=list(streams)), version)
    return version.to_bytes(2, "big") + b"".join(map(bytes, body))


class Member:
    """One connection of one member. `send_*` leaves the answer to `receive`, since it may come much later."""

    def __init__(self, address: str, group: str, *streams: str, instance: str | None = None, **versions: int) -> None:
        self.raw = Raw(address, client_id="member")
        self.group, self.instance = group, instance
        self.versions = {**NEWEST, **versions}
        self.protocols = [self.protocol("range", subscription(*streams))]
        self.member_id, self.generation = "", -1
        self.joined: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.socket.close()

    @staticmethod
    def protocol(name: str, metadata: bytes) -> Any:
        return codec("join_group").JoinGroupRequestProtocol(name=name, metadata=metadata)

    def send_join(self, **fields: Any) -> None:
        fields = {
            "group_id": self.group, "member_id": self.member_id, "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000, "protocol_type": "consumer", "protocols": self.protocols,
            "group_instance_id": self.instance, **fields,
        }  # fmt: skip
        self.raw.send("join_group", self.versions["join_group"], **fields)

    def receive_join(self) -> Any:
        self.joined = self.raw.receive("join_group", self.versions["join_group"])
        if self.joined.error_code in {0, 79}:
            self.member_id = self.joined.member_id
            self.generation = self.joined.generation_id
        return self.joined

    def join(self, **fields: Any) -> Any:
        """Until it is in: with the id that it was promised, if it was."""
        self.send_join(**fields)
        if self.receive_join().error_code == 79:
            self.send_join(**fields)
            self.receive_join()
        return self.joined

    @property
    def leads(self) -> bool:
        return bool(self.joined.leader == self.member_id)

    def send_sync(self, parts: Mapping[str, bytes] | None = None, **fields: Any) -> None:
        module = codec("sync_group")
        assignments = [
            module.SyncGroupRequestAssignment(member_id=name, assignment=part) for name, part in (parts or {}).items()
        ]
        fields = {
            "group_id": self.group, "member_id": self.member_id, "generation_id": self.generation,
            "assignments": assignments, "group_instance_id": self.instance, "protocol_type": "consumer",
            "protocol_name": "range", **fields,
        }  # fmt: skip
        self.raw.send("sync_group", self.versions["sync_group"], **fields)

    def receive_sync(self) -> Any:
        return self.raw.receive("sync_group", self.versions["sync_group"])

    def sync(self, parts: Mapping[str, bytes] | None = None, **fields: Any) -> Any:
        self.send_sync(parts, **fields)
        return self.receive_sync()

    def heartbeat(self, **fields: Any) -> int:
        fields = {
            "group_id": self.group, "member_id": self.member_id, "generation_id": self.generation,
            "group_instance_id": self.instance, **fields,
        }  # fmt: skip
        return int(self.raw.ask("heartbeat", self.versions["heartbeat"], **fields).error_code)

    def leave(self) -> int:
        module, version = codec("leave_group"), self.versions["leave_group"]
        one = module.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        answer = self.raw.ask("leave_group", version, group_id=self.group, member_id=self.member_id, members=[one])
        return int(answer.error_code or (answer.members[0].error_code if version >= 3 else 0))

    def commit(self, stream: str, offset: int, *, partition: int = 0, metadata: str = "", **fields: Any) -> int:
        module = codec("offset_commit")
        part = module.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata,
            committed_leader_epoch=fields.pop("epoch", -1),
        )  # fmt: skip
        topic = module.OffsetCommitRequestTopic(
            name=stream, topic_id=fields.pop("topic_id", bytes(16)), partitions=[part]
        )
        fields = {
            "group_id": self.group, "member_id": self.member_id, "generation_id_or_member_epoch": self.generation,
            "group_instance_id": self.instance, "topics": [topic], **fields,
        }  # fmt: skip
        answer = self.raw.ask("offset_commit", self.versions["offset_commit"], **fields)
        return int(answer.topics[0].partitions[0].error_code)

    def fetch(self, stream: str, partitions: Sequence[int] = (0,), *, topic_id: bytes = bytes(16)) -> list[Any]:
        """The group's cursors in these partitions, as the newest or any older version answers them."""
        module, version = codec("offset_fetch"), self.versions["offset_fetch"]
        indexes = list(partitions)
        if version >= 8:
            topics = [module.OffsetFetchRequestTopics(name=stream, topic_id=topic_id, partition_indexes=indexes)]
            groups = [module.OffsetFetchRequestGroup(group_id=self.group, topics=topics)]
            (group,) = self.raw.ask("offset_fetch", version, groups=groups).groups
            assert group.group_id == self.group
            assert group.error_code == 0
            found = group.topics
        else:
            topics = [module.OffsetFetchRequestTopic(name=stream, partition_indexes=indexes)]
            found = self.raw.ask("offset_fetch", version, group_id=self.group, topics=topics).topics
        return list(found[0].partitions)

    def cursor(self, stream: str, partition: int = 0) -> int:
        (one,) = self.fetch(stream, [partition])
        assert one.error_code == 0
        return int(one.committed_offset)


def gather(*members: Member, **fields: Any) -> None:
    """Brings members into one generation, one after another, as programs start; `fields` are of each join."""
    members[0].join(**fields)
    for index, new in enumerate(members[1:], 1):
        new.send_join(**fields)
        if new.versions["join_group"] >= 4 and new.instance is None:
            assert new.receive_join().error_code == 79
            new.send_join(**fields)
        eventually(lambda: members[0].heartbeat() == 27, "the new one is gathering")
        for old in members[:index]:
            old.send_join(**fields)
        for one in members[: index + 1]:
            assert one.receive_join().error_code == 0
    assert len({one.generation for one in members}) == 1


def settle(*members: Member, **fields: Any) -> None:
    """Gathers them, and gives each the part that bears its own id."""
    gather(*members, **fields)
    parts = {one.member_id: one.member_id.encode() for one in members}
    for one in members:
        one.send_sync(parts if one.leads else None)
    for one in members:
        answer = one.receive_sync()
        assert answer.error_code == 0
        assert bytes(answer.assignment) == one.member_id.encode()
