"""Finding the coordinator, joining, syncing, heartbeats and leaving, in every version."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bench.raw_client import Raw, codec
from headwater import testing
from tests.unit.broker.conftest import eventually
from tests.unit.broker.group_client import Member, settle

ILLEGAL_GENERATION, INCONSISTENT, INVALID_GROUP, UNKNOWN_MEMBER, INVALID_TIMEOUT, REBALANCING = 22, 23, 24, 25, 26, 27
INVALID_REQUEST, NO_TRANSACTIONS, ID_REQUIRED, FENCED, NOT_COORDINATOR = 42, 53, 79, 82, 16


def is_waiting(member: Member) -> bool:
    """Whether its answer has not come: asked of the broker by what another request on another connection sees."""
    member.raw.socket.setblocking(False)
    try:
        return not member.raw.socket.recv(1, 2)  # 2: MSG_PEEK
    except BlockingIOError:
        return True
    finally:
        member.raw.socket.settimeout(30)


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_this_broker(raw: Raw, server, version: int) -> None:
    """Every version names the address that is advertised; from version 4 on for many groups at once."""
    if version < 4:
        found = [raw.ask("find_coordinator", version, key="g")]
    else:
        found = raw.ask("find_coordinator", version, coordinator_keys=["g", "h"]).coordinators
        assert [one.key for one in found] == ["g", "h"]
    for one in found:
        assert (one.error_code, one.node_id, f"{one.host}:{one.port}") == (0, 1, server.address)


@pytest.mark.parametrize("version", [1, 3, 4, 6])
@pytest.mark.parametrize(("key_type", "code"), [(1, NO_TRANSACTIONS), (2, INVALID_REQUEST), (7, INVALID_REQUEST)])
def test_other_coordinators_are_refused_by_name(raw: Raw, version: int, key_type: int, code: int) -> None:
    """Transactions and share groups are not served, and other types do not exist."""
    answer = raw.ask("find_coordinator", version, key="k", coordinator_keys=["k"], key_type=key_type)
    one = answer.coordinators[0] if version >= 4 else answer
    assert (one.error_code, one.node_id, one.port) == (code, -1, -1)
    assert one.error_message


@pytest.mark.parametrize("version", range(10))
def test_two_members_share_in_every_version(server, version: int) -> None:
    """Join, sync, heartbeat and leave in versions of one age: each gets its own part."""
    ages: dict[str, Any] = {
        "join_group": version, "sync_group": min(5, version), "heartbeat": min(4, version),
        "leave_group": min(5, version),
    }  # fmt: skip
    with Member(server.address, f"ages-{version}", "s", **ages) as first:
        settle(first)
        with Member(server.address, f"ages-{version}", "s", **ages) as second:
            second.send_join()
            if version >= 4:
                assert second.receive_join().error_code == ID_REQUIRED
                second.send_join()
            eventually(lambda: first.heartbeat() == REBALANCING, "the first hears of it")
            first.send_join()
            assert first.receive_join().error_code == second.receive_join().error_code == 0
            assert first.joined.protocol_name == "range"
            assert version < 7 or first.joined.protocol_type == "consumer"
            assert len(first.joined.members) == 2
            assert not second.joined.members
            second.send_sync()
            parts = {first.member_id: b"1", second.member_id: b"2"}
            assert bytes(first.sync(parts).assignment) == b"1"
            assert bytes(second.receive_sync().assignment) == b"2"
            assert second.leave() == 0
            assert second.heartbeat() == UNKNOWN_MEMBER
        eventually(lambda: first.heartbeat() == REBALANCING, "the first hears that the second has left")
        first.join()
        assert first.generation == 3


@pytest.mark.parametrize("version", [3, 9])
def test_a_new_member_is_told_its_id_from_version_4_on(server, version: int) -> None:
    """Before it, it is in at once; the id begins with the client's name, as Kafka's do."""
    with Member(server.address, f"ids-{version}", join_group=version) as member:
        member.send_join()
        assert member.receive_join().error_code == (0 if version < 4 else ID_REQUIRED)
        assert member.member_id.startswith("member-")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, INVALID_GROUP),
        ({"session_timeout_ms": 10}, INVALID_TIMEOUT),
        ({"member_id": "stranger"}, UNKNOWN_MEMBER),
        ({"protocols": []}, INCONSISTENT),
        ({"protocol_type": ""}, INCONSISTENT),
    ],
)
@pytest.mark.parametrize("version", [5, 9])
def test_a_join_that_cannot_be_is_refused(server, fields: dict, code: int, version: int) -> None:
    """By the code that Kafka has for it, with the empty fields of an answer that is none."""
    with Member(server.address, "refused", join_group=version) as member:
        member.send_join(**fields)
        answer = member.receive_join()
        assert (answer.error_code, answer.generation_id, answer.leader) == (code, -1, "")
        assert answer.member_id == fields.get("member_id", "")
        assert answer.protocol_name == (None if version >= 7 else "")


def test_members_of_the_past_are_refused(server) -> None:
    """Another generation, another id, another protocol, another group: each by its own code."""
    with Member(server.address, "past") as member:
        settle(member)
        assert member.heartbeat(generation_id=7) == ILLEGAL_GENERATION
        assert member.heartbeat(member_id="stranger") == UNKNOWN_MEMBER
        assert member.heartbeat(group_id="nobody's") == UNKNOWN_MEMBER
        assert member.heartbeat(group_id="") == INVALID_GROUP
        assert member.heartbeat(group_instance_id="nobody") == UNKNOWN_MEMBER
        assert member.sync(generation_id=7).error_code == ILLEGAL_GENERATION
        assert member.sync(protocol_type="connect").error_code == INCONSISTENT
        assert member.sync(protocol_name="sticky").error_code == INCONSISTENT
        assert member.sync(protocol_name=None).error_code == INCONSISTENT
        assert member.sync(group_id="nobody's").error_code == UNKNOWN_MEMBER
        assert bytes(member.sync().assignment)


@pytest.mark.parametrize("version", [0, 2, 3, 5])
def test_leaving_a_group_that_is_not_there(server, version: int) -> None:
    """Says of each member that it is unknown, and of the whole that it was heard."""
    with Member(server.address, "no-such-group", leave_group=version) as member:
        member.member_id = "somebody"
        assert member.leave() == UNKNOWN_MEMBER


def test_many_members_leave_in_one_request(raw: Raw, server) -> None:
    """Static ones by their name alone, strangers without harm to the others."""
    module = codec("leave_group")
    with Member(server.address, "many", instance="a") as first, Member(server.address, "many", instance="b") as second:
        settle(first, second)
        members = [
            module.MemberIdentity(member_id="", group_instance_id="a"),
            module.MemberIdentity(member_id="stranger"),
            module.MemberIdentity(member_id=first.member_id, group_instance_id="b"),
            module.MemberIdentity(member_id=second.member_id, group_instance_id="b"),
        ]
        answer = raw.ask("leave_group", 5, group_id="many", members=members)
        assert answer.error_code == 0
        assert [one.error_code for one in answer.members] == [0, UNKNOWN_MEMBER, FENCED, 0]
        assert [one.group_instance_id for one in answer.members] == ["a", None, "b", "b"]
        assert first.heartbeat() == UNKNOWN_MEMBER


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_member_comes_back_without_a_rebalance(server, version: int) -> None:
    """Its new process has its part, the old one is fenced; from version 9 on a leader is told to share out nothing."""
    group = f"static-{version}"
    with (
        Member(server.address, group, instance="a", join_group=version) as first,
        Member(server.address, group, instance="b", join_group=version) as second,
        Member(server.address, group, instance="a", join_group=version) as again,
    ):
        settle(first, second)
        leader = next(one for one in (first, second) if one.leads)
        again.join()
        assert again.generation == first.generation
        if leader is first and version >= 9:
            assert again.joined.skip_assignment
            assert again.leads
        elif leader is first:
            assert again.joined.leader == first.member_id
        assert bytes(again.sync().assignment) == first.member_id.encode()
        assert first.heartbeat() == FENCED
        assert again.heartbeat() == second.heartbeat() == 0


def test_a_silent_member_is_out(server) -> None:
    """Silence ends its session; the others gather and go on."""
    with Member(server.address, "silent") as first, Member(server.address, "silent") as second:
        settle(first, second, session_timeout_ms=1_000)
        eventually(lambda: first.heartbeat() == REBALANCING, "the silent one is noticed", 5)
        first.send_join()
        assert len(first.receive_join().members) == 1
        assert second.heartbeat() == UNKNOWN_MEMBER


def test_a_broker_that_stood_still_expires_nobody(server) -> None:
    """A stop of its process longer than a session: the heartbeats lay unread, so the silence was not the member's."""
    with Member(server.address, "still") as member:
        settle(member, session_timeout_ms=1_000)
        server._loop.call_soon_threadsafe(time.sleep, 1.8)
        assert member.heartbeat() == 0
        eventually(lambda: member.heartbeat() == 0, "and goes on")


