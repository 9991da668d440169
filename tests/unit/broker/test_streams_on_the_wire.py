"""Creating, describing, deleting streams and finding offsets, as clients ask for it."""

import pytest

from bench.raw_client import Raw, batch_of, codec
from headwater import testing
from tests.unit.broker.conftest import create, produce, publish

create_codec, metadata_codec = codec("create_topics"), codec("metadata")


def creating(raw: Raw, name: str, *, version: int = 7, validate_only: bool = False, **fields):
    configs = [
        create_codec.CreatableTopicConfig(name=key, value=value) for key, value in fields.pop("configs", {}).items()
    ]
    fields = {"num_partitions": 1, "replication_factor": 1, **fields}
    topic = create_codec.CreatableTopic(name=name, configs=configs, **fields)
    return raw.ask("create_topics", version, topics=[topic], validate_only=validate_only).topics[0]


def metadata(raw: Raw, names: list[str] | None, *, version: int = 12, **fields):
    topics = None if names is None else [metadata_codec.MetadataRequestTopic(name=name) for name in names]
    return raw.ask("metadata", version, topics=topics, **fields)


def list_offset(raw: Raw, name: str, timestamp: int, *, partition: int = 0, version: int = 9, **fields):
    module = codec("list_offsets")
    part = module.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **fields)
    topic = module.ListOffsetsTopic(name=name, partitions=[part])
    return raw.ask("list_offsets", version, topics=[topic]).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates(raw, version):
    """And tells what was made, as far as it can."""
    made = creating(raw, f"v{version}", version=version, num_partitions=3)
    assert made.error_code == 0
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        assert {one.name for one in made.configs} >= {"flush.messages", "segment.bytes"}
    found = metadata(raw, [f"v{version}"]).topics[0]
    assert len(found.partitions) == 3
    assert version < 7 or made.topic_id == found.topic_id != bytes(16)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "not a name"}, 17),
        ({"name": "x" * 250}, 17),
        ({"num_partitions": 0}, 37),
        ({"num_partitions": -2}, 37),
        ({"num_partitions": 1_000_000}, 37),
        ({"replication_factor": 3}, 38),
        ({"replication_factor": 0}, 38),
        ({"configs": {"cleanup.policy": "compact"}}, 40),
        ({"configs": {"no.such.config": "1"}}, 40),
        ({"configs": {"segment.bytes": "many"}}, 40),
        ({"assignments": [create_codec.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]}, 42),
        ({"num_partitions": -1, "replication_factor": -1,
          "assignments": [create_codec.CreatableReplicaAssignment(partition_index=1, broker_ids=[1])]}, 39),
        ({"num_partitions": -1, "replication_factor": -1,
          "assignments": [create_codec.CreatableReplicaAssignment(partition_index=0, broker_ids=[2])]}, 39),
    ],
)  # fmt: skip
def test_what_cannot_be_created_is_refused_with_its_code(raw, fields, code):
    """And with words; nothing is made, whether validated only or not."""
    name = fields.pop("name", "refused")
    for validate_only in (True, False):
        refused = creating(raw, name, validate_only=validate_only, **fields)
        assert refused.error_code == code
        assert len(refused.error_message) > 20
        assert metadata(raw, [name]).topics[0].error_code != 0


def test_defaults_and_assignments_say_how_many_partitions(raw):
    """-1 is the broker's default; an assignment counts them."""
    assert creating(raw, "default", num_partitions=-1, replication_factor=-1).num_partitions == 4
    assigned = [create_codec.CreatableReplicaAssignment(partition_index=one, broker_ids=[1]) for one in (1, 0)]
    made = creating(raw, "assigned", num_partitions=-1, replication_factor=-1, assignments=assigned)
    assert (made.error_code, made.num_partitions) == (0, 2)


def test_validating_creates_nothing(raw):
    """It only says what would be made."""
    would = creating(raw, "validated", validate_only=True)
    assert (would.error_code, would.topic_id) == (0, bytes(16))
    assert metadata(raw, ["validated"]).topics[0].error_code == 3


