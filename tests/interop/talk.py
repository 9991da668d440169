"""One conversation with a server, in raw requests, written down so that two servers' answers can be compared.

What is a server's own (ids, addresses, clocks, wording) is replaced by what it means: a stream's id by `id of a`, a
member's id by `member 1`. What is left has to be equal.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from bench.raw_client import Raw, batch_of, codec, request_frame
from headwater.wire.fields import NO_ID

FORGOTTEN = {
    "error_message",
    "throttle_time_ms",
    "host",
    "port",
    "cluster_id",
    "documentation",
    "batch_index_error_message",
}
UNORDERED = {"topics", "responses", "partitions"}  # as they come out of a hash table, in Kafka
SECONDS = 10.0


class Talk:
    """Streams are called by short names here, and by names that nobody used before on the server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.said: dict[str, Any] = {}
        self._raw: Raw | None = None
        self._own: dict[str | bytes, str] = {}
        self._suffix = "-" + uuid.uuid4().hex[:8]

    def close(self) -> None:
        if self._raw is not None:
            self._raw.socket.close()
            self._raw = None

    @property
    def raw(self) -> Raw:
        if self._raw is None:
            self._raw = Raw(self.address, timeout=SECONDS)
        return self._raw

    def name(self, short: str) -> str:
        name = short + self._suffix
        self.own(name, short)
        return name

    def own(self, value: str | bytes, meaning: str) -> None:
        """Has `value` written down as `meaning`."""
        self._own.setdefault(value, meaning)

    def ask(self, label: str, api: str, version: int, /, **fields: Any) -> Any:
        """Asks, and writes the answer down; a connection that closes is an answer."""
        frame = request_frame(api, version, 1, "talk", **fields)
        return self.put(label, frame, api, version)

    def put(self, label: str, frame: bytes, api: str, version: int) -> Any:
        assert label not in self.said, label
        try:
            self.raw.socket.sendall(frame)
            answer = self.raw.receive(api, version)
        except ConnectionError:
            self.close()
            self.said[label] = "closed"
            return None
        except TimeoutError:
            self.close()
            self.said[label] = "silent"
            return None
        self.said[label] = self.plain(answer)
        return answer

    def aside(self, api: str, version: int, /, **fields: Any) -> Any:
        """Asks without writing it down."""
        with Raw(self.address, timeout=SECONDS) as raw:
            return raw.ask(api, version, **fields)

    def plain(self, answer: Any, field: str = "") -> Any:
        if isinstance(answer, list):
            plain = [self.plain(one) for one in answer]
            return sorted(plain, key=_named) if field in UNORDERED else plain
        if hasattr(type(answer), "__slots__"):
            fields = {name: getattr(answer, name) for name in answer.__slots__ if name not in FORGOTTEN}
            return {name: self.plain(value, name) for name, value in fields.items()}
        if isinstance(answer, bytearray | memoryview):
            answer = bytes(answer)
        if answer in ("", NO_ID, None):
            return answer.hex() if answer else answer
        if isinstance(answer, str | bytes) and answer in self._own:
            return self._own[answer]
        if field in {"member_id", "leader"}:
            meaning = f"member {sum(each.startswith('member') for each in self._own.values()) + 1}"
            return self._own.setdefault(answer, meaning)
        if field == "session_id":
            return "a session" if answer else 0
        if field == "producer_id":
            return answer if answer < 0 else "a producer's id"
        return f"{len(answer)} bytes" if isinstance(answer, bytes) else answer

    # --- what most conversations begin with ------------------------------------------------------

    def stream(self, short: str, *, partitions: int = 1, **config: str) -> str:
        """A new stream, once every part of the server knows it."""
        module, name = codec("create_topics"), self.name(short)
        configs = [module.CreatableTopicConfig(name=key.replace("_", "."), value=said) for key, said in config.items()]
        topic = module.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        made = self.aside("create_topics", 7, topics=[topic], timeout_ms=10_000).topics[0]
        assert made.error_code == 0, made.error_message
        self.own(bytes(made.topic_id), f"id of {short}")
        self.known(name)
        return name

    def id_of(self, short: str) -> bytes:
        return next(one for one, meaning in self._own.items() if isinstance(one, bytes) and meaning == f"id of {short}")

    def known(self, name: str, *, gone: bool = False) -> None:
        """Kafka's controller is ahead of its broker for some milliseconds."""
        deadline = time.monotonic() + SECONDS
        wanted = [codec("metadata").MetadataRequestTopic(name=name)]
        while True:
            topic = self.aside("metadata", 9, topics=wanted, allow_auto_topic_creation=False).topics[0]
            if gone == (topic.error_code == 3) and all(
                self._leads(name, index) for index in range(len(topic.partitions))
            ):
                return
            assert time.monotonic() < deadline, f"{name} is not settled"
            time.sleep(0.01)

    def _leads(self, name: str, index: int) -> bool:
        module = codec("list_offsets")
        part = module.ListOffsetsPartition(partition_index=index, timestamp=-1)
        topics = [module.ListOffsetsTopic(name=name, partitions=[part])]
        answer = self.aside("list_offsets", 7, replica_id=-1, topics=topics)
        return bool(answer.topics[0].partitions[0].error_code == 0)

    def publish(self, name: str, *values: bytes, partition: int = 0, timestamp_ms: int = 1_700_000_000_000) -> None:
        answer = self.aside(
            "produce", 9, **produce_fields(name, batch_of([*values], timestamp_ms=timestamp_ms), partition)
        )
        code = answer.responses[0].partition_responses[0].error_code
        assert code == 0, code


def _named(one: Any) -> str:
    """By name or number, or as they came."""
    return str(one.get("name") or one.get("partition_index", "")) if isinstance(one, dict) else ""


def produce_fields(name: str, batch: bytes, partition: int = 0, *, acks: int = -1, **fields: Any) -> dict[str, Any]:
    module = codec("produce")
    part = module.PartitionProduceData(index=partition, records=memoryview(batch))
    topic = module.TopicProduceData(name=name, partition_data=[part], topic_id=fields.pop("topic_id", NO_ID))
    return {"acks": acks, "timeout_ms": 5000, "topic_data": [topic], **fields}


def fetch_fields(name: str, offset: int, partition: int = 0, **fields: Any) -> dict[str, Any]:
    module = codec("fetch")
    own = {
        key: fields.pop(key)
        for key in ("current_leader_epoch", "last_fetched_epoch", "log_start_offset")
        if key in fields
    }
    part = module.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=fields.pop("partition_max_bytes", 1 << 20), **own
    )
    topic = module.FetchTopic(topic=name, topic_id=fields.pop("topic_id", NO_ID), partitions=[part])
    return {"max_wait_ms": 50, "min_bytes": 1, "max_bytes": 1 << 24, "session_epoch": -1, "topics": [topic], **fields}
