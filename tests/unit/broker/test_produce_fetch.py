"""What is published is read back, over raw connections to a live broker."""

import threading
import time

import pytest

from bench.raw_client import Raw, batch_of, codec, produce_frame, request_frame
from headwater import testing
from headwater.batch import HEADER_BYTES
from tests.unit.broker.conftest import create, eventually, fetch, fetch_fields, produce, publish, values_of


def test_records_come_back_as_they_were_sent(raw, stream):
    """At the offsets that the answers said."""
    assert publish(raw, stream, b"one", b"two") == 0
    assert publish(raw, stream, b"three") == 2
    found = fetch(raw, stream)
    assert (found.error_code, found.high_watermark, found.log_start_offset) == (0, 3, 0)
    assert values_of(found) == [b"one", b"two", b"three"]
    assert values_of(fetch(raw, stream, 2)) == [b"three"]


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_of_produce_by_name_is_answered(raw, stream, version):
    """From clients of any age."""
    assert produce(raw, stream, batch_of([b"x"]), version=version).error_code == 0


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_of_fetch_by_name_is_answered(raw, stream, version):
    """From clients of any age."""
    publish(raw, stream, b"x")
    assert values_of(fetch(raw, stream, version=version)) == [b"x"]


def test_streams_are_reached_by_id(raw):
    """Produce from 13 and Fetch from 13 name them so; an id that is not there is UNKNOWN_TOPIC_ID."""
    made = create(raw, "by-id")
    for topic_id, error in ((made.topic_id, 0), (b"\x07" * 16, 100)):
        module = codec("produce")
        part = module.PartitionProduceData(index=0, records=memoryview(batch_of([b"x"])))
        topic = module.TopicProduceData(topic_id=topic_id, partition_data=[part])
        answer = raw.ask("produce", 13, acks=-1, timeout_ms=1000, topic_data=[topic])
        assert answer.responses[0].partition_responses[0].error_code == error
        for version in range(13, 19):
            fields = fetch_fields("")
            fields["topics"][0].topic_id = topic_id
            found = raw.ask("fetch", version, **fields).responses[0]
            assert found.topic_id == topic_id
            assert found.partitions[0].error_code == error


def test_many_requests_in_one_packet_are_answered_in_order(raw, stream):
    """A client may send on without waiting; produce and others mixed."""
    frames = []
    for number in range(1, 51):
        if number % 10 == 0:
            frames.append(request_frame("fetch", 12, number, "raw", **fetch_fields(stream, number // 10 * 9 - 1)))
        else:
            frame = bytearray(produce_frame(stream, 0, batch_of([b"%d" % number])))
            frame[8:12] = number.to_bytes(4, "big")
            frames.append(bytes(frame))
    raw.socket.sendall(b"".join(frames))
    for number in range(1, 51):
        answer = raw.receive_frame()
        assert int.from_bytes(answer[:4], "big") == number
        if number % 10 == 0:  # what was sent before it in the same packet is there for it to read
            found = codec("fetch").decode_response(answer[5:], 12).responses[0].partitions[0]
            assert values_of(found) == [b"%d" % (number - 1)]


def test_a_client_reads_what_it_wrote_before_also_while_the_partition_is_being_opened(raw):
    """Two hundred new streams, each written and read without a pause: opening takes place beside the loop."""
    for number in range(200):
        create(raw, name := f"first-write-{number}")
        read = request_frame("fetch", 12, 1, "raw", **fetch_fields(name))
        raw.socket.sendall(produce_frame(name, 0, batch_of([b"quiet"]), acks=0))
        raw.socket.sendall(read)
        assert values_of(raw.receive("fetch", 12).responses[0].partitions[0]) == [b"quiet"]


def test_no_answer_is_sent_for_acks_0(raw, stream):
    """But the record is written, and the connection goes on."""
    raw.socket.sendall(produce_frame(stream, 0, batch_of([b"quiet"]), acks=0))
    assert values_of(fetch(raw, stream)) == [b"quiet"]


def test_a_refusal_with_acks_0_closes_the_connection(server):
    """The only way left to say it."""
    with Raw(server.address) as raw:
        raw.socket.sendall(produce_frame("not-there", 0, batch_of([b"x"]), acks=0))
        assert raw.socket.recv(10) == b""


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda batch: batch[:-1], 2),
        (lambda batch: batch[:HEADER_BYTES] + b"\xff" + batch[HEADER_BYTES + 1 :], 2),
        (lambda batch: batch[:16] + b"\x01" + batch[17:], 87),
        (lambda batch: batch + batch, 87),
        (lambda _: b"", 87),
        (lambda _: batch_of([b"x" * 2_000_000]), 10),
    ],
)
def test_a_batch_that_cannot_be_is_refused_with_its_code(raw, stream, damage, code):
    """And nothing is written; the connection goes on."""
    assert produce(raw, stream, damage(batch_of([b"x"]))).error_code == code
    assert fetch(raw, stream).high_watermark == 0


