from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import headwater
from headwater import Stream
from headwater.errors import ConnectionFailed
from headwater.store import directory
from tests.sdk.live import start, until

pytestmark = pytest.mark.only_headwater("a Kafka is never started by its clients")

DATA = Path(".headwater")


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWATER_LINGER", "1")
    yield
    holder = directory.holder(DATA) if DATA.exists() else None
    if holder:
        os.kill(holder, signal.SIGTERM)


def program(body: str, *arguments: str) -> subprocess.Popen[str]:
    code = "import asyncio, os, sys, signal, time\nimport headwater\nfrom headwater import Stream\n"
    return subprocess.Popen(
        [sys.executable, "-c", code + textwrap.dedent(body), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


async def nobody_holds() -> None:
    await until(lambda: directory.holder(DATA) is None)


async def test_without_an_address_a_broker_is_started_and_closes_by_itself():
    """In an empty directory: publish and read; some time after the client left, the broker is gone, the data is not."""
    async with headwater.connect() as hw:
        stream = await Stream[str]("s", partitions=1).create()
        await stream.publish("a")
        where = directory.address(DATA)
        assert where is not None
        assert (where.kind, str(where)) == ("embedded", hw.address)
        assert where.pid != os.getpid()
        assert os.getpgid(where.pid) != os.getpgid(0)
    await nobody_holds()
    async with headwater.connect() as hw:
        assert hw.address == str(where)
        assert (await Stream[str]("s").publish("b")).offset == 1
    assert (DATA / "broker.log").exists()


@pytest.mark.parametrize("attempt", range(5))
async def test_three_programs_at_the_same_instant_share_one_broker(attempt):
    """The directory's lock leaves one broker; each program works, and the broker ends with the last of them."""
    await three_programs()


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_fifty_times_three_programs_share_one_broker():
    """As above, in one directory: later rounds meet a broker that closes, and one that has just closed."""
    for attempt in range(50):
        await three_programs(attempt, wait=bool(attempt % 3))


async def three_programs(before: int = 0, *, wait: bool = True) -> None:
    body = """
        async def main():
            async with headwater.connect() as hw:
                stream = await Stream[str]("shared", partitions=1).create()
                await stream.publish(sys.argv[1])
                print(hw.address, flush=True)
        asyncio.run(main())
    """
    programs = [program(body, str(n)) for n in range(3)]
    outcomes = [await asyncio.to_thread(one.communicate) for one in programs]
    assert [one.returncode for one in programs] == [0, 0, 0], [err for _, err in outcomes]
    assert len({out for out, _ in outcomes}) == 1
    if wait:
        await nobody_holds()
    async with headwater.connect():
        assert (await Stream("shared").describe()).record_count == 3 * (before + 1)


async def test_a_killed_program_does_not_hurt_the_others():
    """One of two clients is killed: the broker stays as long as the other is there."""
    other = program("""
        async def main():
            async with headwater.connect() as hw:
                print(hw.address, flush=True)
                await asyncio.sleep(60)
        asyncio.run(main())
    """)
    assert other.stdout is not None
    address = (await asyncio.to_thread(other.stdout.readline)).strip()
    async with headwater.connect() as hw:
        assert hw.address == address
        other.kill()
        await asyncio.to_thread(other.communicate)
        stream = await Stream[str]("s", partitions=1).create()
        begun = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - begun < 2.5:
            await stream.publish("still here")
            await asyncio.sleep(0.2)
        assert directory.holder(DATA) is not None
    await nobody_holds()


async def test_a_killed_broker_comes_back_under_its_address():
    """Publishers and readers go on by themselves, nothing acknowledged is lost, nothing is doubled."""
    async with headwater.connect() as hw:
        stream = await Stream[str]("s", partitions=2).create()
        acked: list[str] = []
        async with stream.group("g").read() as reader:
            for n in range(60):
                if n in {20, 40}:
                    holder = directory.holder(DATA)
                    assert holder
                    os.kill(holder, signal.SIGKILL)
                await stream.publish(str(n))
                acked.append(str(n))
            seen: list[str] = []
            while len(seen) < 60:
                record = await reader.get(timeout="30s")
                assert record is not None, f"{len(seen)} of 60"
                seen.append(record.value)
        where = directory.address(DATA)
        assert str(where) == hw.address
    assert sorted(seen, key=int) == acked


async def test_a_broker_whose_port_was_taken_is_found_again():
    """Another program took the port meanwhile: the broker takes a new one, and its clients read the address again."""
    async with headwater.connect() as hw:
        stream = await Stream[str]("s", partitions=1).create()
        await stream.publish("a")
        before = directory.address(DATA)
        assert before is not None
        os.kill(before.pid, signal.SIGSTOP)
        os.kill(before.pid, signal.SIGKILL)
        taken = await take_port(before.port)
        try:
            await until(lambda: hw.address != str(before), 30)
            assert (await stream.publish("b")).offset == 1
            async with stream.group("g").read() as reader:
                for value in "ab":
                    record = await reader.get(timeout="10s")
                    assert record is not None
                    assert record.value == value
        finally:
            taken.close()


async def take_port(port: int) -> asyncio.Server:
    for _ in range(2000):
        try:
            return await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.001)
    raise AssertionError("the port stayed taken")


async def test_a_fork_does_not_keep_the_broker_alive():
    """A program that forks: the child uses no client of its parent's, and the broker closes though the child lives."""
    forker = program("""
        async def main():
            async with headwater.connect() as hw:
                await Stream("s").create()
                child = os.fork()
                if not child:
                    try:
                        hw._open()
                    except headwater.HeadwaterError as error:
                        print(type(error).__name__, flush=True)
                    time.sleep(60)
                    os._exit(0)
                print(child, flush=True)
            os._exit(0)
        asyncio.run(main())
    """)
    assert forker.stdout is not None
    lines = [(await asyncio.to_thread(forker.stdout.readline)).strip() for _ in range(2)]
    assert "NotConnected" in lines
    child = next(int(line) for line in lines if line.isdigit())
    try:
        await nobody_holds()
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        forker.kill()
        await asyncio.to_thread(forker.communicate)


async def test_what_headwater_up_serves_is_found_and_not_resurrected(tmp_path):
    """A client without an address uses the broker that holds the directory; when that is stopped, it stays so."""
    served = start("headwater", DATA)
    try:
        async with headwater.connect() as hw:
            assert hw.address == served.address
            served.end()
            begun = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() - begun < 1.5:
                assert directory.holder(DATA) is None
                await asyncio.sleep(0.1)
    finally:
        served.end()


async def test_a_broker_that_cannot_start_says_why():
    """A data directory that is not ours, or of a newer format: the reason, and not a timeout."""
    DATA.mkdir()  # noqa: ASYNC240
    (DATA / "FORMAT").write_text("headwater 99\n")
    with pytest.raises(ConnectionFailed, match="newer Headwater"):
        async with headwater.connect():
            pass


async def test_ctrl_c_does_not_reach_the_broker():
    """An interrupt of the program's process group leaves the broker to close in its own time."""
    interrupted = program("""
        os.setpgid(0, 0)
        async def main():
            async with headwater.connect() as hw:
                await Stream("s").create()
                print("open", flush=True)
                await asyncio.sleep(60)
        asyncio.run(main())
    """)
    assert interrupted.stdout is not None
    await asyncio.to_thread(interrupted.stdout.readline)
    os.killpg(interrupted.pid, signal.SIGINT)
    _, err = await asyncio.to_thread(interrupted.communicate)
    assert "KeyboardInterrupt" in err
    assert directory.holder(DATA) is not None
    await nobody_holds()
