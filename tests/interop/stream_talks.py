"""What is asked of both servers about streams and their records: the odd requests, not the usual ones."""

from __future__ import annotations

from typing import Any

from bench.raw_client import batch_of, codec
from tests.interop.talk import Talk, fetch_fields, produce_fields

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
NOBODY = bytes(15) + b"\x07"
T0 = 1_700_000_000_000


def produce(talk: Talk) -> None:
    name = talk.stream("a", partitions=2)
    batch = batch_of([b"x"], timestamp_ms=T0)
    for version in (3, 5, 8, 9, 12):
        talk.ask(f"plain v{version}", "produce", version, **produce_fields(name, batch))
        talk.ask(f"no such stream v{version}", "produce", version, **produce_fields(talk.name("none"), batch))
    talk.ask("by id", "produce", 13, **produce_fields("", batch, topic_id=talk.id_of("a")))
    talk.ask("by an unknown id", "produce", 13, **produce_fields("", batch, topic_id=NOBODY))
    talk.ask("by no id", "produce", 13, **produce_fields("", batch))
    talk.ask("no such partition", "produce", 9, **produce_fields(name, batch, 2))
    talk.ask("a negative partition", "produce", 9, **produce_fields(name, batch, -1))
    for acks in (1, 2, -2):
        talk.ask(f"acks {acks}", "produce", 9, **produce_fields(name, batch, acks=acks))
    talk.ask("no records", "produce", 9, **produce_fields(name, b""))
    talk.ask("two batches", "produce", 9, **produce_fields(name, batch + batch))
    talk.ask("cut short", "produce", 9, **produce_fields(name, batch[:-1]))
    talk.ask("a header cut short", "produce", 9, **produce_fields(name, batch[:40]))
    talk.ask("a flipped bit", "produce", 9, **produce_fields(name, batch[:-1] + bytes([batch[-1] ^ 1])))
    talk.ask("magic 1", "produce", 9, **produce_fields(name, batch[:16] + b"\1" + batch[17:]))
    talk.ask("magic 3", "produce", 9, **produce_fields(name, batch[:16] + b"\3" + batch[17:]))
    talk.ask("acks 0", "produce", 9, **produce_fields(talk.name("none"), batch, acks=0))
    talk.ask("from the future", "produce", 9, **produce_fields(name, batch_of([b"x"], timestamp_ms=T0 * 2)))
    talk.ask("without a time", "produce", 9, **produce_fields(name, batch_of([b"x"], timestamp_ms=-1)))
    talk.ask("no stream at all", "produce", 9, acks=-1, timeout_ms=100, topic_data=[])
    small = talk.stream("small", max_message_bytes=str(len(batch)))
    talk.ask("exactly the limit", "produce", 9, **produce_fields(small, batch))
    talk.ask("one above", "produce", 9, **produce_fields(small, batch_of([b"xx"], timestamp_ms=T0)))


def idempotent(talk: Talk) -> None:
    name = talk.stream("a")

    def put(label: str, producer: int, epoch: int, sequence: int, count: int = 1) -> None:
        batch = batch_of(
            [b"x"] * count, timestamp_ms=T0, producer_id=producer, producer_epoch=epoch, base_sequence=sequence
        )
        talk.ask(label, "produce", 9, **produce_fields(name, batch))

    put("an id nobody gave, from 0", 900_001, 0, 0)
    put("the same again", 900_001, 0, 0)
    put("the next", 900_001, 0, 1, 3)
    put("a part of one", 900_001, 0, 2, 1)
    put("the same base, fewer", 900_001, 0, 1, 2)
    put("a gap", 900_001, 0, 9)
    put("older", 900_001, 0, 0)
    put("a new epoch, not from 0", 900_001, 1, 5)
    put("a new epoch, from 0", 900_001, 1, 0)
    put("the old epoch", 900_001, 0, 4)
    put("never seen, not from 0", 900_002, 0, 5)
    put("goes on", 900_002, 0, 6)
    for sequence in range(7, 14):
        put(f"goes on {sequence}", 900_002, 0, sequence)
    put("the sixth last again", 900_002, 0, 8)
    put("the fifth last again", 900_002, 0, 9)
    put("a negative sequence", 900_004, 0, -1)
    put("close to the end of numbers", 900_005, 0, INT_MAX, 1)
    put("round the end of numbers", 900_005, 0, 0, 1)
    put("across the end of numbers", 900_006, 0, INT_MAX - 1, 4)
    put("beyond the end of numbers", 900_006, 0, 2, 1)
    put("a negative epoch", 900_003, -1, 0)


