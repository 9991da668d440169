"""A program that publishes to the broker of `./.headwater`, as it is told line by line; test_copies.py runs several.

open          connects, creates the stream, says `open ADDRESS`
publish N     N records, one after another; says `acked N`, and how many were acked in all
fork          forks a child that lives until it is killed; says `forked PID`
close         leaves the client; says `closed`
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import headwater


async def told() -> list[str]:
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.split()


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def main(name: str) -> None:
    acked = 0
    async with contextlib.AsyncExitStack() as stack:
        while words := await told():
            match words:
                case ["open"]:
                    hw = await stack.enter_async_context(headwater.connect())
                    stream = hw.stream("copies", partitions=1)
                    await stream.create()
                    say("open", hw.address)
                case ["publish", count]:
                    for _ in range(int(count)):
                        await stream.publish({"who": name, "number": acked})
                        acked += 1
                    say("acked", acked)
                case ["fork"]:
                    child = os.fork()
                    if not child:
                        for descriptor in (0, 1, 2):
                            os.close(descriptor)
                        signal.pause()
                        os._exit(0)
                    say("forked", child)
                case ["close"]:
                    await stack.aclose()
                    say("closed")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
