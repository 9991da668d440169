"""What a run has around it: a place on disk, one run at a time, signals, and a Spark session."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from headwater.config import Settings, catalog_properties, settings_file
from headwater.errors import LandingRefused
from headwater.pipeline.spark import is_running, session


def settled(data: str | Path | None) -> tuple[Path, dict[str, str]]:
    """The data directory and the catalog's properties, from what was said, the environment and headwater.toml."""
    toml = settings_file()
    flags = {} if data is None else {"data": str(data)}
    return Path(Settings.resolve(flags, os.environ, toml).data).resolve(), catalog_properties(toml)


@contextmanager
def only_one(directory: Path, name: str) -> Iterator[None]:
    """Two runs of one app would land in turns and fail in turns. Frees what earlier runs left behind."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "another"
            raise LandingRefused(
                f"the app {name} is being run by process {holder}: stop that one, or give this one another --name"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        shutil.rmtree(directory / "runs", ignore_errors=True)
        yield
    finally:
        os.close(lock)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """SIGTERM and Ctrl-C set the event; a second Ctrl-C ends the program as it would have without us."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def asked(number: int, frame: FrameType | None) -> None:
        stop.set()
        if number == signal.SIGINT:  # a second SIGTERM is no more impatient: supervisors send it to each process
            signal.signal(number, before[signal.SIGINT] or signal.SIG_DFL)

    for number in before:
        signal.signal(number, asked)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextmanager
def started_spark(name: str, directory: Path) -> Iterator[Future[Any]]:
    """The session, started while the rest gets ready; stopped at the end unless the program had one before."""
    mine = not is_running()
    with ThreadPoolExecutor(1, thread_name_prefix="spark") as starter:
        starting = starter.submit(session, f"headwater {name}", log=directory / "spark.log")
        try:
            yield starting
        finally:
            if mine and starting.exception() is None:
                starting.result().stop()
