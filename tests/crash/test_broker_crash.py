"""The broker is killed, at random and at named places, under real writers: what was acked is there, once and in order."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headwater import failpoints
from tests.crash.acked import (
    DURABILITY,
    PARTITIONS,
    SEGMENTS,
    STREAM,
    Killable,
    Reader,
    Writer,
    create,
    judge,
    say,
    seeded,
    tear_the_ends,
)

ROOT = Path(__file__).resolve().parents[2]
TIMES = [1, pytest.param(5, marks=pytest.mark.long)]
# Where it dies, at which pass in the short form, and at most in the long one. Kills while a stream is deleted, and while
# a start recovers, have tests of their own.
FAILPOINTS = {
    "after-write-before-ack": (300, 600),
    "mid-roll": (2, 3),
    "mid-flush": (5, 20),
    "mid-checkpoint": (1, PARTITIONS),
}


@pytest.mark.parametrize("durability", DURABILITY)
@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.long)])
def test_killed_at_random_moments_nothing_acked_is_lost(broker: Killable, durability: str, kills: int) -> None:
    """One writer and one reader live through all of it; some kills meet a broker that is still starting."""
    moments = seeded()
    create(broker.address, STREAM, DURABILITY[durability] | SEGMENTS)
    writer, reader = Writer(broker.address), Reader(broker.address)
    writer.start()
    reader.start()
    for number in range(kills):
        writer.until_acked(writer.acked_count + moments.randint(1, 2000))
        broker.kill()
        if number % 3 == 0:
            broker.die_while_starting(moments.uniform(0.05, 0.3))
        broker.start()
    say(f"{kills} kills, {writer.acked_count} records acked with {durability}")
    writer.until_acked(writer.acked_count + 500)
    writer.finish()
    judge(broker, writer, reader)


@pytest.mark.parametrize("durability", DURABILITY)
@pytest.mark.parametrize("failpoint", FAILPOINTS)
@pytest.mark.parametrize("times", TIMES)
def test_killed_at_a_named_place_nothing_acked_is_lost(
    broker: Killable, failpoint: str, durability: str, times: int
) -> None:
    """The broker itself ends there, and comes back without being asked twice."""
    moments = seeded()
    create(broker.address, STREAM, DURABILITY[durability] | SEGMENTS)
    writer, reader = Writer(broker.address), Reader(broker.address)
    writer.start()
    reader.start()
    for number in range(times):
        broker.stop()
        usual, last = FAILPOINTS[failpoint]
        broker.start(f"{failpoint}:{usual if number == 0 else moments.randint(1, last)}")
        if failpoint == "mid-checkpoint" and not broker.dies_before(writer, writer.acked_count + 2000):  # at a roll
            assert broker.process is not None
            broker.process.terminate()  # a clean stop writes the checkpoints
        assert broker.wait_for_its_end() == -signal.SIGKILL
        broker.start()
        writer.until_acked(writer.acked_count + 500)
    say(f"{times} deaths at {failpoint}, {writer.acked_count} records acked with {durability}")
    writer.finish()
    judge(broker, writer, reader)


@pytest.mark.parametrize("durability", DURABILITY)
def test_killed_during_recovery_again_and_again_the_result_is_the_same(broker: Killable, durability: str) -> None:
    """As if it had recovered at once."""
    create(broker.address, STREAM, DURABILITY[durability] | SEGMENTS)
    writer, reader = Writer(broker.address), Reader(broker.address)
    writer.start()
    reader.start()
    writer.until_acked(3000)
    broker.kill()
    tear_the_ends(broker)
    deaths = 0
    broker.start("mid-recovery:1")
    while broker.dies_before(writer, writer.acked_count + 500):  # each attempt gets a little further than the last
        deaths += 1
        broker.start(f"mid-recovery:{deaths + 1}")
    say(f"{deaths} deaths at mid-recovery with {durability}")
    assert deaths >= 2
    broker.kill()
    broker.start()
    writer.until_acked(writer.acked_count + 500)
    writer.finish()
    judge(broker, writer, reader)


@pytest.mark.parametrize("failpoint", ["mid-delete:1", "between-log-and-meta:1"])
def test_killed_in_the_middle_of_a_delete_the_stream_is_gone_after_the_next_start(
    broker: Killable, failpoint: str
) -> None:
    """With its files; and its name is free."""
    create(broker.address, STREAM, {})
    writer = Writer(broker.address)
    writer.start()
    writer.until_acked(500)
    writer.finish()
    broker.stop()
    broker.start(failpoint)
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.delete_topics([STREAM], request_timeout=5)
    assert broker.wait_for_its_end() == -signal.SIGKILL
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.address})
    assert STREAM not in admin.list_topics(timeout=30).topics
    create(broker.address, STREAM, {})
    with pytest.raises(KafkaException):
        create(broker.address, STREAM, {})
    broker.stop()
    assert not [path for path in (broker.data / "streams").rglob("*.log") if path.is_file()]


def test_every_named_place_exists_and_is_died_at() -> None:
    """A name in the list has its place in the code and a test that dies there, and no place is without a name."""
    code = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert set(re.findall(r"\breach\(\"([^\"]+)\"\)", code)) == failpoints.NAMES
    tests = "".join(path.read_text() for room in ("crash", "spark") for path in (ROOT / "tests" / room).glob("*.py"))
    assert [name for name in failpoints.NAMES if f'"{name}' not in tests] == []