@pytest.mark.parametrize(("partition", "name", "code"), [(7, None, 3), (-1, None, 3), (0, "nowhere", 3)])
def test_unknown_places_are_named(raw, stream, partition, name, code):
    """UNKNOWN_TOPIC_OR_PARTITION, at which clients refresh their metadata."""
    assert produce(raw, name or stream, batch_of([b"x"]), partition=partition).error_code == code
    assert fetch(raw, name or stream, partition=partition).error_code == code


def test_acks_and_transactions_that_are_not_served_are_refused(raw, stream):
    """By a code that makes clients stop, not repeat."""
    assert produce(raw, stream, batch_of([b"x"]), acks=2).error_code == 21
    module = codec("produce")
    part = module.PartitionProduceData(index=0, records=memoryview(batch_of([b"x"])))
    topic = module.TopicProduceData(name=stream, partition_data=[part])
    answer = raw.ask("produce", 9, transactional_id="t", acks=-1, timeout_ms=1, topic_data=[topic])
    assert answer.responses[0].partition_responses[0].error_code == 53


def test_a_resend_is_answered_with_its_first_offset(raw, stream):
    """Idempotent producers resend what was cut between append and ack."""

    def batch(sequence: int) -> bytes:
        return batch_of([b"x"], producer_id=4711, producer_epoch=0, base_sequence=sequence)

    assert [produce(raw, stream, batch(one)).base_offset for one in (0, 1, 0, 1, 2)] == [0, 1, 0, 1, 2]
    assert produce(raw, stream, batch(7)).error_code == 45


def test_a_poll_waits_for_records_and_wakes_when_they_come(server, raw, stream):
    """Not before, not much later, and for `min_bytes` of them."""
    with Raw(server.address) as reader:
        size = len(batch_of([b"x"]))
        begun = time.monotonic()
        reader.send("fetch", 12, **fetch_fields(stream, max_wait_ms=20_000, min_bytes=2 * size))
        eventually(lambda: server.statistics()["waiting_polls"] == 1, "the poll waits")
        publish(raw, stream, b"1")
        publish(raw, stream, b"2")
        found = reader.receive("fetch", 12).responses[0].partitions[0]
        assert values_of(found) == [b"1", b"2"]
        assert time.monotonic() - begun < 10
    eventually(lambda: server.statistics()["waiting_polls"] == 0, "nothing waits")


def test_a_poll_ends_when_its_time_is_over(raw, stream):
    """With nothing, and without an error."""
    begun = time.monotonic()
    found = fetch(raw, stream, max_wait_ms=150)
    assert (found.error_code, bytes(found.records)) == (0, b"")
    assert 0.14 < time.monotonic() - begun < 5


def test_a_poll_wakes_when_its_stream_is_deleted(server, raw, stream):
    """And is told that it is gone."""
    publish(raw, stream, b"x")
    with Raw(server.address) as reader:
        reader.send("fetch", 12, **fetch_fields(stream, 1, max_wait_ms=20_000))
        eventually(lambda: server.statistics()["waiting_polls"] == 1, "the poll waits")
        raw.ask("delete_topics", 5, topic_names=[stream], timeout_ms=1000)
        assert reader.receive("fetch", 12).responses[0].partitions[0].error_code == 3


def test_a_client_that_leaves_takes_its_poll_along(server, raw, stream):
    """Nothing waits for nobody."""
    publish(raw, stream, b"x")
    with Raw(server.address) as reader:
        reader.send("fetch", 12, **fetch_fields(stream, 1, max_wait_ms=20_000))
        eventually(lambda: server.statistics()["waiting_polls"] == 1, "the poll waits")
    eventually(lambda: server.statistics()["waiting_polls"] == 0, "the poll is forgotten")


def test_fetches_are_bounded_by_bytes_and_return_an_oversize_batch_alone(raw, stream):
    """The first batch of the first partition comes however large it is, or nobody would ever get past it."""
    for number in range(5):
        publish(raw, stream, b"%d" % number * 10_000)
    size = len(batch_of([b"0" * 10_000]))
    assert len(values_of(fetch(raw, stream, partition_max_bytes=3 * size + 10))) == 3
    assert len(values_of(fetch(raw, stream, max_bytes=2 * size))) == 2
    assert len(values_of(fetch(raw, stream, partition_max_bytes=10))) == 1
    assert len(values_of(fetch(raw, stream, max_bytes=0))) == 1


