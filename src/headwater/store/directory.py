"""The data directory as processes see it: who holds it, in which format it is, where its broker answers, who uses it.

Locks are `flock`, not `lockf`: closing any other handle of the file would drop a `lockf`. A flock belongs to the open
file, and a forked child shares that: so a child closes its copies at birth and never unlocks, which would free the
parent's. Clients only look at the directory lock for an instant (`holder`), so who takes it tries for a short while.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from headwater.config import FORMAT_VERSION, LOCK_ATTEMPT_MS, LOCK_PAUSE_MS
from headwater.errors import DataDamaged, DataDirectoryHeld, FormatTooNew, InvalidSetting

Kind = Literal["embedded", "served"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the broker of a data directory answers, or answered last: its port is taken again at the next start."""

    kind: Kind
    host: str
    port: int
    pid: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class FileLock:
    """A flock on one file of the directory; `release` and the end of the process let it go."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._open()
        _locks.add(self)

    def attempt(self, *, shared: bool = False, patience_seconds: float = 0.0) -> bool:
        """Whether the lock was got before patience ran out; never waits in the kernel, so that it can always end."""
        deadline = time.monotonic() + patience_seconds
        while not self._attempt_once(shared=shared):
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOCK_PAUSE_MS / 1000)
        return True

    def let_go(self) -> None:
        """Unlocks, and keeps the file open for the next attempt."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def sign(self) -> None:
        """Writes this process's pid, in place and in a fixed width: a full disk has room for that."""
        os.pwrite(self._descriptor, f"{os.getpid():<20}\n".encode(), 0)

    def signer(self) -> int:
        """The pid that was written last; 0 when there is none."""
        text = os.pread(self._descriptor, 64, 0).strip()
        return int(text) if text.isdigit() else 0

    def release(self) -> None:
        """Closes the file, and with it the lock. Twice is fine, and so is after a fork."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _attempt_once(self, *, shared: bool) -> bool:
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if self._is_the_file_at_its_path():
            return True
        self.release()  # the directory was removed and made anew meanwhile: what is locked is nobody's file
        self._open()
        return False

    def _is_the_file_at_its_path(self) -> bool:
        mine = os.fstat(self._descriptor)
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


class Clients:
    """The lock on `clients`: each client process shares it, and a broker that can take it alone has no clients."""

    def __init__(self, data: str | Path) -> None:
        directory = Path(data)
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(directory / "clients")

    def join(self, patience_seconds: float) -> bool:
        """As a client: false when a broker that is closing kept it for so long. Blocks: call it in a thread."""
        return self._lock.attempt(shared=True, patience_seconds=patience_seconds)

    def leave(self) -> None:
        """As a client, and as a broker at its end."""
        self._lock.release()

    def absent(self) -> bool:
        """As a broker: whether no client process holds it at this moment."""
        if not self._lock.attempt():
            return False
        self._lock.let_go()
        return True

    def shut_out(self) -> bool:
        """As a broker that is about to close: no client joins from now on. False when one was faster."""
        return self._lock.attempt()


def acquire(data: str) -> FileLock:
    """The data directory for this process alone, in a format it knows; made if it is not there."""
    try:
        Path(data).mkdir(parents=True, exist_ok=True)
        lock = FileLock(Path(data) / "lock")
        try:
            _enter(data, lock)
        except BaseException:
            lock.release()
            raise
    except OSError as why:
        raise InvalidSetting(
            f"the data directory {data} cannot be used ({why}): correct that, or choose --data"
        ) from why
    return lock


def _enter(data: str, lock: FileLock) -> None:
    if not lock.attempt(patience_seconds=LOCK_ATTEMPT_MS / 1000):
        pid, where = lock.signer(), address(data)
        at = f" ({where})" if where is not None and where.pid == pid else ""
        by = f"process {pid}" if pid else "a process that is starting"
        raise DataDirectoryHeld(f"{data} is held by {by}{at}: connect to it, stop it, or choose --data")
    _check_format(data)
    lock.sign()


def holder(data: str | Path) -> int | None:
    """The pid of the process that holds the directory (0: not known yet), or None when nobody does."""
    path = Path(data) / "lock"
    if not path.exists():
        return None
    lock = FileLock(path)
    try:
        return None if lock.attempt(shared=True) else lock.signer()
    finally:
        lock.release()


def address(data: str | Path) -> Address | None:
    """What the last start wrote, whether or not that broker still runs (`holder` says)."""
    try:
        facts = json.loads((Path(data) / "address").read_text())
        return Address(
            kind=cast("Kind", facts["kind"]), host=facts["host"], port=int(facts["port"]), pid=int(facts["pid"])
        )
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def write_address(data: str | Path, where: Address) -> None:
    """Replaces the address whole: a reader sees the old one or the new one, also after a power cut.

    On a full disk it is written over the old one, which has its place: a start must still get through.
    """
    path = Path(data) / "address"
    text = json.dumps({"kind": where.kind, "host": where.host, "port": where.port, "pid": where.pid}) + "\n"
    try:
        try:
            _replace(path, text)
        except OSError as why:
            if why.errno != errno.ENOSPC:
                raise
            _overwrite(path, text)
    except OSError as why:
        raise InvalidSetting(
            f"the address cannot be written to {path} ({why}): correct that, or choose --data"
        ) from why


def _check_format(data: str) -> None:
    """Refuses a newer format; a directory without one is ours to begin, unless there is data in it."""
    path = Path(data) / "FORMAT"
    try:
        text = path.read_bytes().decode("ascii", "replace")
    except FileNotFoundError:
        if (Path(data) / "meta.db").exists():
            raise DataDamaged(f"{path} is missing beside meta.db: restore it from a copy, or choose --data") from None
        _replace(path, f"headwater {FORMAT_VERSION}\n")
        return
    word, _, number = text.strip().partition(" ")
    if word != "headwater" or not number.isdecimal():
        raise DataDamaged(f"{path} does not name a format of Headwater's: restore it from a copy, or choose --data")
    if int(number) > FORMAT_VERSION:
        raise FormatTooNew(
            f"{data} was written by a newer Headwater (format {number}, this one knows {FORMAT_VERSION}): "
            "upgrade Headwater, or choose --data"
        )
    if any((Path(data) / "streams").glob("*")) and not (Path(data) / "meta.db").exists():
        raise DataDamaged(f"meta.db is missing beside the streams of {data}: restore it from a copy, or choose --data")


def _replace(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _overwrite(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, text.encode().ljust(os.fstat(descriptor).st_size), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _leave_locks_to_the_parent() -> None:
    for lock in _locks:
        lock.release()


os.register_at_fork(after_in_child=_leave_locks_to_the_parent)
