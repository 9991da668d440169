"""When the disk refuses, clients hear of it by a storage error, and whoever can be served is served."""

import threading
from collections.abc import Iterator

import pytest

from bench.raw_client import Raw, batch_of, produce_frame
from headwater import testing
from headwater.testing.files import FaultyFiles
from tests.unit.broker.conftest import create, eventually, fetch, produce, publish, values_of

STORAGE_ERROR = 56


class GatedDisk(FaultyFiles):
    """Whose flushes last as long as the gate is shut."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.flushes_begun = 0

    def flush_fails(self) -> bool:
        self.flushes_begun += 1
        self.gate.wait(20)
        return super().flush_fails()


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def raw(disk) -> Iterator[Raw]:
    with testing.broker(files=disk) as server, Raw(server.address) as one:
        yield one


def test_a_failed_write_is_an_error_and_may_be_tried_again(raw, disk):
    """Nothing of it is there, and nothing that was acked is lost."""
    create(raw, "s")
    assert publish(raw, "s", b"before") == 0
    for how in ("error", "short"):
        disk.fail_write(1, how)
        assert produce(raw, "s", batch_of([b"refused"])).error_code == STORAGE_ERROR
    assert publish(raw, "s", b"after") == 1
    assert values_of(fetch(raw, "s")) == [b"before", b"after"]


def test_a_failed_flush_is_never_acked_nor_read(raw, disk):
    """And is final for its partition, while the others serve."""
    create(raw, "s", partitions=2, flush_messages="1")
    assert publish(raw, "s", b"durable") == 0
    disk.fail_flush(1)
    assert produce(raw, "s", batch_of([b"lost"])).error_code == STORAGE_ERROR
    assert produce(raw, "s", batch_of([b"lost"])).error_code == STORAGE_ERROR
    assert values_of(fetch(raw, "s")) == [b"durable"]
    assert publish(raw, "s", b"other", partition=1) == 0


def test_a_full_disk_refuses_writes_and_serves_the_rest(raw, disk):
    """Reads, deletes and the end of the broker; and writes again, when there is room."""
    create(raw, "s")
    publish(raw, "s", b"before")
    disk.space_bytes = 10
    assert produce(raw, "s", batch_of([b"x" * 1000])).error_code == STORAGE_ERROR
    assert values_of(fetch(raw, "s")) == [b"before"]
    disk.space_bytes = None
    assert publish(raw, "s", b"after") == 1
    assert raw.ask("delete_topics", 5, topic_names=["s"], timeout_ms=1000).responses[0].error_code == 0


def test_with_file_sync_nobody_reads_or_is_acked_before_the_flush():
    """While the disk works the high watermark stands, and the loop serves others."""
    disk = GatedDisk()
    disk.gate.set()
    with testing.broker(files=disk) as server, Raw(server.address) as raw, Raw(server.address) as reader:
        create(raw, "s", flush_messages="1")
        publish(raw, "s", b"first")
        disk.gate.clear()
        before = disk.flushes_begun
        frame = produce_frame("s", 0, batch_of([b"x"]))
        raw.socket.sendall(frame + frame)  # two: a lone one would be flushed at once, on the loop
        eventually(lambda: disk.flushes_begun > before, "the flush has begun")
        found = fetch(reader, "s", 1)
        assert (found.high_watermark, bytes(found.records)) == (1, b"")
        raw.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            raw.socket.recv(1)
        raw.socket.settimeout(20)
        disk.gate.set()
        raw.receive_frame()
        raw.receive_frame()
        assert values_of(fetch(reader, "s", 1)) == [b"x", b"x"]
