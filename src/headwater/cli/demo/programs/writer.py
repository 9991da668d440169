"""Publishes orders for some seconds: `python writer.py NAME COUNT`. Some ids come twice, some records are not orders.

Each record carries the header `n` (NAME-0, NAME-1, ...), so that a reader can tell what was lost or doubled; what the
log acknowledged is written to `acked-NAME.jsonl`.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from datetime import UTC, datetime
from pathlib import Path

from shop import Line, Order, orders

import headwater
from headwater import Outgoing, Receipt, Stream

BATCH = 50  # records
PAUSE_SECONDS = 0.12  # between batches: a lively stream, not a flood
NOT_ORDERS = (b"{", b'{"id": "o-7", "customer": "ada"}', b"\xff\xfe not JSON", b'{"id": "o-8", "country": "XX"}')
anything = Stream[bytes]("orders")  # the same stream without its model: how a foreign program would write


def an_order(name: str, number: int, rng: random.Random) -> Order:
    lines = [
        Line(sku=f"sku-{rng.randrange(50)}", count=rng.randint(1, 4), price=rng.randint(100, 9900) / 100)
        for _ in range(rng.randint(1, 3))
    ]
    return Order(
        id=f"{name}-{number - number % 10 if number % 10 == 1 else number}",  # each tenth id comes twice
        customer=f"customer-{rng.randrange(200)}",
        country=rng.choice(("DE", "FR", "IT", "JP", "US")),
        placed=datetime.now(UTC),
        lines=lines,
        total=round(sum(line.count * line.price for line in lines), 2),
        note="gift" if rng.random() < 0.1 else None,
    )


async def main(name: str, count: int) -> None:
    rng = random.Random(name)
    async with headwater.connect() as hw:
        await orders.create()
        with Path(f"acked-{name}.jsonl").open("w") as acked:
            for first in range(0, count, BATCH):
                numbers = range(first, min(first + BATCH, count))
                good = [number for number in numbers if number % 40]
                batch = []
                for number in good:
                    order = an_order(name, number, rng)
                    batch.append(Outgoing(order, key=order.customer, headers={"n": f"{name}-{number}"}))
                note(acked, name, good, await orders.publish_many(batch))
                for number in numbers:
                    if number % 40 == 0:
                        value = NOT_ORDERS[number // 40 % len(NOT_ORDERS)]
                        receipt = await hw.stream(anything).publish(value, headers={"n": f"{name}-{number}"})
                        note(acked, name, [number], [receipt])
                await asyncio.sleep(PAUSE_SECONDS)


def note(acked, name: str, numbers: list[int], receipts: list[Receipt]) -> None:  # type: ignore[no-untyped-def]
    for number, receipt in zip(numbers, receipts, strict=True):
        acked.write(
            json.dumps({"n": f"{name}-{number}", "partition": receipt.partition, "offset": receipt.offset}) + "\n"
        )
    acked.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