def fetch(talk: Talk) -> None:
    name = talk.stream("a", partitions=2)
    for _ in range(3):
        talk.publish(name, b"x" * 100, b"y", b"z")
    for offset in (-LONG_MAX, -2, -1, 0, 1, 2, 3, 8, 9, 10, LONG_MAX):
        talk.ask(f"at {offset}", "fetch", 12, **fetch_fields(name, offset))
        talk.ask(f"at {offset} v4", "fetch", 4, **fetch_fields(name, offset))
    for size in (-1, 0, 1, 200, 400, INT_MAX):
        talk.ask(f"max_bytes {size}", "fetch", 12, **fetch_fields(name, 0, max_bytes=size))
        talk.ask(f"partition_max_bytes {size}", "fetch", 12, **fetch_fields(name, 0, partition_max_bytes=size))
    talk.ask("min_bytes huge", "fetch", 12, **fetch_fields(name, 0, min_bytes=INT_MAX))
    talk.ask("min_bytes huge at the end", "fetch", 12, **fetch_fields(name, 9, min_bytes=INT_MAX))
    talk.ask("min_bytes negative", "fetch", 12, **fetch_fields(name, 9, min_bytes=-1))
    talk.ask("max_wait negative", "fetch", 12, **fetch_fields(name, 9, max_wait_ms=-1))
    talk.ask("an empty partition", "fetch", 12, **fetch_fields(name, 0, 1))
    talk.ask("an empty partition at 1", "fetch", 12, **fetch_fields(name, 1, 1))
    talk.ask("no such partition", "fetch", 12, **fetch_fields(name, 0, 2))
    talk.ask("no such stream", "fetch", 12, **fetch_fields(talk.name("none"), 0))
    talk.ask("read_committed", "fetch", 12, **fetch_fields(name, 0, isolation_level=1))
    talk.ask("isolation level 7", "fetch", 12, **fetch_fields(name, 0, isolation_level=7))
    for version in (13, 15, 16, 17, 18):
        talk.ask(f"by id v{version}", "fetch", version, **fetch_fields("", 0, topic_id=talk.id_of("a")))
        talk.ask(f"by an unknown id v{version}", "fetch", version, **fetch_fields("", 0, topic_id=NOBODY))
    for epoch in (-2, -1, 0, 1, 99):
        talk.ask(f"leader epoch {epoch}", "fetch", 12, **fetch_fields(name, 0, current_leader_epoch=epoch))
        talk.ask(f"last epoch {epoch}", "fetch", 12, **fetch_fields(name, 3, last_fetched_epoch=epoch))
    talk.ask("last epoch beyond the end", "fetch", 12, **fetch_fields(name, 12, last_fetched_epoch=0))
    talk.ask("nothing", "fetch", 12, max_wait_ms=10, min_bytes=1, topics=[])


def fetch_sessions(talk: Talk) -> None:
    name = talk.stream("a")
    talk.ask("an unknown session", "fetch", 12, **fetch_fields(name, 0, session_id=4711, session_epoch=1))
    talk.ask("an unknown session, from 0", "fetch", 12, **fetch_fields(name, 0, session_id=4711, session_epoch=0))
    talk.ask("an unknown session's end", "fetch", 12, **fetch_fields(name, 0, session_id=4711, session_epoch=-1))
    talk.ask("an epoch without a session", "fetch", 12, **fetch_fields(name, 0, session_id=0, session_epoch=5))


