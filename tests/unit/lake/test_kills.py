"""Landing that is cut short anywhere, log that loses its tail: what is in the tables is what was in the log, once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from headwater.lake import Advance, Landed, commit, move
from tests.unit.lake.models import Lake, Polled, place


class Killed(Exception):
    """Where this landing ends."""


@dataclass
class Log:
    """One partition of a log, as far as landing sees it: records by offset, each with the epoch it was written in."""

    random: random.Random
    epoch: int = 0
    records: list[Polled] = field(default_factory=list)
    ever: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def grow(self) -> None:
        for _ in range(self.random.randint(0, 30)):
            at = len(self.records)
            value = b'{"id": "%d-%d"}' % (self.epoch, at) if self.random.random() < 0.8 else b"bad %d" % at
            self.records.append(Polled(at, value, self.epoch))
            self.ever[self.epoch, at] = value

    def lose_tail(self) -> None:
        """A power cut: the last records go, and what comes next has a higher epoch."""
        keep = self.random.randint(max(0, len(self.records) - 10), len(self.records))
        for one in self.records[keep:]:
            self.ever[one.epoch, one.offset] = b""  # may be in a table, or not
        del self.records[keep:]
        self.epoch += 1

    def end_of(self, token: Landed) -> int:
        """Where the log still is what the token says (KIP-320: the end of the token's epoch)."""
        return min(token.end, sum(1 for one in self.records if one.epoch <= token.epoch))


def land(lake: Lake, log: Log) -> None:
    """A run: holds the tokens against the log, lands one range, and may be killed at each step."""
    for target in (lake.table, lake.dead):
        token = lake.token(target)
        if token and (end := log.end_of(token)) < token.end:
            move(lake.catalog, target, {place(): Advance(seen=token, to=Landed(end=end, epoch=token.epoch))})
            may_die(log)
    seen = {one: lake.token(one) for one in (lake.table, lake.dead)}
    ends = {one.table: token.end if token else 0 for one, token in seen.items()}
    start = min(ends.values())
    end = min(len(log.records), start + log.random.randint(1, 60))
    if end <= start:
        return
    batch = log.records[start:end]
    written = lake.write(batch, trim=ends)
    for target, token in seen.items():
        may_die(log)
        if end > ends[target.table]:
            to = Landed(end=end, epoch=batch[-1].epoch)
            commit(lake.catalog, target, written, {place(): Advance(seen=token, to=to)})


def may_die(log: Log) -> None:
    if log.random.random() < 0.2:
        raise Killed


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_doubled(lake, seed):
    """After any number of kills and lost tails each record of the log is in one table, once, with its own bytes."""
    log = Log(random.Random(seed))
    for _ in range(30):
        log.grow()
        if log.random.random() < 0.1:
            log.lose_tail()
        try:
            land(lake, log)
        except Killed:
            continue
    for _ in range(500):
        tokens = [lake.token(one) for one in (lake.table, lake.dead)]
        if all(token and token.end == len(log.records) == log.end_of(token) for token in tokens):
            break
        try:
            land(lake, log)
        except Killed:
            continue
    good = {(one["_epoch"], one["_offset"]): b'{"id": "%s"}' % one["id"].encode() for one in lake.lines(lake.table)}
    bad = {(one["_epoch"], one["_offset"]): one["_value"] for one in lake.lines(lake.dead)}
    assert len(good) + len(bad) == len(lake.lines(lake.table)) + len(lake.lines(lake.dead))
    assert good.keys().isdisjoint(bad)
    landed = {**good, **bad}
    assert {(one.epoch, one.offset): landed.get((one.epoch, one.offset)) for one in log.records} == {
        (one.epoch, one.offset): one.value for one in log.records
    }
    assert landed.keys() <= log.ever.keys()
