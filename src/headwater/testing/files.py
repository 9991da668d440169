"""Disks for tests: one in memory, and one that fails on command and loses what was not flushed.

Both are `headwater.log.Files` and pass the same contract suite as the real disk. Their files are real descriptors
without a name on any disk, so `sendfile` works on them.

    disk = FaultyFiles()
    disk.fail_flush(2)               # the second flush from now fails, and drops what it should have made durable
    disk.fail_write(1, "short")      # the next write stops half-way
    disk.space_bytes = 100           # room for so many more bytes; then the disk is full
    disk.changes_left = 7            # after seven more changes the power goes
    disk = disk.crash(Random(seed))  # the power goes: what is left, on a new disk; the old one is dead
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from random import Random
from typing import Literal

from headwater.errors import StorageFailed
from headwater.log.files import Buffer, DiskFile, File

SECTOR_BYTES = 512  # what a disk writes in one piece
Survival = Literal["nothing", "everything", "prefix", "sectors"]


class _Content:
    """A file apart from its names. Each opening has a descriptor of its own, which it closes."""

    def __init__(self) -> None:
        self._descriptor = _nameless()

    def __del__(self) -> None:
        os.close(self._descriptor)

    def opened(self, path: str) -> DiskFile:
        return DiskFile(os.dup(self._descriptor), path)


class MemoryFiles:
    """A directory tree in memory. Nothing survives it."""

    def __init__(self) -> None:
        self._tree: dict[str, _Content | None] = {"": None}  # a directory has no content

    def open(self, path: str, *, create: bool = False) -> File:
        content = self._tree.get(path)
        if content is None:
            if path in self._tree or not create or _parent(path) not in self._tree:
                raise StorageFailed(f"could not open {path}: it is no file")
            content = self._tree[path] = _Content()
        return content.opened(path)

    def names(self, directory: str) -> list[str]:
        return [path.rpartition("/")[2] for path in list(self._tree) if path and _parent(path) == directory]

    def make_directory(self, path: str) -> None:
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            if self._tree.setdefault("/".join(parts[:depth])) is not None:
                raise StorageFailed(f"could not make the directory {path}: a file is in the way")

    def rename(self, source: str, target: str) -> None:
        if source not in self._tree or _parent(target) not in self._tree:
            raise StorageFailed(f"could not rename {source}: it is not there")
        self._tree[target] = self._tree.pop(source)

    def delete(self, path: str) -> None:
        if self._tree.get(path, _ABSENT) is None and self.names(path):
            raise StorageFailed(f"could not delete {path}: the directory is not empty")
        self._tree.pop(path, None)

    def flush_directory(self, path: str) -> None:
        if path not in self._tree:
            raise StorageFailed(f"could not flush the directory {path}: it is not there")


class _Node:
    """A file of the faulty disk: what a program sees, what would survive, and the writes between the two."""

    def __init__(self, durable: bytes = b"") -> None:
        self.content = _Content()
        self.durable = durable
        self.unflushed: list[tuple[int, bytes | None]] = []  # in order; None: cut there
        if durable:
            self.content.opened("").write([durable], 0)


class FaultyFiles:
    """A disk with a plan. Its methods may be called from several threads, as a real one's."""

    def __init__(self) -> None:
        self.space_bytes: int | None = None  # None: endless
        self.changes_left: int | None = None  # after so many more changes the power goes; None: it stays
        self.write_count = self.flush_count = 0
        self.dead = False
        self.lock = threading.RLock()
        self._tree: dict[str, _Node | None] = {"": None}
        self._durable_tree: dict[str, _Node | None] = {"": None}
        self._changes: list[tuple[str, dict[str, _Node | None], tuple[str, ...]]] = []  # directory, added, removed
        self._write_faults: dict[int, str] = {}
        self._flush_faults: set[int] = set()

    # --- faults ----------------------------------------------------------------------------------

    def fail_write(self, nth: int = 1, how: Literal["error", "short"] = "error") -> None:
        """The `nth` write from now fails, or stops half-way."""
        self._write_faults[self.write_count + nth] = how

    def fail_flush(self, nth: int = 1) -> None:
        """The `nth` flush (of a file) from now fails; what it should have kept is lost to all later ones too."""
        self._flush_faults.add(self.flush_count + nth)

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Puts other bytes there, durably, behind everybody's back."""
        node = self._node(path)
        node.content.opened(path).write([data], position)
        durable = bytearray(node.durable)
        durable[position : position + len(data)] = data
        node.durable = bytes(durable)

    def crash(self, random: Random | None = None) -> FaultyFiles:
        """The disk after the power came back. Without `random` nothing unflushed survives.

        Names survive in the order they were made, as a journal keeps them; bytes in any order, sector by sector.
        """
        with self.lock:
            self.dead = True
            tree = dict(self._durable_tree)
            kept = random.randint(0, len(self._changes)) if random else 0
            for _, added, removed in self._changes[:kept]:
                _apply(tree, added, removed)
            after = FaultyFiles()
            nodes = {id(node): _Node(_survivor(node, random)) for node in tree.values() if node is not None}
            for path, node in sorted(tree.items()):
                if not path or _parent(path) in after._tree:
                    after._tree[path] = None if node is None else nodes[id(node)]
            after._durable_tree = dict(after._tree)
            return after

    # --- Files -----------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        with self.lock:
            self.must_live()
            node = self._tree.get(path)
            if node is None:
                if path in self._tree or not create or _parent(path) not in self._tree:
                    raise StorageFailed(f"could not open {path}: it is no file")
                self.must_live_through_a_change()
                self._must_have_room(0)
                node = _Node()
                self._change(_parent(path), {path: node}, ())
            return _FaultyFile(self, node, path)

    def names(self, directory: str) -> list[str]:
        with self.lock:
            self.must_live()
            return [path.rpartition("/")[2] for path in self._tree if path and _parent(path) == directory]

    def make_directory(self, path: str) -> None:
        with self.lock:
            self.must_live_through_a_change()
            parts = path.split("/")
            for depth in range(1, len(parts) + 1):
                part = "/".join(parts[:depth])
                if self._tree.get(part) is not None:
                    raise StorageFailed(f"could not make the directory {path}: a file is in the way")
                if part not in self._tree:
                    self._must_have_room(0)
                    self._change(_parent(part), {part: None}, ())

    def rename(self, source: str, target: str) -> None:
        with self.lock:
            self.must_live_through_a_change()
            if source not in self._tree or _parent(target) not in self._tree:
                raise StorageFailed(f"could not rename {source}: it is not there")
            self._change(_parent(target), {target: self._tree[source]}, (source,))

    def delete(self, path: str) -> None:
        with self.lock:
            self.must_live_through_a_change()
            if path in self._tree:
                if self._tree[path] is None and self.names(path):
                    raise StorageFailed(f"could not delete {path}: the directory is not empty")
                self._change(_parent(path), {}, (path,))

    def flush_directory(self, path: str) -> None:
        with self.lock:
            self.must_live_through_a_change()
            if path not in self._tree:
                raise StorageFailed(f"could not flush the directory {path}: it is not there")
            for directory, added, removed in self._changes:
                if directory == path:
                    _apply(self._durable_tree, added, removed)
            self._changes = [one for one in self._changes if one[0] != path]

    # --- for its files ---------------------------------------------------------------------------

    def must_live(self) -> None:
        if self.dead:
            raise StorageFailed("the power is off")

    def must_live_through_a_change(self) -> None:
        self.must_live()
        if self.changes_left is not None:
            self.dead = self.changes_left == 0
            self.must_live()
            self.changes_left -= 1

    def room_for_write(self, length: int) -> int:
        """How much of the next write gets through."""
        self.write_count += 1
        fault = self._write_faults.pop(self.write_count, None)
        if fault == "error":
            raise StorageFailed("could not write (the disk failed, as it was told to)")
        if self.space_bytes is not None:
            self._must_have_room(length)
            length = min(length, self.space_bytes)
            self.space_bytes -= length
        return length // 2 if fault == "short" else length

    def flush_fails(self) -> bool:
        self.flush_count += 1
        return self.flush_count in self._flush_faults

    def _must_have_room(self, length: int) -> None:
        if self.space_bytes is not None and self.space_bytes <= 0 <= length:
            raise StorageFailed("could not write (no space left on device)")

    def _node(self, path: str) -> _Node:
        node = self._tree.get(path)
        assert node is not None, path
        return node

    def _change(self, directory: str, added: dict[str, _Node | None], removed: tuple[str, ...]) -> None:
        _apply(self._tree, added, removed)
        self._changes.append((directory, added, removed))