def test_an_existing_name_is_refused_and_a_name_twice_is_too(raw):
    """TOPIC_ALREADY_EXISTS whatever the settings; INVALID_REQUEST for the pair."""
    creating(raw, "taken")
    assert creating(raw, "taken").error_code == 36
    assert creating(raw, "taken", validate_only=True).error_code == 36
    topic = create_codec.CreatableTopic(name="pair", num_partitions=1, replication_factor=1)
    answer = raw.ask("create_topics", 7, topics=[topic, topic])
    assert [one.error_code for one in answer.topics] == [42]


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_deletes(raw, version):
    """By name; a second time it is unknown; created anew it is another stream, and empty."""
    name = f"deleted-{version}"
    first = create(raw, name)
    publish(raw, name, b"old")
    module = codec("delete_topics")
    topics = [module.DeleteTopicState(name=name)]
    for code in (0, 3):
        answer = raw.ask("delete_topics", version, topics=topics, topic_names=[name], timeout_ms=1000)
        assert [one.error_code for one in answer.responses] == [code]
    assert create(raw, name).topic_id != first.topic_id
    assert list_offset(raw, name, -1).offset == 0


def test_streams_are_deleted_by_id_or_name_and_not_by_both(raw):
    """An unknown id is UNKNOWN_TOPIC_ID."""
    made = create(raw, "by-id")
    module = codec("delete_topics")
    for state, code in (
        (module.DeleteTopicState(name="by-id", topic_id=made.topic_id), 42),
        (module.DeleteTopicState(), 42),
        (module.DeleteTopicState(topic_id=b"\x01" * 16), 100),
        (module.DeleteTopicState(topic_id=made.topic_id), 0),
    ):
        assert raw.ask("delete_topics", 6, topics=[state], timeout_ms=1000).responses[0].error_code == code
    assert raw.ask("delete_topics", 6, topics=[module.DeleteTopicState(name="x")] * 2).responses[0].error_code == 42


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_metadata_tells_the_broker_and_its_streams(server, raw, version):
    """One node that leads everything; twice, since the second answer comes from what was kept."""
    create(raw, f"seen-{version}", partitions=2)
    for _ in range(2):
        answer = metadata(raw, [f"seen-{version}", "nowhere"], version=version)
        assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [(1, server.host, server.port)]
        assert [one.error_code for one in answer.topics] == [0, 3]
        assert [one.partition_index for one in answer.topics[0].partitions] == [0, 1]
        assert {one.leader_id for one in answer.topics[0].partitions} == {1}
        assert version < 2 or answer.cluster_id.startswith("headwater-")
        everything = metadata(raw, [] if version == 0 else None, version=version)
        assert f"seen-{version}" in {one.name for one in everything.topics}
    if version:
        assert metadata(raw, [], version=version).topics == []


def test_metadata_is_told_by_id(raw):
    """With the name; an unknown id is UNKNOWN_TOPIC_ID."""
    made = create(raw, "told-by-id")
    topics = [metadata_codec.MetadataRequestTopic(name=None, topic_id=one) for one in (made.topic_id, b"\x09" * 16)]
    answer = raw.ask("metadata", 12, topics=topics)
    assert [(one.error_code, one.name) for one in answer.topics] == [(0, "told-by-id"), (100, None)]


def test_asking_creates_only_where_that_is_turned_on():
    """And where the client allows it; an invalid name stays invalid."""
    with testing.broker(auto_create=True) as server, Raw(server.address) as raw:
        assert metadata(raw, ["wish"], allow_auto_topic_creation=False).topics[0].error_code == 3
        made = metadata(raw, ["wish"]).topics[0]
        assert (made.error_code, len(made.partitions)) == (0, 4)
        assert metadata(raw, ["not a name"]).topics[0].error_code == 17


def test_special_timestamps_find_the_ends(raw, stream):
    """Latest, earliest, of the latest record, earliest local, latest tiered."""
    for timestamp_ms in (1_000, 3_000, 2_000):
        assert produce(raw, stream, batch_of([b"x"], timestamp_ms=timestamp_ms)).error_code == 0
    found = {one: list_offset(raw, stream, one) for one in (-1, -2, -3, -4, -5)}
    assert {one: answer.offset for one, answer in found.items()} == {-1: 3, -2: 0, -3: 1, -4: 0, -5: -1}
    assert found[-3].timestamp == 3_000
    assert found[-1].leader_epoch == 0
    assert list_offset(raw, stream, -6, version=11).offset == -1
    assert list_offset(raw, stream, -3, version=6).error_code == 35
    assert list_offset(raw, stream, -7, version=11).error_code == 35


