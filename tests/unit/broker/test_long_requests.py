"""Requests as long as they may be: their answers take their time, others are served meanwhile."""

import select
import time

from bench.raw_client import Raw, codec
from headwater.config import ARRAY_ITEMS_MAX
from tests.unit.broker.conftest import create, publish

MANY = ARRAY_ITEMS_MAX - 10


def test_deleting_ninety_thousand_streams_that_do_not_exist_takes_seconds(raw):
    """And not the square of their number."""
    module = codec("delete_topics")
    answer = raw.ask("delete_topics", 6, topics=[module.DeleteTopicState(name=f"n{one}") for one in range(MANY)])
    assert {one.error_code for one in answer.responses} == {3}


def test_configs_that_are_asked_for_again_and_again_are_told_once(raw, stream):
    """The answer would be a hundred times as long as the request."""
    module = codec("describe_configs")
    resource = module.DescribeConfigsResource(resource_type=2, resource_name=stream, configuration_keys=None)
    assert len(raw.ask("describe_configs", 4, resources=[resource] * MANY).results) == 1


def test_others_are_served_while_a_long_request_is_answered(server, raw, stream):
    """Metadata of as many streams as one request may name."""
    module = codec("metadata")
    with Raw(server.address) as long:
        create(raw, "first")
        begun = time.monotonic()
        long.send("metadata", 12, topics=[module.MetadataRequestTopic(name=f"n{one}") for one in range(MANY)])
        slowest, count = 0.0, 0
        while not select.select([long.socket], [], [], 0)[0]:  # until its answer is there, however long that takes
            before = time.monotonic()
            publish(raw, stream, b"x")
            slowest, count = max(slowest, time.monotonic() - before), count + 1
        took = time.monotonic() - begun
        assert len(long.receive("metadata", 12).topics) == MANY
        assert count > 2  # the first comes before it is read, and the second would be the one that waits for all of it
        assert slowest < 0.9 * took