def test_a_client_that_goes_away_in_the_middle_of_a_join_disturbs_nobody(server) -> None:
    """Its place is held until its session is over; the others are not kept longer than their rebalance timeout."""
    with Member(server.address, "gone") as first:
        settle(first)
        lost = Member(server.address, "gone")
        lost.send_join()
        lost.receive_join()
        lost.send_join(rebalance_timeout_ms=1_000)
        eventually(lambda: first.heartbeat() == REBALANCING, "the lost one is gathering")
        lost.raw.socket.close()
        first.send_join(rebalance_timeout_ms=1_000, session_timeout_ms=6_000)
        assert first.receive_join().error_code == 0
        first.sync({first.member_id: b"x"})
        begun = time.monotonic()
        eventually(lambda: first.heartbeat() == REBALANCING, "the lost one is out: it never asked for its part", 5)
        assert time.monotonic() - begun < 5
        first.send_join()
        assert len(first.receive_join().members) == 1


def test_a_broker_that_stops_sends_members_on() -> None:
    """Who waits and who asks while it drains is told to look for the coordinator again."""
    with testing.broker() as server:
        first, second = Member(server.address, "stop"), Member(server.address, "stop")
        settle(first)
        second.send_join()
        second.receive_join()
        second.send_join()
        eventually(lambda: first.heartbeat() == REBALANCING, "the second is gathering")
        assert is_waiting(second)
        server.stop()
        assert second.receive_join().error_code == NOT_COORDINATOR
        first.raw.socket.close()
        second.raw.socket.close()
