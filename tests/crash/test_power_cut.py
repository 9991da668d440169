"""Simulated power cuts: random lives of a partition on a disk that loses what was not flushed, against a model.

A life is a seed: appends, flushes, rolls, failing writes, clean stops, kills, power cuts (some in the middle of a
recovery), and after each of them the log must hold what was promised:

    file_sync    every acknowledged record
    file_async   a clean prefix of what was written, with all that the last completed flush began with
    both         nothing that was not written, nothing twice; after a kill without a power cut, everything acknowledged
"""

from __future__ import annotations

from random import Random

import pytest

from headwater.batch import decode
from headwater.errors import StorageFailed, WireError
from headwater.log import Appended, Flusher, Partition
from headwater.testing.files import FaultyFiles
from tests.unit.log.logs import batch, batches, opened

STEPS = 60
SEEDS_SHORT, SEEDS_LONG = 60, 3_000


class Life:
    """One partition from its first append to its last check, and what a reader may expect of it."""

    def __init__(self, seed: int, *, sync: bool) -> None:
        self.random = Random(seed)
        self.sync = sync
        self.disk = FaultyFiles()
        self.flusher = Flusher()  # never started: flushes happen where the schedule says
        self.epoch = 0
        self.written: list[bytes] = []  # by offset: every record that was appended and, as far as known, is there
        self.refused: set[bytes] = set()  # records of failed writes: a power cut may bring them back, nobody else
        self.promised = 0  # records below this offset must survive a power cut
        self.number = 0
        self.sequence = {1: 0, 2: 0}
        self.options = {
            "sync": sync,
            "segment_bytes": self.random.choice([700, 3_000, 20_000]),
            "index_interval_bytes": self.random.choice([1, 150, 4_096]),
        }
        self.partition = self._open()

    def run(self) -> None:
        steps = (
            [self.append] * 12
            + [self.flush] * 4
            + [self.power_cut, self.power_cut, self.kill, self.stop]
            + [self.write_fails, self.flush_fails, self.lose_sidecars]
        )
        for _ in range(STEPS):
            self.random.choice(steps)()
        self.flush()
        self.look()
        self.stop()

    # --- steps -----------------------------------------------------------------------------------

    def append(self) -> None:
        new = [self._batch() for _ in range(self.random.randint(1, 4))]
        self._note(new, self.partition.append([one for one, _ in new]))

    def flush(self) -> None:
        """An ack of `file_sync`, or the flush of `file_async` that the clock would have begun."""
        end = self.partition.end
        answers: list[WireError | None] = []
        self.partition.when_durable(end, answers.append, alone=True)
        assert answers == [None]
        self.promised = end

    def write_fails(self) -> None:
        self.disk.fail_write(1, "short" if self.random.random() < 0.5 else "error")
        new = [self._batch() for _ in range(2)]
        before = self.partition.end
        answers = self.partition.append([one for one, _ in new])
        self.disk._write_faults.clear()
        self._note(new, answers)
        assert any(isinstance(one, StorageFailed) for one in answers)
        assert self.partition.end == before + sum(one.next_offset - one.base_offset for one in answers if isinstance(one, Appended))  # fmt: skip
        assert self.partition.failed is None

    def flush_fails(self) -> None:
        """Final for the partition, until a restart finds out what the disk has."""
        self.append()
        self.disk.fail_flush()
        answers: list[WireError | None] = []
        self.partition.when_durable(self.partition.end, answers.append, alone=True)
        self.partition.flush()
        if self.partition.failed is None:  # nothing was left to flush
            self.disk._flush_faults.clear()
            return
        assert isinstance(answers[0], StorageFailed)
        assert isinstance(self.partition.append([batch()])[0], StorageFailed)
        self.power_cut()

    def power_cut(self) -> None:
        self._end_half_way()
        while True:
            self.disk = self.disk.crash(self.random if self.random.random() < 0.8 else None)
            self.epoch += 1
            if self._recover():
                break
        self._survived(at_least=self.promised, exact=False)

    def kill(self) -> None:
        """Everything that was written is still there, and must be: it was acknowledged."""
        self._end_half_way()
        while True:
            self.disk.dead, self.disk.changes_left = False, None
            self.epoch += 1
            if self._recover():
                break
        self._survived(at_least=len(self.written))

    def stop(self) -> None:
        self.partition.close()
        self.promised = len(self.written)
        if self.random.random() < 0.5:
            self.disk = self.disk.crash(self.random)
        self.partition = self._open()
        assert self.partition.recovery is None
        self._survived(at_least=len(self.written))

    def lose_sidecars(self) -> None:
        """Caches may vanish, or rot, at any time between two starts."""
        self.partition.close()
        self.promised = len(self.written)
        directory = f"streams/00/{bytes(range(16)).hex()}"
        for name in self.disk.names(directory):
            if name.endswith((".index", ".time", ".producers")) and self.random.random() < 0.5:
                if self.random.random() < 0.5:
                    self.disk.delete(f"{directory}/{name}")
                else:
                    self.disk.damage(f"{directory}/{name}", self.random.randint(0, 80), b"\xa5")
        self.partition = self._open()
        self._survived(at_least=len(self.written))

    # --- what must hold --------------------------------------------------------------------------

    def look(self) -> None:
        found = batches(self.partition, upto=self.partition.end)
        values = [record.value for one in found for record in decode(one)]
        assert values == self.written[: self.partition.end]
        assert [one.epoch for one in found] == sorted(one.epoch for one in found)
        assert self.partition.check() == []

    def _survived(self, *, at_least: int, exact: bool = True) -> None:
        end = self.partition.end
        found = [record.value or b"" for one in batches(self.partition, upto=end) for record in decode(one)]
        assert found[:at_least] == self.written[:at_least], f"{at_least} records were promised, {end} are there"
        if found != self.written[:end]:
            common = next(n for n, one in enumerate(found) if [one] != self.written[n : n + 1])
            assert not exact, "something else came back"
            assert self.refused.issuperset(found[common:]), "something came back that nobody wrote"
            self.written[common:] = found[common:]
        assert self.partition.durable == end
        report = self.partition.recovery
        assert report is None or not report.durable_lost
        del self.written[end:]
        self.promised = end
        self.look()
        self._resend()

    def _resend(self) -> None:
        """Each producer's last batch that is still there is known; its next sequence goes on from there."""
        last = {one.producer_id: one for one in batches(self.partition, upto=self.partition.end) if one.producer_id > 0}
        for producer_id, one in last.items():
            again = batch(
                *[record.value or b"" for record in decode(one)],
                producer_id=producer_id,
                producer_epoch=one.producer_epoch,
                base_sequence=one.base_sequence,
            )
            assert self.partition.append([again]) == [Appended(one.base_offset, one.next_offset, True)]
        for producer_id in self.sequence:
            self.sequence[producer_id] = last[producer_id].last_sequence + 1 if producer_id in last else 0

    # --- helpers ---------------------------------------------------------------------------------

    def _batch(self):
        values = [
            b"%06d" % (self.number + one) * self.random.choice([1, 1, 20, 150])
            for one in range(self.random.randint(1, 3))
        ]
        self.number += len(values)
        producer_id = self.random.choice([-1, 1, 2])
        if producer_id < 0:
            return batch(*values), values
        sequence = self.sequence[producer_id]
        self.sequence[producer_id] += len(values)
        return batch(*values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence), values

    def _note(self, new, answers) -> None:
        for (one, values), answer in zip(new, answers, strict=True):
            if isinstance(answer, Appended):
                assert answer.base_offset == len(self.written)
                self.written += values
                continue
            self.refused.update(values)
            if one.producer_id > 0:
                self.sequence[one.producer_id] = min(self.sequence[one.producer_id], one.base_sequence)

    def _end_half_way(self) -> None:
        """The end may come in the middle of anything: what is then written was never acknowledged."""
        if self.random.random() < 0.5:
            return
        self.disk.changes_left = self.random.randint(0, 6)
        new = [self._batch() for _ in range(3)]
        self._note(new, self.partition.append([one for one, _ in new]))
        begun = self.partition.end
        answers: list[WireError | None] = []
        self.partition.when_durable(begun, answers.append, alone=True)
        if answers == [None]:
            self.promised = begun

    def _recover(self) -> bool:
        """Opens the log; now and then the power goes half-way through."""
        if self.random.random() < 0.4:
            self.disk.changes_left = self.random.randint(0, 8)
        try:
            self.partition = self._open()
        except StorageFailed:
            if not self.disk.dead:
                raise
            return False
        if self.disk.dead:
            return False
        self.disk.changes_left = None
        return True

    def _open(self) -> Partition:
        return opened(self.disk, self.flusher, self.epoch, **self.options)


@pytest.mark.parametrize("sync", [True, False], ids=["file_sync", "file_async"])
@pytest.mark.parametrize("seeds", [range(start, start + 20) for start in range(0, SEEDS_SHORT, 20)], ids=str)
def test_promises_survive_power_cuts(seeds, sync) -> None:
    """Whatever happens, and in whatever order, an acknowledged record is kept as its durability class says."""
    _live(seeds, sync=sync)


@pytest.mark.long
@pytest.mark.parametrize("sync", [True, False], ids=["file_sync", "file_async"])
def test_promises_survive_many_power_cuts(sync) -> None:
    """The same, for thousands of lives."""
    print(f"seeds 0 to {SEEDS_LONG}")  # noqa: T201
    _live(range(SEEDS_LONG), sync=sync)


def _live(seeds, *, sync) -> None:
    for seed in seeds:
        try:
            Life(seed, sync=sync).run()
        except Exception as why:
            why.add_note(f"seed {seed}, sync={sync}")
            raise
