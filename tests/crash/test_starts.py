"""READY is a promise: the first Produce on a fresh connection right behind it succeeds, whatever came before."""

from __future__ import annotations

import pytest

from bench.raw_client import Raw, batch_of, produce_error, produce_frame
from tests.crash.acked import DURABILITY, Killable, create, partitions_of, say, values_of

STARTS = [10, pytest.param(100, marks=pytest.mark.long)]


@pytest.mark.parametrize("starts", STARTS)
def test_the_first_produce_after_ready_succeeds(broker: Killable, starts: int) -> None:
    """After clean stops and after kills, in both durability modes."""
    for name, config in DURABILITY.items():
        create(broker.address, name, config, partitions=1)
    for number in range(starts):
        if number % 2:
            broker.stop()
        else:
            broker.kill()
        broker.start()
        for name in DURABILITY:
            with Raw(broker.address) as raw:
                raw.socket.sendall(produce_frame(name, 0, batch_of([b"%d" % number])))
                assert produce_error(raw.receive_frame()) == 0
    broker.stop()
    say(f"{starts} starts")
    for name in DURABILITY:
        assert [values_of(partition) for partition in partitions_of(broker.data, name)] == [
            [b"%d" % number for number in range(starts)]
        ]