class _FaultyFile:
    def __init__(self, disk: FaultyFiles, node: _Node, path: str) -> None:
        self._disk, self._node, self._file = disk, node, node.content.opened(path)

    def read(self, position: int, length: int) -> bytes:
        self._disk.must_live()
        return self._file.read(position, length)

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        with self._disk.lock:
            self._disk.must_live_through_a_change()
            data = b"".join(buffers)
            data = data[: self._disk.room_for_write(len(data))]
            self._node.unflushed.append((position, data))
            return self._file.write([data], position)

    def flush(self) -> None:
        with self._disk.lock:
            self._disk.must_live_through_a_change()
            unflushed, self._node.unflushed = self._node.unflushed, []
            if self._disk.flush_fails():
                raise StorageFailed("could not flush (the disk failed, as it was told to)")
            content = bytearray(self._node.durable)
            for position, data in unflushed:
                _write(content, position, data)
            self._node.durable = bytes(content)

    def cut(self, size: int) -> None:
        with self._disk.lock:
            self._disk.must_live_through_a_change()
            self._node.unflushed.append((size, None))
            self._file.cut(size)

    def size(self) -> int:
        self._disk.must_live()
        return self._file.size()

    def fileno(self) -> int:
        return self._file.fileno()


def _survivor(node: _Node, random: Random | None) -> bytes:
    """What a crash leaves of a file: all that was flushed, and of the rest what luck would have."""
    content = bytearray(node.durable)
    luck: Survival = random.choice(("nothing", "everything", "prefix", "sectors")) if random else "nothing"
    if luck == "nothing" or random is None:
        return bytes(content)
    kept = random.randint(0, len(node.unflushed)) if luck == "prefix" else len(node.unflushed)
    for position, data in node.unflushed[:kept]:
        if data is None or luck != "sectors":
            _write(content, position, data)
            continue
        at = 0
        while at < len(data):
            piece = data[at : at + SECTOR_BYTES - (position + at) % SECTOR_BYTES]
            if random.random() < 0.5:
                _write(content, position + at, piece)
            at += len(piece)
    return bytes(content)


def _write(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
        return
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _apply(tree: dict[str, _Node | None], added: dict[str, _Node | None], removed: tuple[str, ...]) -> None:
    for path in removed:
        tree.pop(path, None)
    tree.update(added)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("headwater")
    with tempfile.TemporaryFile() as file:  # macOS
        return os.dup(file.fileno())


_ABSENT = _Content()
