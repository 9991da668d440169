"""A group of three reads everything: `python readers.py COUNT` ends when COUNT different records have been seen."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

from shop import orders

import headwater
from headwater import Record, Stream

anything = Stream[bytes]("orders")  # as bytes: records that are not orders are to be seen too


async def main(count: int) -> None:
    seen: set[tuple[int, int]] = set()
    by_member: Counter[str] = Counter()
    complete = asyncio.Event()
    async with headwater.connect() as hw:
        await orders.create()  # whoever comes first
        for member in ("ada", "bob", "cleo"):

            async def show(record: Record[bytes], member: str = member) -> None:
                seen.add((record.partition, record.offset))
                by_member[member] += 1
                if len(seen) >= count:
                    complete.set()

            await hw.stream(anything).group("demo-readers").subscribe(show)
        run = asyncio.ensure_future(hw.run())
        await asyncio.wait({run, asyncio.ensure_future(complete.wait())}, return_when=asyncio.FIRST_COMPLETED)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
    print(json.dumps({"seen": len(seen), "by_member": dict(sorted(by_member.items()))}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
