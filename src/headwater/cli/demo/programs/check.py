"""Compares log and tables by sets: `python check.py COUNT`. Reads the log with a plain Kafka client, not with Headwater.

Equal must be: (stream id, epoch, partition, offset, value as its model dumps it) of orders and table, the same with the
original bytes of what is no order and the dead letters; and every record that was acknowledged stands in the log, once.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from pydantic import ValidationError
from pyiceberg.catalog import load_catalog
from shop import Order

SERVER = {"bootstrap.servers": os.environ["HEADWATER_URL"]}
Place = tuple[str, int, int, int]  # stream id, epoch, partition, offset


def read_log() -> tuple[dict[Place, bytes], dict[tuple[int, int], str]]:
    """Every record of the stream by its place, and the writer's number of each."""
    admin = AdminClient(SERVER)
    topic_id = admin.describe_topics(TopicCollection(["orders"]))["orders"].result().topic_id
    high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    stream_id = f"{high & (1 << 64) - 1:016x}{low & (1 << 64) - 1:016x}"
    reader = Consumer({**SERVER, "group.id": "demo-check", "enable.auto.commit": False, "enable.partition.eof": True})
    partitions = reader.list_topics("orders", timeout=10).topics["orders"].partitions
    reader.assign([TopicPartition("orders", index, 0) for index in partitions])
    values: dict[Place, bytes] = {}
    numbers: dict[tuple[int, int], str] = {}
    at_end: set[int] = set()
    while len(at_end) < len(partitions):
        for record in reader.consume(1000, 1.0):
            if record.error():
                if record.error().code() != KafkaError._PARTITION_EOF:
                    raise SystemExit(f"the log could not be read: {record.error()}")
                at_end.add(record.partition())
                continue
            values[stream_id, record.leader_epoch(), record.partition(), record.offset()] = record.value()
            numbers[record.partition(), record.offset()] = dict(record.headers())["n"].decode()
    reader.close()
    return values, numbers


def read_table(name: str) -> list[dict[str, Any]]:
    lake = Path(".headwater/lake").resolve()
    catalog = load_catalog(
        "headwater", type="sql", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}/warehouse"
    )
    return catalog.load_table(f"headwater.{name}").scan().to_arrow().to_pylist()


def place(row: dict[str, Any]) -> Place:
    return row["_stream_id"], row["_epoch"], row["_partition"], row["_offset"]


def dumped(order: Order) -> str:
    return json.dumps(order.model_dump(mode="json"), sort_keys=True)


def demand(true: bool, what: str) -> None:
    if not true:
        raise SystemExit(f"check: {what}")


def main(count: int) -> None:
    values, numbers = read_log()
    orders: dict[Place, str] = {}
    others: dict[Place, bytes] = {}
    for where, value in values.items():
        try:
            orders[where] = dumped(Order.model_validate_json(value))
        except ValidationError:
            others[where] = value
    landed = [
        (place(row), dumped(Order.model_validate({k: v for k, v in row.items() if k[0] != "_"})))
        for row in read_table("orders")
    ]
    dead = [(place(row), row["_value"]) for row in read_table("orders_dead_letters")]
    demand(len(landed) == len(set(landed)), "a record stands twice in the table")
    demand(len(dead) == len(set(dead)), "a record stands twice among the dead letters")
    demand(
        set(landed) == set(orders.items()), f"log and table differ: {len(set(landed) ^ set(orders.items()))} records"
    )
    demand(
        set(dead) == set(others.items()), f"log and dead letters differ: {len(set(dead) ^ set(others.items()))} records"
    )
    acked = [json.loads(line) for path in Path().glob("acked-*.jsonl") for line in path.read_text().splitlines()]
    demand(len(acked) == count, f"{len(acked)} records were acknowledged, {count} were published")
    lost = [one for one in acked if numbers.get((one["partition"], one["offset"])) != one["n"]]
    demand(not lost, f"acknowledged and not in the log: {lost[:3]}")
    doubled = [number for number, times in Counter(numbers.values()).items() if times > 1]
    demand(not doubled, f"twice in the log: {doubled[:3]}")
    print(json.dumps({"log": len(values), "landed": len(landed), "dead": len(dead), "acked": len(acked)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
