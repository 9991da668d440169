"""A client that repeats itself is answered the short way, and cannot tell the difference."""

from random import Random

import pytest

from bench.raw_client import Raw, batch_of, codec
from headwater.broker import repeats
from tests.unit.broker.conftest import create, fetch, produce, publish, values_of

VERSIONS = [3, 5, 8, 9, 12]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("durability", ["1", "9223372036854775807"])
def test_requests_of_all_sizes_follow_each_other(raw, version, durability, request):
    """Also across the sizes at which a length takes another byte."""
    name = f"sizes-{version}-{durability[:1]}"
    create(raw, name, flush_messages=durability)
    sizes = [1, 30, 50, 60, 61, 62, 63, 64, 100, 127, 128, 129, 16_200, 16_300, 16_400, 20_000, 1]
    for number, size in enumerate(sizes):
        answer = produce(raw, name, batch_of([b"x" * size]), version=version)
        assert (answer.error_code, answer.base_offset) == (0, number)
        assert version < 5 or answer.log_start_offset == 0
        assert version < 8 or (answer.log_append_time_ms, answer.error_message) == (-1, None)
    assert [len(one) for one in values_of(fetch(raw, name))] == sizes


def test_it_is_taken(server, raw, stream, monkeypatch):
    """From the second request on; otherwise this file would test nothing."""
    taken: list[bool] = []
    original = repeats.take_up

    def noted(*asked) -> bool:
        taken.append(original(*asked))
        return taken[-1]

    monkeypatch.setattr(repeats, "take_up", noted)
    for _ in range(4):
        publish(raw, stream, b"x")
    assert taken == [False, True, True, True]


def test_anything_that_changes_is_noticed(raw):
    """Another stream, partition, level of acks, version or damage in between: each gets its own answer."""
    for name in ("one", "two"):
        create(raw, f"change-{name}", partitions=3)
    random = Random(7)
    ends: dict[tuple[str, int], int] = {}
    good = batch_of([b"x" * 50])
    broken = good[:-1] + bytes([good[-1] ^ 1])
    for _ in range(300):
        name, partition = f"change-{random.choice(['one', 'two'])}", random.randrange(4)
        batch, acks = random.choice([good, good, good, broken]), random.choice([1, 1, -1, 7])
        answer = produce(raw, name, batch, partition=partition, acks=acks, version=random.choice([8, 9, 9]))
        expected = 21 if acks == 7 else 3 if partition == 3 else 2 if batch is broken else 0
        assert answer.error_code == expected
        if not expected:
            assert answer.base_offset == ends.get((name, partition), 0)
            ends[name, partition] = answer.base_offset + 1


def test_a_stream_that_was_deleted_and_created_again_is_another_one(server, raw):
    """By name the new one is written to, by id the old one is gone."""
    for _ in range(3):
        made = create(raw, "reborn")
        assert [publish(raw, "reborn", b"x") for _ in range(3)] == [0, 1, 2]
        answers = [_by_id(raw, made.topic_id) for _ in range(3)]
        assert [one.base_offset for one in answers] == [3, 4, 5]
        assert [publish(raw, "reborn", b"x") for _ in range(3)] == [6, 7, 8]
        with Raw(server.address) as other:
            other.ask("delete_topics", 5, topic_names=["reborn"], timeout_ms=1000)
            reborn = create(other, "reborn")
        assert publish(raw, "reborn", b"x") == 0
        assert _by_id(raw, made.topic_id).error_code == 100
        assert [_by_id(raw, reborn.topic_id).base_offset for _ in range(2)] == [1, 2]
        raw.ask("delete_topics", 5, topic_names=["reborn"], timeout_ms=1000)
        assert _by_id(raw, reborn.topic_id).error_code == 100


def test_a_resend_is_recognized_on_the_short_way_too(raw, stream):
    """With the offset of its first time; and what is out of order is refused."""

    def send(sequence: int):
        return produce(raw, stream, batch_of([b"x"], producer_id=9, producer_epoch=0, base_sequence=sequence))

    assert [send(one).base_offset for one in (0, 1, 2, 1, 2, 3)] == [0, 1, 2, 1, 2, 3]
    refused = send(9)
    assert refused.error_code == 45
    assert refused.error_message
    assert send(4).base_offset == 4


def test_pipelined_requests_are_answered_in_order(raw, stream):
    """Many in one packet, answered by one."""
    publish(raw, stream, b"first")
    for _ in range(200):
        raw.send("produce", 9, **_fields(stream, batch_of([b"x"])))
    for number in range(200):
        answer = raw.receive("produce", 9).responses[0]
        assert answer.name == stream
        assert answer.partition_responses[0].base_offset == number + 1


def _fields(name: str, batch: bytes, topic_id: bytes = bytes(16)):
    module = codec("produce")
    part = module.PartitionProduceData(index=0, records=memoryview(batch))
    topic = module.TopicProduceData(name=name, topic_id=topic_id, partition_data=[part])
    return {"acks": -1, "timeout_ms": 1000, "topic_data": [topic]}


def _by_id(raw: Raw, topic_id: bytes):
    response = raw.ask("produce", 13, **_fields("", batch_of([b"x"]), topic_id))
    return response.responses[0].partition_responses[0]