def list_offsets(talk: Talk) -> None:
    module, name = codec("list_offsets"), talk.stream("a", partitions=2)
    talk.publish(name, b"x", timestamp_ms=T0 + 10)
    talk.publish(name, b"x", timestamp_ms=T0 + 30)
    talk.publish(name, b"x", b"y", timestamp_ms=T0 + 20)

    def at(label: str, timestamp: int, version: int = 7, *, stream: str = name, **fields: Any) -> None:
        isolation = fields.pop("isolation_level", 0)
        part = module.ListOffsetsPartition(timestamp=timestamp, **fields)
        topics = [module.ListOffsetsTopic(name=stream, partitions=[part])]
        talk.ask(
            label, "list_offsets", version, replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=1000
        )

    for version in (1, 3, 4, 6, 7, 8, 9, 10, 11):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, T0 + 20):
            at(f"{timestamp} v{version}", timestamp, version)
    for timestamp in (-LONG_MAX, -100, 0, 1, T0, T0 + 10, T0 + 11, T0 + 21, T0 + 30, T0 + 31, LONG_MAX):
        at(f"time {timestamp}", timestamp)
    for timestamp in (-1, -2, -3, 0):
        at(f"an empty partition {timestamp}", timestamp, partition_index=1)
    at("no such partition", -1, partition_index=2)
    at("no such stream", -1, stream=talk.name("none"))
    at("read_committed", -1, isolation_level=1)
    for epoch in (0, 1, 99, -2):
        at(f"leader epoch {epoch}", -1, current_leader_epoch=epoch)
        at(f"leader epoch {epoch} of a time", T0, current_leader_epoch=epoch)
    twice = [module.ListOffsetsPartition(timestamp=-1), module.ListOffsetsPartition(timestamp=-2)]
    talk.ask("twice", "list_offsets", 7, replica_id=-1, topics=[module.ListOffsetsTopic(name=name, partitions=twice)])


def leader_epochs(talk: Talk) -> None:
    module, name = codec("offset_for_leader_epoch"), talk.stream("a", partitions=2)
    talk.publish(name, b"x", b"y")

    def at(label: str, epoch: int, *, stream: str = name, version: int = 4, **fields: Any) -> None:
        part = module.OffsetForLeaderPartition(leader_epoch=epoch, **fields)
        topics = [module.OffsetForLeaderTopic(topic=stream, partitions=[part])]
        talk.ask(label, "offset_for_leader_epoch", version, replica_id=-1, topics=topics)

    for version in (2, 3, 4):
        for epoch in (-2, -1, 0, 1, 99):
            at(f"{epoch} v{version}", epoch, version=version)
    for epoch in (-1, 0, 1):
        at(f"an empty partition {epoch}", epoch, partition=1)
        at(f"current {epoch}", 0, current_leader_epoch=epoch)
    at("no such partition", 0, partition=2)
    at("no such stream", 0, stream=talk.name("none"))


def metadata(talk: Talk) -> None:
    module, name = codec("metadata"), talk.stream("a", partitions=2)
    one = module.MetadataRequestTopic
    for version in (0, 1, 4, 5, 7, 8, 9, 10, 12, 13):
        for flag in (True, False):
            said = {"allow_auto_topic_creation": flag}
            talk.ask(f"one v{version} {flag}", "metadata", version, topics=[one(name=name)], **said)
            talk.ask(f"none v{version} {flag}", "metadata", version, topics=[one(name=talk.name("none"))], **said)
    talk.ask("two of three", "metadata", 9, topics=[one(name=name), one(name=talk.name("none")), one(name=name)])
    for odd in ("", "a b", "..", ".", "x" * 250, "ä"):
        talk.ask(f"named {odd}", "metadata", 9, topics=[one(name=odd)], allow_auto_topic_creation=False)
        talk.ask(f"named {odd}, may create", "metadata", 9, topics=[one(name=odd)])
    talk.ask("empty v9", "metadata", 9, topics=[])
    talk.ask("empty v1", "metadata", 1, topics=[])
    for version in (10, 12, 13):
        talk.ask(f"by id v{version}", "metadata", version, topics=[one(name=None, topic_id=talk.id_of("a"))])
        talk.ask(f"by an unknown id v{version}", "metadata", version, topics=[one(name=None, topic_id=NOBODY)])
        talk.ask(f"by no id v{version}", "metadata", version, topics=[one(name=None)])
        talk.ask(f"by both v{version}", "metadata", version, topics=[one(name=name, topic_id=talk.id_of("a"))])
        both = [one(name=None, topic_id=talk.id_of("a")), one(name=name)]
        talk.ask(f"some by id v{version}", "metadata", version, topics=both)


