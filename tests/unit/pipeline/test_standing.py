"""At start: tokens against the log. On a real broker and a real catalog; Spark is not needed for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in its __all__
from pydantic import BaseModel

from headwater import testing
from headwater.lake import Advance, Landed, Place, ensure_targets, landed, move, open_catalog
from headwater.pipeline.landing import StreamLanding
from headwater.pipeline.standing import Moved, _corrected, _probed, held_against_the_log
from headwater.sdk.declare import Stream, Table
from headwater.sdk.ranges import RangeAdmin, read_range

RECORDS = 50


class Order(BaseModel):
    id: str


class Held:
    """A stream with some records, and its tables in a catalog."""

    def __init__(self, client: dict[str, Any], directory: Path) -> None:
        self.client, self.name = client, f"s{uuid4().hex[:8]}"
        admin = AdminClient(client)
        admin.create_topics([NewTopic(self.name, 1, 1)])[self.name].result(10)
        producer = Producer(client)
        for number in range(RECORDS):
            producer.produce(self.name, b"%d" % number)
        assert producer.flush(10) == 0
        self.facts = RangeAdmin(client).streams([self.name])[self.name]
        self.catalog = open_catalog({}, directory)
        self.targets = ensure_targets(self.catalog, Stream[Order](self.name, destination=Table[Order](self.name)))
        (last,) = next(read_range(client, self.name, 0, RECORDS - 1, RECORDS))
        self.epoch = last.epoch

    def set_token(self, number: int, token: Landed, stream_id: str | None = None) -> None:
        place = Place(stream=self.name, stream_id=stream_id or self.facts.stream_id, partition=0)
        move(self.catalog, self.targets[number], {place: Advance(seen=None, to=token)})

    def token(self, number: int) -> Landed | None:
        return landed(self.catalog, self.targets[number], self.facts.stream_id).get(0)

    def hold(self) -> tuple[StreamLanding, list[Moved]]:
        (landing,), moved = held_against_the_log(self.client, self.catalog, [(self.targets, Order, self.facts)])
        return landing, moved


@pytest.fixture(scope="module")
def client() -> Iterator[dict[str, Any]]:
    with testing.broker() as server:
        yield {"bootstrap.servers": server.address}


@pytest.fixture
def held(client: dict[str, Any], tmp_path: Path) -> Held:
    return Held(client, tmp_path)


def test_tables_that_have_landed_nothing_begin_with_the_log(held: Held) -> None:
    """No token, nothing to ask: the first range begins at the log's start."""
    landing, moved = held.hold()
    assert (moved, landing.position(0).end) == ([], 0)


def test_a_log_that_has_what_was_landed_moves_nothing(held: Held) -> None:
    """Each table keeps its own token; the range begins at the smaller one."""
    held.set_token(0, Landed(end=RECORDS, epoch=held.epoch))
    held.set_token(1, Landed(end=20, epoch=held.epoch))
    landing, moved = held.hold()
    assert moved == []
    assert landing.position(0).end == 20
    assert landing.stands(held.targets[0].table, 0).end == RECORDS


def test_a_token_beyond_the_log_goes_back_to_the_cut(held: Held) -> None:
    """The table says so from then on, and the next start finds nothing to move."""
    held.set_token(0, Landed(end=RECORDS + 30, epoch=held.epoch))
    landing, moved = held.hold()
    assert [str(one) for one in moved] == [
        (
            f"{held.name}/0 was cut at offset {RECORDS}, and {held.targets[0].table} had landed it up to {RECORDS + 30}: "
            f"what is written there since lands now, and the lost records stay in the table (_epoch {held.epoch} and before)"
        )
    ]
    assert landing.stands(held.targets[0].table, 0).end == RECORDS
    assert held.token(0) == Landed(end=RECORDS, epoch=held.epoch)
    assert held.hold()[1] == []


def test_a_token_that_has_landed_gaps_alone_begins_anew(held: Held) -> None:
    """It has no epoch to ask for; and where no record was landed, none can be landed twice."""
    held.set_token(0, Landed(end=10, epoch=-1))
    landing, moved = held.hold()
    assert landing.stands(held.targets[0].table, 0).end == 0
    assert moved == []  # nothing was cut


def test_a_token_of_gaps_alone_goes_forward_over_a_beginning_that_is_gone(held: Held) -> None:
    """Retention took the gaps and more: landing goes on where the log begins now, instead of failing before it."""
    held.set_token(0, Landed(end=10, epoch=-1))
    tokens = {held.targets[0].table: {0: Landed(end=10, epoch=-1)}}
    landing = StreamLanding(
        name=held.name,
        stream_id=held.facts.stream_id,
        targets=held.targets[:1],
        model=Order,
        tokens=tokens,
        starts={0: Landed(end=20, epoch=-1)},
    )
    (moved,) = _corrected(held.catalog, held.targets[0], landing, _probed(held.client, landing))
    assert "begins at offset 20" in str(moved)
    assert held.token(0) == landing.position(0) == Landed(end=20, epoch=-1)


def test_tokens_of_a_stream_that_had_the_name_before_are_not_looked_at(held: Held) -> None:
    """Another id is another stream, however well its offsets and epochs would fit."""
    held.set_token(0, Landed(end=RECORDS, epoch=held.epoch), stream_id="cd" * 16)
    landing, moved = held.hold()
    assert (moved, landing.position(0).end) == ([], 0)
