"""The data directory as processes see it: one holder, known by pid and address; clients that may share."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headwater.errors import DataDamaged, DataDirectoryHeld, FormatTooNew, InvalidSetting
from headwater.store.directory import Address, Clients, acquire, address, holder, write_address


def in_a_child(work) -> int:
    """Runs `work` in a forked child; its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = work()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def wait_until(condition) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_second_holder_is_told_who_has_it_and_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the directory as it was given, the pid and the address, and what to do."""
    monkeypatch.chdir(tmp_path)
    lock = acquire("./.headwater")
    write_address("./.headwater", Address(kind="served", host="127.0.0.1", port=9092, pid=os.getpid()))
    with pytest.raises(DataDirectoryHeld) as refused:
        acquire("./.headwater")
    assert str(refused.value) == (
        f"./.headwater is held by process {os.getpid()} (127.0.0.1:9092): connect to it, stop it, or choose --data"
    )
    lock.release()
    acquire("./.headwater").release()


def test_the_address_of_an_earlier_run_is_not_taken_for_the_holders(tmp_path: Path) -> None:
    """While a new holder has not said where it listens, the message does not send anybody to the old port."""
    write_address(tmp_path, Address(kind="served", host="127.0.0.1", port=9092, pid=1))
    lock = acquire(str(tmp_path))
    with pytest.raises(DataDirectoryHeld, match=rf"held by process {os.getpid()}: connect"):
        acquire(str(tmp_path))
    lock.release()


def test_the_lock_goes_with_a_killed_process(tmp_path: Path) -> None:
    """kill -9 leaves nothing to clean up: the next start gets the directory, and finds the old port."""
    program = (
        "import os, sys; from headwater.store.directory import *\n"
        "lock = acquire(sys.argv[1])\n"
        "write_address(sys.argv[1], Address(kind='embedded', host='127.0.0.1', port=4711, pid=os.getpid()))\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdin is not None
    child.stdout.readline()
    assert holder(tmp_path) == child.pid
    with pytest.raises(DataDirectoryHeld, match=rf"process {child.pid} \(127.0.0.1:4711\)"):
        acquire(str(tmp_path))
    child.kill()
    child.wait()
    child.stdout.close()
    child.stdin.close()
    assert holder(tmp_path) is None
    acquire(str(tmp_path)).release()
    assert address(tmp_path) == Address(kind="embedded", host="127.0.0.1", port=4711, pid=child.pid)


def test_looking_who_holds_it_does_not_stop_a_start(tmp_path: Path) -> None:
    """Clients that look at the lock all the time do not make a start fail."""
    acquire(str(tmp_path)).release()
    looking = True

    def look() -> None:
        while looking:
            holder(tmp_path)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(50):
            acquire(str(tmp_path)).release()
    finally:
        looking = False
        thread.join()


def test_nobody_holds_what_is_not_there(tmp_path: Path) -> None:
    """Looking makes no files and finds no holder and no address."""
    assert (holder(tmp_path / "no"), address(tmp_path / "no")) == (None, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("torn", ["", "{", "[]", '{"kind": "served"}', '{"kind": "served", "host": 1, "port": "x"}'])
def test_a_torn_address_is_no_address(tmp_path: Path, torn: str) -> None:
    """What is not a whole address counts as none."""
    (tmp_path / "address").write_text(torn)
    assert address(tmp_path) is None


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A directory of a later version is not entered; the message says what to do, and the lock is free again."""
    acquire(str(tmp_path)).release()
    (tmp_path / "FORMAT").write_text("headwater 2\n")
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(FormatTooNew, match=r"newer Headwater \(format 2, this one knows 1\): upgrade Headwater"):
        acquire(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == before
    assert holder(tmp_path) is None


@pytest.mark.parametrize("text", [b"", b"headwater x\n", b"other 1\n", b"headwater 1\n\x8e", "headwater ²".encode()])
def test_a_format_that_says_nothing_is_damage(tmp_path: Path, text: bytes) -> None:
    """A FORMAT file that names no format of ours is refused, not guessed."""
    (tmp_path / "FORMAT").write_bytes(text)
    with pytest.raises(DataDamaged, match="FORMAT does not name"):
        acquire(str(tmp_path))


def test_streams_without_their_rows_are_damage(tmp_path: Path) -> None:
    """A start that found no meta.db would begin a new one, in which the streams that lie there are not known."""
    (tmp_path / "FORMAT").write_text("headwater 1\n")
    acquire(str(tmp_path)).release()  # killed before meta.db was made
    (tmp_path / "streams" / "ab").mkdir(parents=True)
    with pytest.raises(DataDamaged, match=r"meta\.db is missing"):
        acquire(str(tmp_path))


def test_data_without_a_format_is_damage(tmp_path: Path) -> None:
    """A meta.db without FORMAT beside it cannot come from a crash (FORMAT is durable first), so it is refused."""
    (tmp_path / "meta.db").touch()
    with pytest.raises(DataDamaged, match="FORMAT is missing"):
        acquire(str(tmp_path))


def test_a_path_that_cannot_be_a_directory_is_said_so(tmp_path: Path) -> None:
    """A file where the directory should be is an operator's error with the path in it."""
    (tmp_path / "file").touch()
    with pytest.raises(InvalidSetting, match=r"file cannot be used .*choose --data"):
        acquire(str(tmp_path / "file"))


def test_a_directory_that_was_removed_and_made_anew_is_locked_anew(tmp_path: Path) -> None:
    """A lock on a file that is no longer at its path is nobody's: the file that is there now gets locked."""
    broker, client = Clients(tmp_path), Clients(tmp_path)
    (tmp_path / "clients").unlink()
    assert client.join(1)
    assert not broker.absent()
    client.leave()
    assert broker.absent()
    broker.leave()


def test_a_broker_sees_its_clients_come_and_go(tmp_path: Path) -> None:
    """Any number of clients share the lock; the broker knows only whether there is one."""
    broker, one, two = Clients(tmp_path), Clients(tmp_path), Clients(tmp_path)
    assert broker.absent()
    assert one.join(0)
    assert two.join(0)
    assert not broker.absent()
    one.leave()
    assert not broker.absent()
    two.leave()
    assert broker.absent()
    broker.leave()


def test_a_closing_broker_lets_no_client_in_until_it_is_gone(tmp_path: Path) -> None:
    """shut_out() holds new clients off; when the broker is gone they get in."""
    broker, client = Clients(tmp_path), Clients(tmp_path)
    assert broker.shut_out()
    assert not client.join(0.02)
    waiting = threading.Thread(target=client.join, args=(5,))
    waiting.start()
    broker.leave()
    waiting.join(5)
    late = Clients(tmp_path)
    assert not late.shut_out()
    client.leave()
    late.leave()


def test_a_probing_broker_never_turns_a_client_away(tmp_path: Path) -> None:
    """A client that joins while the broker probes without pause still gets in."""
    broker, client = Clients(tmp_path), Clients(tmp_path)
    probing = True

    def probe() -> None:
        while probing:
            broker.absent()

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        assert client.join(5)
    finally:
        probing = False
        thread.join()
    client.leave()
    broker.leave()


def test_a_forked_child_keeps_no_broker_alive(tmp_path: Path) -> None:
    """A child that outlives the client that forked it does not count as a client, and its end frees nothing."""
    broker, client = Clients(tmp_path), Clients(tmp_path)
    assert client.join(0)

    def leave() -> int:
        client.leave()
        return 0

    assert in_a_child(leave) == 0
    assert not broker.absent()
    ready, go_on = os.pipe(), os.pipe()

    pid = os.fork()
    if pid == 0:
        os.close(go_on[1])  # so that the child ends with its parent, whatever happens to that
        os.write(ready[1], b"x")
        os.read(go_on[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    client.leave()
    wait_until(broker.absent)
    os.write(go_on[1], b"x")
    os.waitpid(pid, 0)
    for descriptor in (*ready, *go_on):
        os.close(descriptor)
    broker.leave()


def test_a_forked_child_does_not_hold_the_directory(tmp_path: Path) -> None:
    """The directory is free once its holder lets go, though a child of it lives; and the child frees nothing."""
    lock = acquire(str(tmp_path))

    def still_held() -> int:
        lock.release()
        return 0 if holder(tmp_path) is not None else 1

    assert in_a_child(still_held) == 0
    with pytest.raises(DataDirectoryHeld):
        acquire(str(tmp_path))
    lock.release()