@pytest.mark.parametrize("version", range(1, 12))
def test_a_timestamp_finds_the_first_record_that_is_not_older(raw, stream, version):
    """And beyond the last one nothing: offset -1."""
    for timestamp_ms in (1_000, 2_000, 3_000):
        produce(raw, stream, batch_of([b"x"], timestamp_ms=timestamp_ms))
    found = [list_offset(raw, stream, one, version=version) for one in (0, 1_500, 3_000, 3_001)]
    assert [(one.offset, one.timestamp) for one in found] == [(0, 1_000), (1, 2_000), (2, 3_000), (-1, -1)]


def test_unknown_places_have_no_offsets(raw, stream):
    """UNKNOWN_TOPIC_OR_PARTITION, and leader epochs are compared."""
    assert list_offset(raw, stream, -1, partition=1).error_code == 3
    assert list_offset(raw, "nowhere", -1).error_code == 3
    assert list_offset(raw, stream, -1, current_leader_epoch=5).error_code == 75


@pytest.mark.parametrize("version", [2, 3, 4])
def test_epochs_end_where_the_next_one_begins(raw, stream, version):
    """The present one ends at the log's end."""
    publish(raw, stream, b"x", b"y")
    module = codec("offset_for_leader_epoch")
    parts = [module.OffsetForLeaderPartition(partition=one, leader_epoch=0) for one in (0, 9)]
    topic = module.OffsetForLeaderTopic(topic=stream, partitions=parts)
    found, unknown = raw.ask("offset_for_leader_epoch", version, topics=[topic]).topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 2)
    assert (unknown.error_code, unknown.end_offset) == (3, -1)


@pytest.mark.parametrize("version", range(1, 5))
def test_configs_are_described_with_their_sources(raw, version):
    """What was given, what the broker says, and what is the default; and when the stream was created."""
    create(raw, f"described-{version}", flush_messages="1")
    module = codec("describe_configs")
    resources = [
        module.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, f"described-{version}"), (4, "1"), (2, "nowhere"), (4, "2"), (8, "1"))
    ]
    answer = raw.ask(
        "describe_configs", version, resources=resources, include_synonyms=True, include_documentation=True
    )
    assert [one.error_code for one in answer.results] == [0, 0, 3, 42, 42]
    found = {one.name: one for one in answer.results[0].configs}
    assert (found["flush.messages"].value, found["flush.messages"].config_source) == ("1", 1)
    assert [one.source for one in found["flush.messages"].synonyms] == [1, 5]
    assert found["segment.bytes"].config_source == 5
    assert found["flush.ms"].config_source == 4
    assert int(found["headwater.created.ms"].value) > 1_700_000_000_000
    assert found["headwater.created.ms"].read_only
    assert version < 3 or found["flush.messages"].documentation
    assert {"num.partitions", "message.max.bytes"} <= {one.name for one in answer.results[1].configs}


def test_only_the_configs_that_were_asked_for_are_described(raw, stream):
    """And without documentation nobody asked for."""
    module = codec("describe_configs")
    resource = module.DescribeConfigsResource(
        resource_type=2, resource_name=stream, configuration_keys=["segment.bytes"]
    )
    found = raw.ask("describe_configs", 4, resources=[resource]).results[0]
    assert [(one.name, one.documentation) for one in found.configs] == [("segment.bytes", None)]


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_one_broker_with_a_name_of_ours(server, raw, version):
    """By which our own clients know what they may ask."""
    answer = raw.ask("describe_cluster", version)
    assert answer.error_code == 0
    assert answer.cluster_id.startswith("headwater-")
    assert [(one.broker_id, one.port) for one in answer.brokers] == [(1, server.port)]
    if version:
        assert raw.ask("describe_cluster", version, endpoint_type=2).error_code == 114


@pytest.mark.parametrize("version", range(6))
def test_each_producer_gets_an_id_of_its_own(raw, version):
    """And a transactional one is refused in a way that makes it stop."""
    ids = [raw.ask("init_producer_id", version, transactional_id=None) for _ in range(3)]
    assert len({one.producer_id for one in ids}) == 3
    assert {(one.error_code, one.producer_epoch) for one in ids} == {(0, 0)}
    assert raw.ask("init_producer_id", version, transactional_id="t").error_code == 53
    assert raw.ask("init_producer_id", version, transactional_id="").error_code == 42
