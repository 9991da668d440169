"""kill -9 at each of the log's failpoints, on the real disk: what was acknowledged is there at the next start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.batch import decode
from headwater.log import DiskFiles, Flusher
from tests.unit.log.logs import SMALL, append, batch, batches, opened, values

FAILPOINTS = ["after-write-before-ack:7", "mid-roll:2", "mid-flush:3", "mid-checkpoint:1"]


def run(directory: Path, epoch: int, mode: str, count: int, failpoint: str = "") -> tuple[int, int]:
    """(how it ended, the last offset it acknowledged)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.log.killed", str(directory), str(epoch), mode, str(count)],
        env={**os.environ, "HEADWATER_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).resolve().parents[3],
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode, max(int(line.split()[1]) for line in done.stdout.splitlines() or ["none 0"])


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_acknowledged_records_survive_a_kill(tmp_path: Path, failpoint, mode) -> None:
    """At every failpoint, in both durability modes; the killed one's last batch may be there, and is then known."""
    ended, acked = run(tmp_path, 0, mode, 40, failpoint)
    assert ended == -signal.SIGKILL
    partition = opened(DiskFiles(tmp_path), Flusher(), 1, **SMALL)
    assert acked <= partition.end <= acked + 1
    assert values(partition) == [b"%d" % number * 30 for number in range(partition.end)]
    if partition.end:
        last = partition.end - 1
        again = batch(b"%d" % last * 30, producer_id=1, producer_epoch=0, base_sequence=last)
        assert append(partition, again) == [(last, last + 1, True)]
    assert partition.check() == []


def test_recovery_killed_half_way_ends_the_same(tmp_path: Path) -> None:
    """However often recovery is killed, and wherever, the log that comes out of it is the same."""
    ended, acked = run(tmp_path, 0, "async", 40, "after-write-before-ack:30")
    assert ended == -signal.SIGKILL
    logs = sorted(tmp_path.rglob("*.log"))
    for checkpoint in tmp_path.rglob("*.checkpoint"):
        checkpoint.write_bytes(b"")  # as if the power had gone before the first flush
    with logs[1].open("r+b") as torn:
        torn.truncate(300)
    end = 0
    for epoch, failpoint in enumerate(["mid-recovery:1", "mid-recovery:2", "mid-recovery:3", "mid-recovery:1", ""], 1):
        ended, end = run(tmp_path, epoch, "async", 0, failpoint)
    assert ended == 0
    partition = opened(DiskFiles(tmp_path), Flusher(), 9, **SMALL)
    assert 0 < partition.end == end < acked
    assert values(partition) == [b"%d" % number * 30 for number in range(end)]
    assert [record.offset for one in batches(partition) for record in decode(one)] == list(range(end))
    assert partition.check() == []
