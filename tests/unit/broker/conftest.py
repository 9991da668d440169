"""A live broker for the tests of this room, and short ways to ask it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.raw_client import Raw, batch_of, codec
from headwater import testing
from headwater.batch import decode, parse


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with testing.broker() as one:
        yield one


@pytest.fixture
def raw(server) -> Iterator[Raw]:
    with Raw(server.address) as one:
        yield one


@pytest.fixture
def stream(request, raw) -> str:
    """A new stream of one partition, named after the test."""
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)[:200]
    create(raw, name)
    return name


def create(raw: Raw, name: str, *, partitions: int = 1, **config: str) -> Any:
    module = codec("create_topics")
    configs = [module.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
    topic = module.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    result = raw.ask("create_topics", 7, topics=[topic]).topics[0]
    assert result.error_code == 0, result.error_message
    return result


def produce(raw: Raw, name: str, batch: bytes, *, partition: int = 0, acks: int = -1, version: int = 9) -> Any:
    module = codec("produce")
    part = module.PartitionProduceData(index=partition, records=memoryview(batch))
    topic = module.TopicProduceData(name=name, partition_data=[part])
    response = raw.ask("produce", version, acks=acks, timeout_ms=1000, topic_data=[topic])
    return response.responses[0].partition_responses[0]


def publish(raw: Raw, name: str, *values: bytes, partition: int = 0) -> int:
    """The base offset of the values as one batch."""
    result = produce(raw, name, batch_of(list(values)), partition=partition)
    assert result.error_code == 0, result.error_message
    return int(result.base_offset)


def fetch_fields(name: str, offset: int = 0, *, partition: int = 0, **fields: Any) -> dict[str, Any]:
    module = codec("fetch")
    part = module.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=fields.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=fields.pop("current_leader_epoch", -1),
        last_fetched_epoch=fields.pop("last_fetched_epoch", -1),
    )  # fmt: skip
    topic = module.FetchTopic(topic=name, partitions=[part])
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24, "topics": [topic], **fields}


def fetch(raw: Raw, name: str, offset: int = 0, *, version: int = 12, **fields: Any) -> Any:
    return raw.ask("fetch", version, **fetch_fields(name, offset, **fields)).responses[0].partitions[0]


def values_of(partition: Any) -> list[bytes]:
    view = memoryview(bytes(partition.records))
    values: list[bytes] = []
    at = 0
    while at < len(view):
        batch = parse(view, at)
        values += [record.value or b"" for record in decode(batch)]
        at += batch.length
    return values


def eventually(met: Callable[[], Any], what: str, seconds: float = 10.0) -> Any:
    """Waits for a condition, with a deadline."""
    deadline = time.monotonic() + seconds
    while not (found := met()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.005)
    return found
