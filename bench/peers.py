"""The servers that benchmarks compare, each in a process of its own, and what its work costs."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    name: str
    address: str
    pid: int

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def peer(name: str, data: Path) -> Iterator[Peer]:
    """`headwater` or `kafka`, on a free port, with its log in `data`."""
    if name == "kafka":
        command = [str(ROOT / "tools" / "kafka"), "up", "--data", str(data), "--log-file", f"{data}.log"]
    else:
        command = [sys.executable, "-m", "headwater", "up", "--data", str(data), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("READY"), f"{name} did not start: {line!r}"
        yield Peer(name=name, address=line.split()[1], pid=int(line.split("pid=")[1]))
    finally:
        process.terminate()
        process.communicate()


def headline() -> str:
    """Where and of what a result is: without it a number says nothing."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    return (
        f"{time.strftime('%Y-%m-%d %H:%M')} | commit {commit} | {os.cpu_count()} cores, {platform.machine()},"
        f" Linux {platform.release()} | Python {platform.python_version()}, confluent-kafka {version('confluent-kafka')},"
        f" uvloop {version('uvloop')} | load {os.getloadavg()[0]:.1f}"
    )


def kafka_version() -> str:
    return subprocess.run(
        [str(ROOT / "tools" / "kafka"), "version"], capture_output=True, text=True, check=True
    ).stdout.strip()