def create_topics(talk: Talk) -> None:
    module = codec("create_topics")
    taken = talk.stream("taken")

    def make(label: str, name: str, *, partitions: int = 1, replicas: int = 1, version: int = 7, **fields: Any) -> None:
        only = fields.pop("validate_only", False)
        configs = [module.CreatableTopicConfig(name=key, value=said) for key, said in fields.pop("configs", {}).items()]
        topic = module.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, configs=configs, **fields
        )
        answer = talk.ask(label, "create_topics", version, topics=[topic], timeout_ms=5000, validate_only=only)
        for each in answer.topics if answer else ():
            told = talk.said[label]["topics"][0]
            told["configs"] = None if each.configs is None else "told"  # which there are differs: see DescribeConfigs
            told["topic_id"] = "an id" if any(each.topic_id) else "none"

    for version in (2, 4, 5, 6, 7):
        make(f"plain v{version}", talk.name(f"plain{version}"), version=version)
        make(f"only looked at v{version}", talk.name(f"looked{version}"), version=version, validate_only=True)
        make(f"exists v{version}", taken, version=version)
    make("exists, only looked at", taken, validate_only=True)
    for odd in ("", "a b", "..", ".", "x" * 250, "x" * 249, "ä", "a/b", "a\0b"):
        make(f"named {odd}", odd, validate_only=True)
    make("of the same look", talk.name("same.look"))
    make("of the same look again", talk.name("same_look"))
    for count in (0, -1, -2):
        make(f"{count} partitions", talk.name(f"p{count}"), partitions=count)
    for count in (0, -1, -2, 2, 3):
        make(f"{count} replicas", talk.name(f"r{count}"), replicas=count)
    configs: list[tuple[str, str | None]] = [
        ("no.such.config", "1"), ("segment.bytes", "x"), ("segment.bytes", "1"), ("segment.bytes", None),
        ("max.message.bytes", "-1"), ("compression.type", "nonsense"), ("cleanup.policy", "nonsense"),
        ("flush.messages", "0"), ("flush.messages", "1"),
    ]  # fmt: skip
    for key, said in configs:
        make(f"{key}={said}", talk.name("config"), configs={key: said}, validate_only=True)
    assign = module.CreatableReplicaAssignment
    cases: dict[str, list[tuple[int, list[int]]]] = {
        "0": [(0, [1])], "0 and 1": [(0, [1]), (1, [1])], "1": [(1, [1])], "0 twice": [(0, [1]), (0, [1])],
        "to nobody": [(0, [])], "to broker 9": [(0, [9])], "twice to 1": [(0, [1, 1])],
    }  # fmt: skip
    for label, parts in cases.items():
        given = [assign(partition_index=index, broker_ids=brokers) for index, brokers in parts]
        make(f"assigned {label}", talk.name("as"), partitions=-1, replicas=-1, assignments=given, validate_only=True)
    given = [assign(partition_index=0, broker_ids=[1])]
    make("assigned and counted", talk.name("as"), partitions=1, replicas=-1, assignments=given, validate_only=True)
    twice = [module.CreatableTopic(name=talk.name("twice"), num_partitions=1, replication_factor=1)] * 2
    talk.ask("twice", "create_topics", 7, topics=twice, timeout_ms=5000)
    talk.ask("none", "create_topics", 7, topics=[], timeout_ms=5000)


