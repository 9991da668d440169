"""CreateTopics (19), versions 2-7.

v4 -1 for the broker's default of partitions and replicas; v5 flexible, and the answer tells what was made; v7 topic ids.
Each stream answers for itself. An existing name is TOPIC_ALREADY_EXISTS, whatever its settings: clients compare.

Differs from Kafka: one node, so a replication factor other than 1 or -1 is INVALID_REPLICATION_FACTOR, as Kafka with one
broker says. A config that has no effect here is INVALID_CONFIG with its name (`store/configs.py`).
"""

from __future__ import annotations

import time
from collections import Counter

from headwater.broker.context import Context
from headwater.broker.handlers.describe_configs import SOURCES
from headwater.broker.server import NODE_ID
from headwater.config import PARTITIONS_MAX
from headwater.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    WireError,
)
from headwater.store import configs
from headwater.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    Request,
    Response,
)

DEFAULT = -1


async def handle(request: Request, context: Context) -> Response:
    """Cancelling forgets the answer: what was begun is created."""
    counts = Counter(topic.name for topic in request.topics)
    response = Response()
    for topic in {topic.name: topic for topic in request.topics}.values():
        result = CreatableTopicResult(name=topic.name, error_message=None, configs=[])
        response.topics.append(result)
        try:
            if counts[topic.name] > 1:
                raise InvalidRequest(f"the stream {topic.name!r} is named more than once in this request")
            await _create(topic, result, context, validate_only=request.validate_only)
        except WireError as why:
            result.error_code, result.error_message = why.code, str(why)
    return response


async def _create(
    topic: CreatableTopic, result: CreatableTopicResult, context: Context, *, validate_only: bool
) -> None:
    broker = context.broker
    partitions = _partitions(topic, broker.settings.num_partitions)
    config = {one.name: one.value for one in topic.configs}
    if len(config) < len(topic.configs):
        raise InvalidRequest(f"a config of {topic.name!r} is named more than once")
    given = broker.store.check_new(topic.name, partitions, config).given
    now_ms = time.time_ns() // 1_000_000
    if not validate_only:
        entry = await broker.durable(broker.store.create(topic.name, partitions, given, now_ms))
        result.topic_id, now_ms = entry.id, entry.created_ms
    result.num_partitions, result.replication_factor = partitions, 1
    result.configs = [
        CreatableTopicConfigs(
            name=one.name, value=one.value, read_only=one.read_only, config_source=SOURCES[one.source]
        )
        for one in configs.describe(given, broker.settings, created_ms=now_ms, updated_ms=now_ms)
    ]


def _partitions(topic: CreatableTopic, default: int) -> int:
    if topic.assignments:
        if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
            raise InvalidRequest("replicas are assigned, so partitions and replication factor must both be -1")
        indexes = sorted(one.partition_index for one in topic.assignments)
        if indexes != list(range(len(indexes))) or len(indexes) > PARTITIONS_MAX:
            raise InvalidReplicaAssignment("the partitions that replicas are assigned to are not 0, 1, 2 ...")
        if any(one.broker_ids != [NODE_ID] for one in topic.assignments):
            raise InvalidReplicaAssignment(f"a replica is assigned to another broker than {NODE_ID}, the only one")
        return len(indexes)
    if topic.replication_factor not in {1, DEFAULT}:
        raise InvalidReplicationFactor(
            f"replication factor {topic.replication_factor} needs as many brokers, and there is 1: say 1, or -1"
        )
    return default if topic.num_partitions == DEFAULT else topic.num_partitions
