"""What is asked of both servers about groups: the odd requests, not the usual ones."""

from __future__ import annotations

from typing import Any

from bench.raw_client import codec
from tests.interop.talk import Talk

NOBODY = bytes(15) + b"\x07"


def coordinator(talk: Talk) -> None:
    for version in range(7):
        for kind in (0, 3, -1) if version else (0,):
            said = {"key": "g"} if version < 4 else {"coordinator_keys": ["g"]}
            talk.ask(f"v{version} type {kind}", "find_coordinator", version, key_type=kind, **said)
    talk.ask("an empty key v3", "find_coordinator", 3, key="", key_type=0)
    talk.ask("an empty key v4", "find_coordinator", 4, coordinator_keys=[""], key_type=0)
    talk.ask("no keys", "find_coordinator", 4, coordinator_keys=[], key_type=0)
    talk.ask("twice", "find_coordinator", 4, coordinator_keys=["a", "a", "b"], key_type=0)


def joined(talk: Talk, label: str, group: str, version: int = 7, **fields: Any) -> Any:
    module = codec("join_group")
    names = fields.pop("names", ["range"])
    said = {
        "session_timeout_ms": 10_000, "rebalance_timeout_ms": 1_000, "protocol_type": "consumer",
        "protocols": [module.JoinGroupRequestProtocol(name=name, metadata=b"\0\1\0\0\0\0\0\0\0\0") for name in names],
        **fields,
    }  # fmt: skip
    return talk.ask(label, "join_group", version, group_id=talk.name(group), **said)


def synced(talk: Talk, label: str, group: str, member: str, version: int = 5, **fields: Any) -> Any:
    module = codec("sync_group")
    parts = [module.SyncGroupRequestAssignment(member_id=one, assignment=b"part") for one in fields.pop("parts", [])]
    said = {"protocol_type": "consumer", "protocol_name": "range", "generation_id": 1, **fields}
    return talk.ask(
        label, "sync_group", version, group_id=talk.name(group), member_id=member, assignments=parts, **said
    )


def join(talk: Talk) -> None:
    for version in (0, 1, 3, 4, 5, 7, 9):
        first = joined(talk, f"first v{version}", f"g{version}", version)
        if first is not None and first.error_code == 79:
            joined(talk, f"with its id v{version}", f"g{version}", version, member_id=first.member_id)
    joined(talk, "without a group", "", 7)
    talk.ask("an empty group", "join_group", 7, group_id="", session_timeout_ms=10_000, protocol_type="consumer")
    joined(talk, "session too short", "s", session_timeout_ms=1)
    joined(talk, "session too long", "s", session_timeout_ms=10_000_000)
    joined(talk, "session negative", "s", session_timeout_ms=-1)
    joined(talk, "no protocols", "s", names=[], group_instance_id="i")
    joined(talk, "no protocol type", "s", protocol_type="", group_instance_id="i")
    joined(talk, "an unknown member", "s", member_id="nobody-had-this-id")
    joined(talk, "an unknown member of a group with members", "g9", member_id="nobody-had-this-id")
    joined(talk, "another protocol type", "g9", protocol_type="connect")
    joined(talk, "other protocols", "g9", names=["mine"])
    joined(talk, "static", "st", group_instance_id="i")
    joined(talk, "static, an unknown member", "st", group_instance_id="i", member_id="nobody-had-this-id")
    joined(talk, "static, instance unknown", "st", group_instance_id="j", member_id="nobody-had-this-id")


