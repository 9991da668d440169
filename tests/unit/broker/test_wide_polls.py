"""Long polls of many partitions: they see what they wait for, and cost the others nothing meanwhile."""

import time
from contextlib import ExitStack
from typing import Any

from bench.raw_client import Raw, batch_of, codec, lone, produce_frame
from tests.unit.broker.conftest import create, eventually, publish


def wide(name: str, partitions: int, **fields: Any) -> dict[str, Any]:
    module = codec("fetch")
    parts = [module.FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(partitions)]
    said = {"max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 24, **fields}
    return {**said, "topics": [module.FetchTopic(topic=name, partitions=parts)]}


def test_a_poll_is_answered_when_its_partitions_have_enough_together(server, raw):
    """Each is counted as it moves, whichever moves last."""
    create(raw, "together", partitions=3)
    size = len(batch_of([b"x" * 100]))
    with Raw(server.address) as reader:
        reader.send("fetch", 12, **wide("together", 3, min_bytes=4 * size))
        eventually(lambda: server.statistics()["waiting_polls"] == 3, "it waits")
        for partition in (0, 1, 0):
            publish(raw, "together", b"x" * 100, partition=partition)
        assert server.statistics()["waiting_polls"] == 3
        publish(raw, "together", b"x" * 100, partition=2)
        parts = reader.receive("fetch", 12).responses[0].partitions
        assert [len(one.records) for one in parts] == [2 * size, size, size]


def test_a_poll_for_more_than_an_answer_may_have_is_answered_when_that_is_full(server, raw):
    """Else it would wait for its whole time beside more than it may get."""
    create(raw, "full")
    publish(raw, "full", b"x" * 1000)
    with Raw(server.address, timeout=5) as reader:
        fields = wide("full", 1, min_bytes=2**31 - 1, max_bytes=500)
        assert len(reader.ask("fetch", 12, **fields).responses[0].partitions[0].records) > 1000


def test_polls_of_a_thousand_partitions_do_not_slow_a_writer(server, raw):
    """Twenty of them that wait for more than there is: looking at all partitions each time took 50 ms a record."""
    create(raw, "wide", partitions=1000)
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(Raw(server.address)).send("fetch", 12, **wide("wide", 1000, min_bytes=1 << 20))
        eventually(lambda: server.statistics()["waiting_polls"] >= 20_000, "they wait")
        begun = time.monotonic()
        lone(server.address, produce_frame("wide", 0, batch_of([b"x"])), 200)
        assert time.monotonic() - begun < 2
