"""What the Spark tests do again and again: make streams, land, look at cursors."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in its __all__

from headwater.lake import open_catalog
from headwater.pipeline import Outcome, Progress, run
from headwater.sdk.ranges import RangeAdmin
from tests.spark.ground import ServerProcess


def land(app: Path, data: Path, server: ServerProcess) -> tuple[Outcome, list[Progress]]:
    """Drains the app's streams in this process, on the session of the tests."""
    said: list[Progress] = []
    outcome = run(app, once=True, data=data, server=server.address, say=said.append)
    return outcome, said


def create(server: ServerProcess, *streams: str) -> None:
    admin = AdminClient(server.client())
    for answer in admin.create_topics([NewTopic(name, 2, 1) for name in streams]).values():
        answer.result(30)


def delete(server: ServerProcess, stream: str) -> None:
    admin = AdminClient(server.client())
    admin.delete_topics([stream])[stream].result(30)


def cursors(server: ServerProcess, table: str, stream: str) -> dict[int, int]:
    """Where the group of a table stands in a stream."""
    admin, group = AdminClient(server.client()), f"headwater.table.headwater.{table}"
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    return {one.partition: one.offset for one in answer.topic_partitions if one.topic == stream}


def set_cursors(server: ServerProcess, table: str, stream: str, offsets: dict[int, int]) -> None:
    admin, group = AdminClient(server.client()), f"headwater.table.headwater.{table}"
    places = [TopicPartition(stream, partition, offset) for partition, offset in offsets.items()]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group].result(30)


def assert_cursors_follow(server: ServerProcess, data: Path, stream: str) -> None:
    """No cursor says that a record has landed which the table does not have."""
    stream_id = RangeAdmin(server.client()).streams([stream])[stream].stream_id
    catalog = open_catalog({}, data)
    for table in (stream, f"{stream}_dead_letters"):
        said = catalog.load_table(f"headwater.{table}").properties
        for partition, offset in cursors(server, table, stream).items():
            landed = said.get(f"headwater.landed.{stream_id}.{partition}", "0:-1")
            assert offset <= int(landed.partition(":")[0]), f"{table}/{partition}: cursor {offset}, landed {landed}"