def round_of_one(talk: Talk) -> None:
    first = joined(talk, "joins", "g", 3)
    me = first.member_id
    generation = first.generation_id
    module = codec("heartbeat")
    assert module.KEY == 12

    def beat(label: str, **fields: Any) -> None:
        said = {"member_id": me, "generation_id": generation, "group_id": talk.name("g"), **fields}
        talk.ask(label, "heartbeat", 4, **said)

    beat("beats before the sync")
    synced(talk, "syncs a wrong generation", "g", me, generation_id=99)
    synced(talk, "syncs an old generation", "g", me, generation_id=0)
    synced(talk, "syncs another protocol", "g", me, protocol_name="mine")
    synced(talk, "syncs another type", "g", me, protocol_type="connect")
    synced(talk, "syncs as nobody", "g", "nobody-had-this-id")
    synced(talk, "syncs with an instance id", "g", me, group_instance_id="i")
    synced(talk, "syncs", "g", me, parts=[me])
    synced(talk, "syncs again", "g", me)
    synced(talk, "syncs v5 without a protocol", "g", me, protocol_type=None, protocol_name=None)
    synced(talk, "syncs v4", "g", me, 4)
    synced(talk, "syncs v0", "g", me, 0)
    synced(talk, "syncs an unknown group", "none", me)
    beat("beats")
    beat("beats a wrong generation", generation_id=99)
    beat("beats as nobody", member_id="nobody-had-this-id")
    beat("beats without an id", member_id="")
    beat("beats with an instance id", group_instance_id="i")
    beat("beats in an unknown group", group_id=talk.name("none"))
    beat("beats without a group", group_id="")
    joined(talk, "the leader joins again", "g", 3, member_id=me)
    synced(talk, "and syncs", "g", me, generation_id=2, parts=[me])
    left = codec("leave_group").MemberIdentity
    talk.ask("leaves an unknown group", "leave_group", 4, group_id=talk.name("none"), members=[left(member_id=me)])
    talk.ask("an empty group's leave", "leave_group", 4, group_id="", members=[left(member_id=me)])
    nobody = [left(member_id="nobody-had-this-id"), left(group_instance_id="i"), left()]
    talk.ask("nobodies leave", "leave_group", 4, group_id=talk.name("g"), members=nobody)
    talk.ask(
        "with an instance id",
        "leave_group",
        4,
        group_id=talk.name("g"),
        members=[left(member_id=me, group_instance_id="i")],
    )
    talk.ask("nobody leaves v1", "leave_group", 1, group_id=talk.name("g"), member_id="nobody-had-this-id")
    talk.ask("none leave", "leave_group", 4, group_id=talk.name("g"), members=[])
    beat("is still there", generation_id=2)
    talk.ask("leaves", "leave_group", 4, group_id=talk.name("g"), members=[left(member_id=me)])
    beat("is gone", generation_id=2)
    talk.ask("leaves again", "leave_group", 4, group_id=talk.name("g"), members=[left(member_id=me)])


def commit(talk: Talk, label: str, version: int = 8, *, group: str = "c", **fields: Any) -> None:
    module = codec("offset_commit")
    part = {"partition_index": 0, "committed_offset": 1, **fields.pop("part", {})}
    topic = module.OffsetCommitRequestTopic(
        name=fields.pop("stream", talk.name("a")),
        topic_id=fields.pop("topic_id", bytes(16)),
        partitions=[module.OffsetCommitRequestPartition(**part)],
    )
    group_id = talk.name(group) if group else ""
    talk.ask(label, "offset_commit", version, group_id=group_id, topics=[topic], **fields)


def look_up(
    talk: Talk, label: str, version: int = 8, *, group: str = "c", topics: list[Any] | None = None, **fields: Any
) -> None:
    module = codec("offset_fetch")
    asked = talk.name(group) if group else ""
    if version >= 8:
        fields["groups"] = [module.OffsetFetchRequestGroup(group_id=asked, topics=topics)]
    else:
        fields |= {"group_id": asked, "topics": topics}
    talk.ask(label, "offset_fetch", version, **fields)


def some(stream: str, *indexes: int, topic_id: bytes = bytes(16)) -> list[Any]:
    topic = codec("offset_fetch").OffsetFetchRequestTopics
    return [topic(name=stream, topic_id=topic_id, partition_indexes=list(indexes))]


