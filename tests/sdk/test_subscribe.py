from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest
from pydantic import BaseModel

import headwater
from headwater import HandlerError, Record, Stream
from headwater.errors import InvalidOption, InvalidValue
from tests.sdk.live import until


class Order(BaseModel):
    id: str


class Other(BaseModel):
    id: str


async def filled(hw, name, count=20, partitions=4):
    stream = hw.stream(Stream[Order](name, partitions=partitions))
    await stream.create()
    await stream.publish_many([Order(id=str(n)) for n in range(count)])
    return stream


async def test_the_annotation_decides_what_a_handler_gets(hw, name):
    """The value, the record, or without an annotation the value; sync and async alike."""
    stream = await filled(hw, name, 1)
    got: dict[str, Any] = {}

    def value(order: Order) -> None:
        got["value"] = order

    async def record(record: Record[Order]) -> None:
        got["record"] = record

    class Handler:
        async def __call__(self, one: Record) -> None:
            got["object"] = one

    await stream.group(f"{name}-1").subscribe(value)
    await stream.group(f"{name}-2").subscribe(record)
    await stream.group(f"{name}-3").subscribe(lambda order: got.update(bare=order))
    await stream.group(f"{name}-4").subscribe(Handler())
    await until(lambda: len(got) == 4)
    assert got["value"] == got["bare"] == Order(id="0")
    assert type(got["record"]) is type(got["object"]) is Record
    assert got["record"].value == Order(id="0")


async def test_a_handler_of_another_type_is_refused(hw, name):
    """What the stream does not give, a list, or no argument at all: refused before anything is read."""
    stream = await filled(hw, name, 0)

    def other(order: Other) -> None: ...
    def several(orders: list[Order]) -> None: ...
    def nothing() -> None: ...
    def two(a: Order, b: Order) -> None: ...

    for handler, said in ((other, "takes Other.*gives Order"), (several, "not built yet"), (nothing, "takes one value"),
                          (two, "takes one value"), (7, "is a function")):  # fmt: skip
        with pytest.raises(InvalidOption, match=said):
            await stream.group(name).subscribe(handler)
    with pytest.raises(InvalidOption, match=r"Stream\[Order\]"):
        await Stream[bytes](name).group(name).subscribe(lambda_of(Order))


def lambda_of(kind: Any) -> Any:
    async def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = kind
    return handler


async def test_three_subscriptions_are_three_members(hw, name):
    """Each record is handled once between them, in order within its partition."""
    stream = await filled(hw, name, 0)
    seen: list[tuple[str, Record[Order]]] = []
    for member in "abc":

        async def handler(record: Record[Order], member: str = member) -> None:
            seen.append((member, record))

        await stream.group(name).subscribe(handler)
    await stream.publish_many([Order(id=str(n)) for n in range(300)])
    await until(lambda: len(seen) >= 300)
    assert sorted(int(record.value.id) for _, record in seen) == list(range(300))
    assert {member for member, _ in seen} == {"a", "b", "c"}
    for partition in range(4):
        offsets = [record.offset for _, record in seen if record.partition == partition]
        assert offsets == sorted(offsets)


async def test_a_blocking_handler_stalls_neither_heartbeats_nor_the_loop(address, name):
    """A handler that blocks its thread for longer than the session is still a member when it returns."""
    kafka = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 100}
    async with headwater.connect(address, kafka=kafka) as hw:
        stream = await filled(hw, name, 3, partitions=1)
        release, handled = threading.Event(), list[int]()

        def block(record: Record[Order]) -> None:
            if not handled:
                release.wait(20)
            handled.append(record.offset)

        await stream.group(name).subscribe(block)
        longer_than_the_session = time.monotonic() + 2.5
        await until(lambda: time.monotonic() > longer_than_the_session)
        release.set()
        await until(lambda: len(handled) >= 3)
        await stream.publish(Order(id="later"))
        await until(lambda: len(handled) >= 4)
        assert handled == [0, 1, 2, 3]


async def test_a_record_is_done_when_its_handler_returned(hw, name):
    """After a stop the next member goes on behind the last record that was handled."""
    stream = await filled(hw, name, 5, partitions=1)
    seen: list[str] = []
    subscription = await stream.group(name).subscribe(lambda order: seen.append(order.id))
    await until(lambda: len(seen) == 5)
    await subscription.stop()
    await subscription.stop()
    await stream.publish(Order(id="5"))
    await stream.group(name).subscribe(lambda order: seen.append(order.id))
    await until(lambda: len(seen) >= 6)
    assert seen == ["0", "1", "2", "3", "4", "5"]


