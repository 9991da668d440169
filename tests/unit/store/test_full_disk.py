"""A disk that is full: reading, deleting and starting still work, and nothing is lost when there is room again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = 'mount -t tmpfs -o size=8m none "$1" || exit 77; shift; '
RUN = '"$1" -m tests.unit.store.full_disk "$2" '


def test_a_full_disk_lets_reads_deletes_and_starts_through(tmp_path: Path) -> None:
    """Filled to the last byte: records are read, a stream is deleted, a killed store starts, and goes on with room."""
    script = SCRIPT + RUN + "until_killed; test $? = 137 || exit 1; " + RUN + "started_again"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, str(tmp_path)],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this machine gives a test no small disk of its own")
    assert done.returncode == 0, done.stderr