def cursors(talk: Talk) -> None:
    name = talk.stream("a", partitions=3)
    talk.publish(name, b"x", b"y")
    for version in (2, 5, 6, 8, 9):
        commit(
            talk,
            f"commits v{version}",
            version,
            part={"committed_offset": version, "committed_metadata": f"v{version}"},
        )
    commit(talk, "commits by id", 10, topic_id=talk.id_of("a"))
    commit(talk, "commits by an unknown id", 10, topic_id=NOBODY)
    commit(talk, "commits without a group", group="")
    commit(talk, "an unknown stream", stream=talk.name("none"))
    commit(talk, "an unknown partition", part={"partition_index": 9})
    commit(talk, "a negative partition", part={"partition_index": -1})
    commit(talk, "a negative offset", part={"partition_index": 1, "committed_offset": -1})
    commit(talk, "an offset of -2", part={"partition_index": 1, "committed_offset": -2})
    commit(talk, "beyond the end", part={"partition_index": 1, "committed_offset": 10**12})
    commit(talk, "no metadata", part={"partition_index": 2, "committed_metadata": None})
    commit(talk, "long metadata", part={"partition_index": 2, "committed_metadata": "x" * 4096})
    commit(talk, "too long metadata", part={"partition_index": 2, "committed_metadata": "x" * 4097})
    commit(talk, "an epoch from the future", part={"partition_index": 2, "committed_leader_epoch": 99})
    commit(talk, "a generation of nobody", generation_id_or_member_epoch=3)
    commit(talk, "a member of nobody", member_id="nobody-had-this-id")
    commit(talk, "a member and a generation of nobody", member_id="nobody-had-this-id", generation_id_or_member_epoch=3)
    commit(talk, "a generation in an unknown group", group="none", member_id="m", generation_id_or_member_epoch=3)
    commit(talk, "an instance of nobody", group_instance_id="i")
    talk.ask("commits nothing", "offset_commit", 8, group_id=talk.name("c"), topics=[])


def cursors_read(talk: Talk) -> None:
    name = talk.stream("a", partitions=3)
    talk.publish(name, b"x", b"y")
    look_up(talk, "an unknown group, all", group="none")
    look_up(talk, "an unknown group, some", group="none", topics=some(name, 0, 7))
    look_up(talk, "without a group", group="", topics=some(name, 0))
    for index, offset in enumerate((1, 10**12, 2)):
        part = {"partition_index": index, "committed_offset": offset, "committed_leader_epoch": index - 1}
        commit(talk, f"commits {index}", part=part)
    for version in (2, 5, 7, 8, 9):
        look_up(talk, f"all v{version}", version)
    old = [codec("offset_fetch").OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1, 2, 9])]
    for version in (1, 5, 7):
        look_up(talk, f"some v{version}", version, topics=old)
    look_up(talk, "some v8", 8, topics=some(name, 0, 1, 2, 9, -1))
    look_up(talk, "twice", 8, topics=some(name, 0, 0))
    look_up(talk, "of an unknown stream", 8, topics=some(talk.name("none"), 0))
    look_up(talk, "no topics", 8, topics=[])
    look_up(talk, "no topics v1", 1, topics=[])
    look_up(talk, "by id", 10, topics=some("", 0, topic_id=talk.id_of("a")))
    look_up(talk, "by an unknown id", 10, topics=some("", 0, topic_id=NOBODY))
    look_up(talk, "all v10", 10)
    look_up(talk, "stable", 8, topics=some(name, 0), require_stable=True)
    look_up(talk, "with a member epoch", 9, topics=some(name, 0))
    talk.ask("no groups", "offset_fetch", 8, groups=[])


def cursors_of_members(talk: Talk) -> None:
    module = codec("offset_commit")
    name = talk.stream("a")
    first = joined(talk, "joins", "g", 3)
    me = first.member_id

    def put(label: str, **fields: Any) -> None:
        part = module.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topics = [module.OffsetCommitRequestTopic(name=name, partitions=[part])]
        said = {"member_id": me, "generation_id_or_member_epoch": 1, **fields}
        talk.ask(label, "offset_commit", 8, group_id=talk.name("g"), topics=topics, **said)

    put("before the sync")
    put("before the sync, an old generation", generation_id_or_member_epoch=0)
    put("before the sync, without an id", member_id="", generation_id_or_member_epoch=-1)
    synced(talk, "syncs", "g", me, parts=[me])
    put("after")
    put("an old generation", generation_id_or_member_epoch=0)
    put("a generation to come", generation_id_or_member_epoch=2)
    put("nobody", member_id="nobody-had-this-id")
    put("without an id", member_id="", generation_id_or_member_epoch=-1)
    put("without a generation", generation_id_or_member_epoch=-1)
    put("with an instance id", group_instance_id="i")


TALKS = [coordinator, join, round_of_one, cursors, cursors_read, cursors_of_members]
