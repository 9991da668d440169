"""A live server for the SDK's tests, and waiting for a condition with a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TARGET = os.environ.get("TARGET", "headwater")


@contextlib.contextmanager
def server(target: str, data: Path, *arguments: str) -> Iterator[str]:
    """A server of its own process, on a free port. `TARGET_ADDRESS` names one that runs already."""
    running = os.environ.get("TARGET_ADDRESS")
    if running and not arguments:
        yield running
        return
    started = start(target, data, *arguments)
    try:
        yield started.address
    finally:
        started.end()


class Started:
    def __init__(self, process: subprocess.Popen[str], line: str) -> None:
        self.process = process
        self.address, self.pid = line.split()[1], int(line.split("pid=")[1])

    def kill(self) -> None:
        """As a crash would."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()


def start(target: str, data: Path, *arguments: str) -> Started:
    if target == "kafka":
        command = [str(ROOT / "tools" / "kafka"), "up", "--data", str(data), "--log-file", str(data) + ".log"]
    else:
        command = [sys.executable, "-m", "headwater", "up", "--data", str(data), "--port", "0"]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("READY"), f"{target} did not start: {line!r}"
    return Started(process, line)


async def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    """What `condition` says as soon as that is true; an assertion when it is not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not (said := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.01)
    return said
