"""The generated classes and codecs, where they do more than what the oracles compare."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.apis import APIS as SERVED
from headwater.wire.messages import fetch, metadata, offset_commit, produce
from tests.unit.wire.apis import module
from tools import generate_wire
from tools.wire_definitions import NotUnderstood, Span, _head, snake


def joined(parts: list[Any]) -> bytes:
    return b"".join(parts)


def test_generated_files_are_what_the_generator_writes():
    """The checked-in codecs are what the definitions say, and nothing else lies beside them."""
    there = {path.name: path.read_text() for path in generate_wire.OUT.glob("*.py")}
    assert there == generate_wire.generated()


def test_the_generator_writes_and_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """`make wire` writes what lacks and removes what is no longer an API; `--check` names what differs."""
    assert generate_wire.main(["--check"]) == 0
    monkeypatch.setattr(generate_wire, "OUT", tmp_path)
    (tmp_path / "gone.py").write_text("")
    assert generate_wire.main(["--check"]) == 1
    assert "gone.py is not what" in capsys.readouterr().out
    assert generate_wire.main([]) == 0
    assert not (tmp_path / "gone.py").exists()
    assert generate_wire.main(["--check"]) == 0


def test_the_broker_serves_what_is_generated():
    """The broker's table and the codecs name the same APIs, keys, versions and flexible versions."""
    assert {api.name for api in SERVED.values()} == {snake(name) for name in generate_wire.APIS}
    for api in SERVED.values():
        made = module("".join(part.capitalize() for part in api.name.split("_")))
        assert (api.key, api.low, api.high, api.flexible_from) == (made.KEY, made.LOW, made.HIGH, made.FLEXIBLE_FROM)