def delete_topics(talk: Talk) -> None:
    module = codec("delete_topics")
    state = module.DeleteTopicState
    for version in (1, 4, 5):
        name = talk.stream(f"v{version}")
        talk.ask(f"by name v{version}", "delete_topics", version, topic_names=[name], timeout_ms=5000)
        talk.known(name, gone=True)
        talk.ask(f"again v{version}", "delete_topics", version, topic_names=[name], timeout_ms=5000)
    name = talk.stream("named")
    talk.ask("by name", "delete_topics", 6, topics=[state(name=name)], timeout_ms=5000)
    talk.known(name, gone=True)
    talk.ask("by name again", "delete_topics", 6, topics=[state(name=name)], timeout_ms=5000)
    name = talk.stream("both")
    talk.ask("by both", "delete_topics", 6, topics=[state(name=name, topic_id=talk.id_of("both"))], timeout_ms=5000)
    talk.ask("by neither", "delete_topics", 6, topics=[state(name=None)], timeout_ms=5000)
    talk.ask("twice", "delete_topics", 6, topics=[state(name=name), state(name=name)], timeout_ms=5000)
    by_id = state(name=None, topic_id=talk.id_of("both"))
    talk.ask("by name and by id", "delete_topics", 6, topics=[state(name=name), by_id], timeout_ms=5000)
    talk.stream("third")
    by_id = state(name=None, topic_id=talk.id_of("third"))
    talk.ask("by id", "delete_topics", 6, topics=[by_id], timeout_ms=5000)
    talk.known(talk.name("third"), gone=True)
    talk.ask("by id again", "delete_topics", 6, topics=[by_id], timeout_ms=5000)
    talk.ask("named oddly", "delete_topics", 6, topics=[state(name="a b"), state(name="")], timeout_ms=5000)
    talk.ask("none", "delete_topics", 6, topics=[], timeout_ms=5000)


def describe_configs(talk: Talk) -> None:
    module, name = codec("describe_configs"), talk.stream("a", flush_messages="1")
    few = ["flush.messages", "segment.bytes", "no.such.config", "compression.type"]

    def of(label: str, kind: int, resource: str, keys: list[str] | None, version: int = 4, **fields: Any) -> None:
        asked = module.DescribeConfigsResource(resource_type=kind, resource_name=resource, configuration_keys=keys)
        answer = talk.ask(label, "describe_configs", version, resources=[asked], **fields)
        if answer is None:
            return
        for each, told in zip(answer.results, talk.said[label]["results"], strict=True):
            if keys is None or not keys:
                told["configs"] = "all" if each.configs else "none"
            else:
                told["configs"] = [
                    {"name": one["name"], "config_type": one["config_type"], "config_source": one["config_source"]}
                    for one in sorted(told["configs"], key=lambda one: str(one["name"]))
                    if one["name"] != "segment.bytes"
                ]

    for version in (1, 3, 4):
        of(f"a few v{version}", 2, name, few, version)
        of(f"a few with synonyms v{version}", 2, name, few, version, include_synonyms=True)
    of("all", 2, name, None)
    of("an empty list", 2, name, [])
    of("no such config", 2, name, ["no.such.config"])
    of("no such stream", 2, talk.name("none"), None)
    of("named oddly", 2, "a b", None)
    of("without a name", 2, "", None)
    of("the broker", 4, "1", None)
    of("some of the broker", 4, "1", ["group.max.size", "message.max.bytes"])
    of("the brokers' defaults", 4, "", None)
    of("another broker", 4, "9", None)
    of("a broker named x", 4, "x", None)
    for kind in (0, 1, 3, 5, 7, 99, -1):
        of(f"a resource of type {kind}", kind, "x", None)
    asked = module.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=["flush.messages"])
    talk.ask("twice", "describe_configs", 4, resources=[asked, asked])
    talk.ask("none", "describe_configs", 4, resources=[])


def cluster(talk: Talk) -> None:
    for version in (0, 1, 2):
        talk.ask(f"v{version}", "describe_cluster", version)
    for kind in (0, 2, 3, -1):
        talk.ask(f"endpoint type {kind}", "describe_cluster", 1, endpoint_type=kind)
    talk.ask("fenced brokers too", "describe_cluster", 2, include_fenced_brokers=True)


def producer_ids(talk: Talk) -> None:
    for version in range(6):
        talk.ask(f"v{version}", "init_producer_id", version, transactional_id=None, transaction_timeout_ms=1000)
    for producer, epoch in ((5, 3), (5, -1), (-1, 3), (5, 32767)):
        said = {"producer_id": producer, "producer_epoch": epoch}
        talk.ask(f"with {producer} {epoch}", "init_producer_id", 4, transactional_id=None, **said)
    talk.ask("an empty transactional id", "init_producer_id", 4, transactional_id="", transaction_timeout_ms=1000)
    talk.ask("timeout 0", "init_producer_id", 4, transactional_id=None, transaction_timeout_ms=0)


TALKS = [
    produce, idempotent, fetch, fetch_sessions, list_offsets, leader_epochs, metadata, create_topics, delete_topics,
    describe_configs, cluster, producer_ids,
]  # fmt: skip
