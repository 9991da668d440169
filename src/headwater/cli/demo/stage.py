"""The demo's processes: started in its own directory, their output in files, all of them ended when the stage closes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.errors import OperatorError

READY_SECONDS = 30.0  # a broker that has to look at a torn log, on a busy machine
END_SECONDS = 40.0  # longer than a broker's own drain


class ActFailed(OperatorError):
    """A part of the demo did not do what it has to; the message names the file with its output."""


class Actor:
    """One process in a process group of its own, so that a kill takes its children (a driver's JVM) with it."""

    def __init__(self, name: str, arguments: list[str], directory: Path, environ: dict[str, str]) -> None:
        self.name = name
        self.output = directory / "output" / f"{name}.txt"
        self.output.parent.mkdir(exist_ok=True)
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=directory,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """As a power-off button would: SIGKILL to the whole group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Asks it to end, and insists after a while."""
        if self.running:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
        self.kill()

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def finish(self, seconds: float) -> str:
        """Waits for a good end and gives what it printed."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.failed(f"did not end within {seconds:.0f} s") from None
        if code:
            raise self.failed(f"ended with {code}")
        return self.said()

    def failed(self, what: str) -> ActFailed:
        tail = "\n".join(self.said().splitlines()[-15:])
        return ActFailed(f"{self.name} {what}; its output is {self.output}, which ends:\n{tail}")


class Stage:
    """A directory and the processes that play in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = ""
        self._actors: list[Actor] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in reversed(self._actors):
            actor.end()

    def start(self, name: str, *arguments: str, **environ: str) -> Actor:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("HEADWATER_")}
        actor = Actor(name, list(arguments), self.directory, {**inherited, "HEADWATER_URL": self.address, **environ})
        self._actors.append(actor)
        return actor

    def broker(self, name: str) -> Actor:
        """`headwater up` on the stage's directory; takes the port of the one before, so that clients find it again."""
        port = self.address.rpartition(":")[2] or "0"
        actor = self.start(name, "-m", "headwater", "up", "--data", ".headwater", "--port", port)
        self.wait_for(lambda: "READY " in actor.said(), READY_SECONDS, actor, "was not ready")
        self.address = actor.said().partition("READY ")[2].split()[0]
        return actor

    def wait_for(self, condition: Callable[[], bool], seconds: float, actor: Actor, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if not actor.running:
                raise actor.failed(f"{what}: it ended with {actor.process.returncode}")
            if time.monotonic() > deadline:
                raise actor.failed(f"{what} within {seconds:.0f} s")
            time.sleep(0.05)
