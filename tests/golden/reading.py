"""What a data directory of the golden kind says of itself, asked over the wire: the same for who cuts it and who tests it."""

from __future__ import annotations

import base64
from typing import Any

from bench.raw_client import Raw, codec
from headwater.batch import decode, parse

GROUP = "readers"
FETCH_VERSION = 12


def facts(address: str) -> dict[str, Any]:
    """Streams with their records, epochs and cursors, as JSON."""
    with Raw(address) as raw:
        streams = {topic.name: _stream(raw, topic) for topic in raw.ask("metadata", 12, topics=None).topics}
        return {"streams": dict(sorted(streams.items())), "cursors": _cursors(raw, streams)}


def records(raw: Raw, name: str, partition: int) -> list[dict[str, Any]]:
    """All of a partition, opened by our own decoder."""
    module = codec("fetch")
    found: list[dict[str, Any]] = []
    offset = 0
    while True:
        wanted = module.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = module.FetchTopic(topic=name, partitions=[wanted])
        answer = raw.ask("fetch", FETCH_VERSION, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic])
        part = answer.responses[0].partitions[0]
        assert part.error_code == 0, f"{name}/{partition} at {offset}: error {part.error_code}"
        view, at = memoryview(part.records or b""), 0
        while at < len(view):
            batch = parse(view, at)
            at += batch.length
            offset = batch.next_offset
            found += [_record(batch.epoch, one) for one in decode(batch)]
        if offset >= part.high_watermark:
            return found


def _stream(raw: Raw, topic: Any) -> dict[str, Any]:
    partitions = sorted(one.partition_index for one in topic.partitions)
    return {
        "id": bytes(topic.topic_id).hex(),
        "partitions": {str(one): records(raw, topic.name, one) for one in partitions},
        "epochs": {str(one): _epochs(raw, topic.name, one) for one in partitions},
    }


def _epochs(raw: Raw, name: str, partition: int) -> list[list[int]]:
    """[epoch, end offset] of each epoch that the log knows."""
    module = codec("offset_for_leader_epoch")
    found: list[list[int]] = []
    for epoch in range(3):
        wanted = module.OffsetForLeaderPartition(partition=partition, current_leader_epoch=-1, leader_epoch=epoch)
        topic = module.OffsetForLeaderTopic(topic=name, partitions=[wanted])
        part = raw.ask("offset_for_leader_epoch", 4, replica_id=-1, topics=[topic]).topics[0].partitions[0]
        found.append([part.leader_epoch, part.end_offset])
    return found


def _cursors(raw: Raw, streams: dict[str, Any]) -> dict[str, list[Any]]:
    module = codec("offset_fetch")
    topics = [
        module.OffsetFetchRequestTopics(name=name, partition_indexes=[int(one) for one in facts_of["partitions"]])
        for name, facts_of in streams.items()
    ]
    wanted = module.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
    answer = raw.ask("offset_fetch", 8, groups=[wanted]).groups[0]
    return {
        f"{topic.name}/{part.partition_index}": [part.committed_offset, part.committed_leader_epoch, part.metadata]
        for topic in answer.topics
        for part in topic.partitions
    }


def _record(epoch: int, one: Any) -> dict[str, Any]:
    return {
        "offset": one.offset,
        "epoch": epoch,
        "timestamp_ms": one.timestamp_ms,
        "key": _text(one.key),
        "value": _text(one.value),
        "headers": [[name, _text(value)] for name, value in one.headers],
    }


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(bytes(raw)).decode()