def test_a_second_partition_does_not_exceed_the_fetch(raw):
    """What does not fit beside the first partition's records is asked for again."""
    create(raw, "two-partitions", partitions=2)
    for partition in (0, 1):
        publish(raw, "two-partitions", b"x" * 10_000, partition=partition)
    size = len(batch_of([b"x" * 10_000]))
    module = codec("fetch")
    parts = [module.FetchPartition(partition=one, partition_max_bytes=1 << 20) for one in (0, 1)]
    for limit, lengths in ((size + 10, [size, 0]), (2 * size, [size, size])):
        topics = [module.FetchTopic(topic="two-partitions", partitions=parts)]
        answer = raw.ask("fetch", 12, max_wait_ms=0, min_bytes=0, max_bytes=limit, topics=topics)
        assert [len(one.records) for one in answer.responses[0].partitions] == lengths


def test_offsets_and_epochs_that_cannot_be_are_refused(raw, stream):
    """OFFSET_OUT_OF_RANGE, UNKNOWN_LEADER_EPOCH; the end itself is a place to wait at."""
    publish(raw, stream, b"x")
    assert fetch(raw, stream, 1).error_code == 0
    assert fetch(raw, stream, 2).error_code == 1
    assert fetch(raw, stream, -1).error_code == 1
    assert fetch(raw, stream, current_leader_epoch=0).error_code == 0
    assert fetch(raw, stream, current_leader_epoch=99).error_code == 75
    assert fetch(raw, stream, 1, last_fetched_epoch=0).error_code == 0
    assert fetch(raw, stream, 1, last_fetched_epoch=5).error_code == 1


def test_fetch_sessions_are_not_kept(raw, stream):
    """Id 0 says so; who speaks of one begins anew."""
    assert raw.ask("fetch", 12, **fetch_fields(stream, session_epoch=0)).session_id == 0
    assert raw.ask("fetch", 12, **fetch_fields(stream, session_id=5, session_epoch=1)).error_code == 70
    assert raw.ask("fetch", 12, **fetch_fields(stream, session_epoch=3)).error_code == 70
    for epoch in (0, -1):  # begins anew, or ends it: either way all partitions are named
        answer = raw.ask("fetch", 12, **fetch_fields(stream, session_id=5, session_epoch=epoch))
        assert (answer.error_code, answer.session_id, len(answer.responses)) == (0, 0, 1)


def test_a_file_sync_stream_answers_what_is_durable(raw):
    """Alone, and many at once."""
    create(raw, "durable", flush_messages="1")
    assert publish(raw, "durable", b"first") == 0
    frame = produce_frame("durable", 0, batch_of([b"next"]))
    raw.socket.sendall(frame * 20)
    for _ in range(20):
        answer = codec("produce").decode_response(raw.receive_frame()[5:], 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    found = fetch(raw, "durable")
    assert found.high_watermark == 21
    assert len(values_of(found)) == 21


def test_writers_on_many_connections_share_turns(server, raw, stream):
    """What arrives together is appended together, and nothing is lost or mixed up."""
    connections, each = 16, 50

    def write(number: int) -> None:
        with Raw(server.address) as one:
            for count in range(each):
                publish(one, stream, b"%d:%d" % (number, count))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found: list[bytes] = []
    at = 0
    while len(found) < connections * each:
        values = values_of(fetch(raw, stream, at))
        found += values
        at += len(values)
    assert sorted(found) == sorted(b"%d:%d" % (n, c) for n in range(connections) for c in range(each))
    for number in range(connections):
        mine = [value for value in found if value.startswith(b"%d:" % number)]
        assert mine == [b"%d:%d" % (number, count) for count in range(each)]
    statistics = server.statistics()
    assert statistics["turns"] <= statistics["shares"]


def test_large_answers_arrive_whole_at_a_slow_reader():
    """From files, piece by piece, while another client is served."""
    with testing.broker(segment_bytes=2_000_000) as server, Raw(server.address) as raw, Raw(server.address) as slow:
        create(raw, "large")
        values = [bytes([number]) * 900_000 for number in range(10)]
        for value in values:
            publish(raw, "large", value)
        slow.send("fetch", 12, **fetch_fields("large", partition_max_bytes=1 << 24))
        for _ in range(20):
            publish(raw, "large", b"meanwhile")
        found = slow.receive("fetch", 12).responses[0].partitions[0]
        assert values_of(found)[:10] == values
