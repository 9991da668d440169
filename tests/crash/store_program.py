"""What the crash tests of the store run and kill: `python -m tests.crash.store_program DATA STEP`.

prepare    two streams, `keep` and `gone`, two partitions each, with records and cursors; stops cleanly
delete     deletes `gone`, with two of its partitions open
open       starts, and waits until nothing is half-deleted any more
write      appends to `keep` and prints `acked N` after each ack, until it is killed
churn      creates, deletes, appends and commits at random, and says before and after each what it does, until killed
"""

from __future__ import annotations

import sys
import time
from itertools import count
from random import Random

from headwater.batch import BatchRecord, encode, parse
from headwater.config import Settings
from headwater.errors import WireError
from headwater.log import Partition
from headwater.meta import Meta, Place
from headwater.model import Cursor, GroupName, Offset, PartitionIndex, StreamName
from headwater.store import Store, StreamEntry

NOW_MS = 1_700_000_000_000
GROUP = GroupName("readers")
SEGMENT_BYTES = 1024**2
VALUE = b"v" * 1000


def place_of(entry: StreamEntry, index: int) -> Place:
    return entry.id, PartitionIndex(index)


def append(partition: Partition, value: bytes) -> None:
    record = BatchRecord(offset=0, timestamp_ms=NOW_MS, key=None, value=value, headers=())
    (answer,) = partition.append([parse(memoryview(bytearray(encode([record]))))])
    if isinstance(answer, WireError):
        raise answer


def prepare(store: Store) -> None:
    for name in ("keep", "gone"):
        entry = store.create(name, 2, {}, NOW_MS).result()
        for index in range(2):
            partition = store.partition(place_of(entry, index))
            for number in range(3):
                append(partition, f"{name}-{index}-{number}".encode())
            store.commit_cursors(GROUP, {place_of(entry, index): Cursor(offset=Offset(2))}).result()


def delete(store: Store) -> None:
    gone = store.stream("gone")
    assert gone is not None
    for index in range(2):
        store.partition(place_of(gone, index))
    store.delete(StreamName("gone")).result()


def wait_until_freed(store: Store) -> None:
    meta: Meta = store._meta  # marked rows are nobody's business but the test's
    deadline = time.monotonic() + 20
    while any(entry.deleting for entry in meta.streams()):
        assert time.monotonic() < deadline, "a half-deleted stream stays"
        time.sleep(0.002)


def write(store: Store) -> None:
    keep = store.stream("keep")
    assert keep is not None
    partition = store.partition(place_of(keep, 0))
    for number in count():
        append(partition, b"%d " % number + VALUE)
        sys.stdout.write(f"acked {number}\n")
        sys.stdout.flush()


def churn(store: Store) -> None:
    """The value of a record is its offset, so that a reader knows what should be there."""
    random = Random()
    while True:
        name = random.choice("abc")
        entry = store.stream(name)
        if entry is None:
            entry = store.create(name, 2, {}, NOW_MS).result()
            say("created", entry)
        elif random.random() < 0.05:
            say("deleting", entry)
            store.delete(entry.id).result()
            say("deleted", entry)
            continue
        index = random.randrange(2)
        partition = store.partition(place_of(entry, index))
        if random.random() < 0.5:
            append(partition, b"%d" % partition.end)
            say("appended", entry, index, partition.end)
        else:
            say("committing", entry, index, partition.end)
            store.commit_cursors(GROUP, {place_of(entry, index): Cursor(offset=partition.end)}).result()
            say("committed", entry, index, partition.end)


def say(what: str, entry: StreamEntry, *numbers: int) -> None:
    sys.stdout.write(" ".join([what, entry.id.hex(), *map(str, numbers)]) + "\n")
    sys.stdout.flush()


def main() -> None:
    data, step = sys.argv[1:]
    store = Store.open(Settings(data=data, segment_bytes=SEGMENT_BYTES, flush_ms=5))
    {"prepare": prepare, "delete": delete, "open": wait_until_freed, "write": write, "churn": churn}[step](store)
    store.close()


if __name__ == "__main__":
    main()
