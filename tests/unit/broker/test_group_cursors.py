"""Committing and fetching cursors, in every version; over a restart, and over the end of a stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from bench.raw_client import Raw, codec
from headwater import testing
from headwater.errors import StorageFailed
from headwater.model import GroupName
from tests.unit.broker.conftest import create, eventually
from tests.unit.broker.group_client import Member, gather, settle

UNKNOWN_STREAM, METADATA_TOO_LARGE, UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCING, UNKNOWN_ID = 3, 12, 25, 22, 27, 100
NOT_AVAILABLE, INCONSISTENT = 15, 23


@pytest.fixture
def tool(server, stream) -> Iterator[Member]:
    """Somebody who commits without being a member, in a group of its own."""
    with Member(server.address, f"of-{stream}") as one:
        yield one


@pytest.mark.parametrize("version", range(2, 11))
def test_a_cursor_is_committed_in_every_version(server, raw: Raw, version: int) -> None:
    """And read back with all that the version carries."""
    made = create(raw, f"committed-{version}", partitions=2)
    with Member(server.address, f"committed-{version}", offset_commit=version, offset_fetch=10) as member:
        name = f"committed-{version}"
        assert member.commit(name, 41, partition=1, metadata="so far", epoch=0, topic_id=made.topic_id) == 0
        none, one = member.fetch(name, [0, 1], topic_id=made.topic_id)
    assert (none.committed_offset, none.committed_leader_epoch, none.metadata, none.error_code) == (-1, -1, "", 0)
    assert (one.committed_offset, one.metadata, one.error_code) == (41, "so far", 0)
    assert one.committed_leader_epoch == (0 if version >= 6 else -1)


@pytest.mark.parametrize("version", range(1, 11))
def test_cursors_are_fetched_in_every_version(server, raw: Raw, version: int) -> None:
    """Of the partitions that are named, or of all that have one."""
    name = f"fetched-{version}"
    made = create(raw, name, partitions=3)
    module = codec("offset_fetch")
    with Member(server.address, name, offset_fetch=version) as member:
        for partition in (0, 2):
            assert member.commit(name, 10 + partition, partition=partition) == 0
        found = member.fetch(name, [2, 1], topic_id=made.topic_id)
        assert [(one.partition_index, one.committed_offset) for one in found] == [(2, 12), (1, -1)]
        if version >= 8:
            groups = [module.OffsetFetchRequestGroup(group_id=one, topics=None) for one in (name, "nobody")]
            known, unknown = raw.ask("offset_fetch", version, groups=groups).groups
            assert (unknown.group_id, unknown.error_code, unknown.topics) == ("nobody", 0, [])
            (topic,) = known.topics
            assert version < 10 or topic.topic_id == made.topic_id
        elif version >= 2:
            (topic,) = raw.ask("offset_fetch", version, group_id=name, topics=None).topics
        else:
            return
        assert {one.partition_index: one.committed_offset for one in topic.partitions} == {0: 10, 2: 12}


def test_what_is_not_there_has_no_cursor(server, tool: Member) -> None:
    """An unknown group, stream or partition is -1 and no error; an unknown id is an error."""
    assert tool.cursor("no-such-stream") == -1
    assert tool.cursor("no-such-stream", 77) == -1
    tool.versions["offset_fetch"] = 10
    (one,) = tool.fetch("", topic_id=b"x" * 16)
    assert (one.error_code, one.committed_offset) == (UNKNOWN_ID, -1)


def test_bad_cursors_are_refused_one_by_one(tool: Member, stream: str) -> None:
    """A stream or partition that is not there, metadata beyond the limit; the good ones are stored."""
    assert tool.commit("no-such-stream", 1) == UNKNOWN_STREAM
    assert tool.commit(stream, 1, partition=7) == UNKNOWN_STREAM
    assert tool.commit(stream, 1, metadata="x" * 4097) == METADATA_TOO_LARGE
    assert tool.commit(stream, 1, metadata="x" * 4096) == 0
    tool.versions["offset_commit"] = 10
    assert tool.commit("", 1, topic_id=b"x" * 16) == UNKNOWN_ID
    module = codec("offset_commit")
    parts = [
        module.OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata=None)
        for index in (0, 9)
    ]
    topics = [module.OffsetCommitRequestTopic(name=stream, partitions=parts)]
    answer = tool.raw.ask("offset_commit", 9, group_id=tool.group, topics=topics)
    assert [one.error_code for one in answer.topics[0].partitions] == [0, UNKNOWN_STREAM]
    assert tool.cursor(stream) == 5


def test_only_members_commit_while_there_are_some(server, tool: Member, stream: str) -> None:
    """Strangers and old generations do not move a live group's cursors."""
    with Member(server.address, tool.group, stream) as member:
        gather(member)
        assert member.commit(stream, 1) == REBALANCING
        assert member.sync({}).error_code == 0
        assert member.commit(stream, 3) == 0
        assert member.commit(stream, 4, generation_id_or_member_epoch=0) == ILLEGAL_GENERATION
        assert member.commit(stream, 4, member_id="stranger") == UNKNOWN_MEMBER
        assert tool.commit(stream, 4) == UNKNOWN_MEMBER
        assert tool.cursor(stream) == 3
        assert member.leave() == 0
        assert member.commit(stream, 5) == UNKNOWN_MEMBER
        assert tool.commit(stream, 6) == 0
        assert tool.cursor(stream) == 6