def test_codecs_are_loaded_one_by_one():
    """One codec brings neither another one nor anything heavy with it: the broker starts in milliseconds."""
    code = (
        "import sys; import headwater.wire.messages.produce; "
        "print([n for n in sys.modules if n.startswith('headwater.wire.messages.') or n in"
        " {'pydantic', 'asyncio', 'kafka', 'kio', 'typer'}])"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == "['headwater.wire.messages.produce']"


def test_records_are_slices_of_the_frame():
    """A Produce request's records are not copied: they can be stamped where they were received."""
    records = memoryview(b"0123456789")
    part = produce.PartitionProduceData(index=1, records=records)
    topic = produce.TopicProduceData(name="t", topic_id=bytes(range(16)), partition_data=[part])
    for version in (3, 9, 13):
        parts = produce.encode_request(produce.Request(acks=1, topic_data=[topic]), version)
        assert any(part is records for part in parts)
        frame = bytearray(joined(parts))
        read = produce.decode_request(memoryview(frame), version).topic_data[0].partition_data[0].records
        assert read is not None
        frame[frame.index(b"0123456789")] = ord("X")
        assert bytes(read) == b"X123456789"


class Slice:
    def __init__(self, length: int) -> None:
        self.length = length


@pytest.mark.parametrize("version", [4, 11, 12, 16, 18])
def test_file_slices_stand_for_records(version: int):
    """What has a length may stand for records, alone or several: the bytes around it are as if they were there."""
    gaps = [Slice(100), Slice(200), Slice(28)]

    def answer(first: Any, second: Any) -> fetch.Response:
        parts = [
            fetch.PartitionData(partition_index=0, records=first),
            fetch.PartitionData(partition_index=1, records=second),
            fetch.PartitionData(partition_index=2, records=None),
            fetch.PartitionData(partition_index=3, records=b""),
        ]
        return fetch.Response(responses=[fetch.FetchableTopicResponse(topic="t", partitions=parts)])

    whole = joined(fetch.encode_response(answer(b"a" * 100, b"b" * 228), version))
    pieces = fetch.encode_response(answer(gaps[0], gaps[1:]), version)
    assert [piece for piece in pieces if isinstance(piece, Slice)] == gaps
    fill = {id(gaps[0]): b"a" * 100, id(gaps[1]): b"b" * 200, id(gaps[2]): b"b" * 28}
    assert b"".join(fill.get(id(piece), piece) for piece in pieces) == whole  # type: ignore[arg-type]
    read = fetch.decode_response(memoryview(whole), version).responses[0].partitions
    assert [None if one.records is None else len(one.records) for one in read] == [100, 228, None, 0]


@pytest.mark.parametrize("version", range(metadata.LOW, metadata.HIGH + 1))
def test_kept_topics(version: int):
    """A topic that was encoded before gives the same answer as the topic itself."""
    partition = metadata.MetadataResponsePartition(partition_index=3, replica_nodes=[0], isr_nodes=[0])
    topics = [metadata.MetadataResponseTopic(name=name, partitions=[partition]) for name in ("a", "b")]
    kept = [metadata.encode_metadata_response_topic(topics[0], version), topics[1]]
    plain = metadata.encode_response(metadata.Response(topics=topics), version)
    assert metadata.encode_response(metadata.Response(topics=kept), version) == plain


def test_tags_that_are_not_known():
    """Unknown tagged fields are passed over, whatever their number: also those that will be ours, from 10000 on."""
    raw = joined(offset_commit.encode_request(offset_commit.Request(group_id="g"), 8))
    assert raw[-1:] == b"\0"
    tagged = raw[:-1] + b"\2" + b"\x91\x4e\1\1" + b"\xff\x7f\0"
    assert offset_commit.decode_request(memoryview(tagged), 8) == offset_commit.Request(group_id="g")


def test_tagged_structs_that_were_not_sent():
    """A tagged struct that was not sent is None, and one that is None is not sent."""
    request = fetch.Request(replica_state=fetch.ReplicaState(replica_id=3, replica_epoch=4))
    raw = joined(fetch.encode_request(request, 15))
    assert fetch.decode_request(memoryview(raw), 15) == request
    short = joined(fetch.encode_request(fetch.Request(), 15))
    assert len(short) < len(raw)
    assert fetch.decode_request(memoryview(short), 15).replica_state is None


def test_what_a_version_lacks():
    """A field that a version does not have is not written, and is read as its default."""
    request = fetch.Request(rack_id="r", max_bytes=5, session_id=9)
    read = fetch.decode_request(memoryview(joined(fetch.encode_request(request, 4))), 4)
    assert (read.rack_id, read.max_bytes, read.session_id, read.session_epoch) == ("", 5, 0, -1)


def test_messages_compare_and_show():
    """Messages are equal by their fields, have lists of their own, and show what they hold."""
    one, other = produce.Request(acks=1), produce.Request(acks=1)
    assert one == other
    one.topic_data.append(produce.TopicProduceData(name="t"))
    assert one != other
    assert other.topic_data == []
    assert one != "a request"
    assert repr(produce.PartitionProduceData(index=2)) == "PartitionProduceData(index=2, records=None)"


def head(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "request", "validVersions": "0-3", "flexibleVersions": "2+", "fields": fields}


def test_definitions_that_are_not_understood():
    """A definition with something new in it stops the generator, rather than make a wrong codec."""
    inner = [{"name": "A", "type": "int32", "versions": "0+"}]
    plain = {"name": "X", "type": "Inner", "versions": "0+", "fields": inner}
    half = {"name": "X", "type": "int32", "versions": "0+", "taggedVersions": "2+", "tag": 0}
    twice = [{"name": name, "type": "[]Inner", "versions": "0+", "fields": inner} for name in ("X", "Y")]
    for fields in ([plain], [half], twice):
        with pytest.raises(NotUnderstood):
            _head(head(fields), "Request", {})


def test_versions_as_kafka_writes_them():
    """Spans of versions are read in all of Kafka's forms, and say what makes them part of a wider one."""
    within = Span(low=1, high=9)
    for text, low, high, condition in (
        ("0+", 1, 9, ""), ("3+", 3, 9, "version >= 3"), ("0-4", 1, 4, "version <= 4"),
        ("5-7", 5, 7, "5 <= version <= 7"), ("9", 9, 9, "version >= 9"),
    ):  # fmt: skip
        span = Span.parse(text, within)
        assert (span.low, span.high, span.condition(within)) == (low, high, condition)
    assert not list(Span.parse("none", within))