async def test_a_handler_that_raises_ends_run_with_its_place(address, name):
    """Its subscription stops, its record uncommitted; the others are drained; HandlerError says where and why."""
    async with headwater.connect(address) as hw:
        bad = await filled(hw, f"{name}-bad", 3, partitions=1)
        good = await filled(hw, f"{name}-good", 3, partitions=1)
        seen: list[str] = []
        finished: list[str] = []

        failing = asyncio.Event()

        async def fails(order: Order) -> None:
            if order.id == "1":
                failing.set()
                raise ValueError("no stock")
            seen.append(order.id)

        async def slow(order: Order) -> None:
            await failing.wait()
            await until(lambda: working._member._stopping)
            finished.append(order.id)

        working = await good.group(f"{name}-other").subscribe(slow)
        await bad.group(name).subscribe(fails)
        with pytest.raises(HandlerError, match="ValueError: no stock") as caught:
            await hw.run()
        error = caught.value
        assert (error.stream, error.partition, error.offset) == (f"{name}-bad", 0, 1)
        assert isinstance(error.__cause__, ValueError)
        assert seen == ["0"]
        assert finished == ["0"]  # what was in hand was finished, and no more was taken
        again: list[str] = []
        await bad.group(name).subscribe(lambda order: again.append(order.id))
        await until(lambda: again)
        assert again[0] == "1"


async def test_a_record_that_is_not_the_model_is_the_handlers_error(hw, name):
    """A subscription stops at a record that does not validate, and its client says so at the latest when it closes."""
    stream = await filled(hw, name, 0, partitions=1)
    await hw.stream(Stream[bytes](name)).publish(b"{")
    await stream.group(name).subscribe(lambda order: None)
    with pytest.raises(HandlerError, match=f"stream '{name}', partition 0, offset 0") as caught:
        await hw.run()
    assert isinstance(caught.value.__cause__, InvalidValue)


async def test_an_error_that_nobody_saw_is_raised_at_the_end(address, name):
    """Leaving the client raises what a handler raised, when no run() has told it."""
    with pytest.raises(HandlerError, match="boom"):
        async with headwater.connect(address) as hw:
            stream = await filled(hw, name, 1)

            def fails(order: Order) -> None:
                raise RuntimeError("boom")

            subscription = await stream.group(name).subscribe(fails)
            await until(lambda: subscription.error)


async def test_stop_waits_no_longer_than_it_was_told(hw, name):
    """A handler that does not end is cancelled after stop_timeout; its record is read again."""
    stream = await filled(hw, name, 1, partitions=1)
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(order: Order) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    subscription = await stream.group(name).subscribe(endless, stop_timeout="100ms")
    await asyncio.wait_for(started.wait(), 20)
    begun = time.monotonic()
    await subscription.stop()
    assert cancelled.is_set()
    assert time.monotonic() - begun < 5
    seen: list[str] = []
    await stream.group(name).subscribe(lambda order: seen.append(order.id))
    await until(lambda: seen == ["0"])


async def test_slow_handlers_do_not_make_the_group_wait(hw, name):
    """A member that joins gets its part while the other's handler is at work, and no record is handled twice."""
    stream = await filled(hw, name, 40, partitions=4)
    seen: list[tuple[str, str]] = []

    async def slow(order: Order) -> None:
        await asyncio.to_thread(threading.Event().wait, 0.03)
        seen.append(("slow", order.id))

    await stream.group(name).subscribe(slow)
    await until(lambda: seen)
    await stream.group(name).subscribe(lambda order: seen.append(("quick", order.id)))
    await until(lambda: len(seen) >= 40)
    assert sorted(int(one) for _, one in seen) == list(range(40))
    assert {who for who, _ in seen} == {"slow", "quick"}