def test_cursors_survive_a_restart_and_members_join_again(tmp_path) -> None:
    """What was committed is there after a stop; who claims to be a member is told that it is none."""
    with testing.broker(data=str(tmp_path)) as server:
        with Raw(server.address) as raw:
            create(raw, "s")
        with Member(server.address, "g", "s") as member:
            settle(member)
            assert member.commit("s", 7, metadata="m") == 0
            held = member.member_id, member.generation
    with testing.broker(data=str(tmp_path)) as server, Member(server.address, "g", "s") as member:
        member.member_id, member.generation = held
        assert member.heartbeat() == UNKNOWN_MEMBER
        assert member.commit("s", 9) == UNKNOWN_MEMBER
        member.send_join()
        assert member.receive_join().error_code == UNKNOWN_MEMBER
        member.member_id, member.generation = "", -1
        settle(member)
        assert member.cursor("s") == 7


def test_a_commit_is_answered_when_it_is_durable_and_not_before(server, tool: Member, stream: str) -> None:
    """The answer waits for the store's word, whatever it is; a failed disk is a reason to try again."""
    store, real = server.store, server.store.commit_cursors
    held: Future[None] = Future()
    asked = threading.Event()

    def slow(group, cursors):
        asked.set()
        return held

    store.commit_cursors = slow
    try:
        answers: list[int] = []
        asking = threading.Thread(target=lambda: answers.append(tool.commit(stream, 1)))
        asking.start()
        assert asked.wait(10)
        with Member(server.address, "another") as other:
            assert other.heartbeat() == UNKNOWN_MEMBER  # the broker goes on meanwhile
        assert not answers
        held.set_exception(StorageFailed("the disk is full"))
        asking.join(10)
        assert answers == [NOT_AVAILABLE]
    finally:
        store.commit_cursors = real
    assert tool.commit(stream, 2) == 0


def test_a_queue_of_that_name_keeps_its_name(server, tool: Member, stream: str) -> None:
    """A name used for the other kind of group is refused, with nothing stored."""
    server.store.ensure_group(GroupName("a-queue"), "queue", 0).result()
    with Member(server.address, "a-queue") as other:
        assert other.commit(stream, 1) == INCONSISTENT
        assert other.cursor(stream) == -1


@pytest.mark.parametrize("static", [False, True])
def test_no_old_commit_reaches_a_stream_that_is_created_again(server, raw: Raw, static: bool) -> None:
    """A live group over delete and create: each member is out until it joins again, however late its commit comes."""
    name = f"again-{static}"
    create(raw, name)
    instances = ("a", "b") if static else (None, None)
    members = [Member(server.address, name, name, instance=one) for one in instances]
    settle(*members)
    assert members[0].commit(name, 5) == 0
    with Member(server.address, f"{name}-other", "another") as bystander:
        settle(bystander)
        assert raw.ask("delete_topics", 5, topic_names=[name]).responses[0].error_code == 0
        create(raw, name)
        for member in members:
            assert member.commit(name, 99) == UNKNOWN_MEMBER
            assert member.heartbeat() == UNKNOWN_MEMBER
            assert member.sync().error_code == UNKNOWN_MEMBER
        assert members[0].cursor(name) == -1
        for member in members:
            member.member_id, member.generation = "", -1
        settle(*members)
        assert members[1].commit(name, 1) == 0
        assert members[0].cursor(name) == 1
        assert bystander.heartbeat() == 0
    for member in members:
        member.raw.socket.close()


def test_deleting_and_creating_in_one_breath_is_noticed(server, raw: Raw) -> None:
    """Between a member's two requests the stream went and came: its commit by name is refused all the same."""
    create(raw, "breath")
    with Member(server.address, "breath", "breath") as member:
        settle(member)
        for _ in range(20):
            # both at once: the name is free before the delete is answered, so the create may win its place early
            raw.send("delete_topics", 5, topic_names=["breath"])
            module = codec("create_topics")
            topic = module.CreatableTopic(name="breath", num_partitions=1, replication_factor=1)
            raw.send("create_topics", 7, topics=[topic])
            # until then it is a commit of the old stream's, or of none
            eventually(lambda: member.commit("breath", 9) not in {0, UNKNOWN_STREAM}, "it is out", 5)
            assert member.commit("breath", 9) == UNKNOWN_MEMBER
            raw.receive("delete_topics", 5)
            if raw.receive("create_topics", 7).topics[0].error_code:
                create(raw, "breath")
            assert member.cursor("breath") == -1
            member.member_id, member.generation = "", -1
            settle(member)


def test_a_member_that_waits_hears_that_its_stream_is_gone(server, raw: Raw) -> None:
    """It is answered without asking again, so that it does not wait for others that will not come."""
    create(raw, "waited-for")
    with Member(server.address, "waiting", "waited-for") as first:
        settle(first)
        with Member(server.address, "waiting", "waited-for") as second:
            second.send_join()
            second.receive_join()
            second.send_join()
            eventually(lambda: first.heartbeat() == REBALANCING, "the second is gathering")
            assert raw.ask("delete_topics", 5, topic_names=["waited-for"]).responses[0].error_code == 0
            assert second.receive_join().error_code == UNKNOWN_MEMBER


def test_a_stream_that_came_after_its_readers_is_watched_too(server, raw: Raw) -> None:
    """A member may subscribe before the stream is created; what happens to it then counts as well."""
    with Member(server.address, "early", "late-stream") as member:
        settle(member)
        create(raw, "late-stream")
        assert member.heartbeat() == 0
        assert member.commit("late-stream", 1) == 0
        raw.ask("delete_topics", 5, topic_names=["late-stream"])
        create(raw, "late-stream")
        assert member.commit("late-stream", 2) == UNKNOWN_MEMBER
