"""How long until `headwater up` answers, and what it holds when idle.

    python -m bench.start [--count 21]

The median time from starting the process on an empty directory to the first answered request, and the resident memory a
second later. Wanted: under 300 ms, under 60 MB.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.peers import headline
from bench.raw_client import Raw

READY_MS_MAX = 300
RESIDENT_MB_MAX = 60


def one_start(scratch: Path) -> tuple[float, float, float]:
    """ms to READY, ms to the first answer, MB resident afterwards."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", "up", "--data", str(scratch / "data"), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        ready = time.perf_counter() - begun
        with Raw(address) as raw:
            raw.ask("metadata", 12, topics=[])
            answered = time.perf_counter() - begun
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident_kb = int(status.partition("VmRSS:")[2].split()[0])
        return ready * 1000, answered * 1000, resident_kb / 1024
    finally:
        process.kill()
        process.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=21)
    options = parser.parse_args()
    print(headline())
    starts = []
    for _ in range(options.count):
        with tempfile.TemporaryDirectory() as scratch:
            starts.append(one_start(Path(scratch)))
    ready, answered, resident = (statistics.median(column) for column in zip(*starts, strict=True))
    slowest = max(start[0] for start in starts)
    print(f"ready {ready:.0f} ms (slowest {slowest:.0f}), answered {answered:.0f} ms, resident {resident:.1f} MB")
    held = ready < READY_MS_MAX and resident < RESIDENT_MB_MAX
    print(f"wanted: ready < {READY_MS_MAX} ms, resident < {RESIDENT_MB_MAX} MB: {'held' if held else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