PROGRAM = """
    import asyncio, sys
    import headwater
    from headwater import Stream

    async def main(address, name, how):
        async with headwater.connect(address) as hw:
            async def handler(value):
                print("begun", value, flush=True)
                await asyncio.sleep(0.5)
                print("done", value, flush=True)
            def blocking(value):
                import time
                print("begun", value, flush=True)
                time.sleep(0.5)
                print("done", value, flush=True)
            await hw.stream(Stream[str](name)).group(name).subscribe(handler if how == "async" else blocking)
            await hw.run()
            print("ran", flush=True)

    asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("how", ["async", "blocking"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_ends_run(hw, address, name, how, number):
    """SIGTERM and Ctrl-C: the record in hand is finished, the next is not begun, and run() returns."""
    stream = hw.stream(Stream[str](name, partitions=1))
    await stream.create()
    await stream.publish_many(["a", "b"])
    program = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", textwrap.dedent(PROGRAM), address, name, how],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ},
    )  # fmt: skip
    assert program.stdout is not None
    first = await asyncio.to_thread(program.stdout.readline)
    program.send_signal(number)
    out, err = await asyncio.to_thread(program.communicate)
    assert (first + out).split("\n") == ["begun a", "done a", "ran", ""], err
    assert program.returncode == 0
    async with stream.group(name).read() as reader:
        record = await reader.get(timeout="10s")
        assert record is not None
        assert record.value == "b"


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_handler_whose_own_wait_was_cancelled_has_failed(hw, name, blocking):
    """A CancelledError that is not ours ends the subscription as any other error does, and run() says it."""
    stream = await filled(hw, name, 1)

    async def fails(order: Order) -> None:
        raise asyncio.CancelledError

    def fails_blocking(order: Order) -> None:
        raise asyncio.CancelledError

    await stream.group(name).subscribe(fails_blocking if blocking else fails)
    with pytest.raises(HandlerError, match="CancelledError"):
        await asyncio.wait_for(hw.run(), 20)


async def test_a_stop_that_may_take_for_ever(hw, name):
    """With stop_timeout="forever" a rebalance waits for the handler, and nothing is handled twice."""
    stream = await filled(hw, name, 8, partitions=2)
    seen: list[str] = []

    async def slow(order: Order) -> None:
        await asyncio.to_thread(threading.Event().wait, 0.1)
        seen.append(order.id)

    await stream.group(name).subscribe(slow, stop_timeout="forever")
    await stream.group(name).subscribe(slow, stop_timeout="forever")
    await until(lambda: len(seen) >= 8)
    assert sorted(seen) == [str(n) for n in range(8)]


async def test_a_second_ctrl_c_does_not_wait(hw, address, name):
    """While the record in hand is finished, another Ctrl-C ends the program at once."""
    stream = hw.stream(Stream[str](name, partitions=1))
    await stream.create()
    await stream.publish("a")
    endless = (
        textwrap.dedent(PROGRAM).replace("asyncio.sleep(0.5)", "draining()").replace("async def main", DRAINING, 1)
    )
    program = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", endless, address, name, "async"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ},
    )  # fmt: skip
    assert program.stdout is not None
    assert await asyncio.to_thread(program.stdout.readline) == "begun a\n"
    program.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(program.stdout.readline) == "draining\n"
    program.send_signal(signal.SIGINT)
    out, err = await asyncio.to_thread(program.communicate)
    assert out == ""
    assert "KeyboardInterrupt" in err


DRAINING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with SIGINT ignored

async def draining():  # until the first Ctrl-C is being answered, and then for ever
    (client,) = headwater.sdk.opened._open
    (subscription,) = client._subscriptions
    while not subscription._member._stopping:
        await asyncio.sleep(0.01)
    print("draining", flush=True)
    await asyncio.Event().wait()

async def main"""


async def test_a_stop_that_is_cancelled_leaves_nothing_behind(hw, name):
    """The handler is cancelled with it, and run() has nothing more to wait for than the others."""
    stream = await filled(hw, name, 1)
    started = asyncio.Event()

    async def endless(order: Order) -> None:
        started.set()
        await asyncio.Event().wait()

    cancelled = await stream.group(name).subscribe(endless)
    other = await stream.group(f"{name}-other").subscribe(lambda order: None)
    await asyncio.wait_for(started.wait(), 20)
    stopping = asyncio.create_task(cancelled.stop())
    await until(lambda: cancelled._member._stopping)
    stopping.cancel()
    await asyncio.wait({stopping, cancelled.ended}, timeout=20)
    assert cancelled.ended.done()
    assert hw._subscriptions == [other]
    running = asyncio.create_task(hw.run())
    used = time.process_time()
    await asyncio.wait({running}, timeout=1)
    assert time.process_time() - used < 0.5
    await other.stop()
    await asyncio.wait_for(running, 20)


async def test_a_handler_may_stop_its_own_subscription(hw, name):
    """What it has in hand is the last: it is committed, and run() returns."""
    stream = await filled(hw, name, 10, partitions=1)
    seen: list[str] = []

    async def two(order: Order) -> None:
        seen.append(order.id)
        if len(seen) == 2:
            await subscription.stop()

    subscription = await stream.group(name).subscribe(two)
    await asyncio.wait_for(hw.run(), 20)
    assert seen == ["0", "1"]
    await asyncio.wait_for(hw.run(), 20)  # nothing is left to run
    async with stream.group(name).read() as reader:
        record = await reader.get(timeout="10s")
        assert record is not None
        assert record.value.id == "2"
