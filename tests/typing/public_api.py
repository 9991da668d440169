"""The public face, as a type checker sees it: this file must check clean under mypy --strict and pyright.

It is never run. Lines that must be errors carry an ignore with their code: an ignore that is not needed is an error
itself, so a wrong option that came to type-check would be noticed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, assert_type

from pydantic import BaseModel

import headwater
from headwater import (
    Client,
    GroupRecord,
    HandlerError,
    Key,
    OlapTable,
    Outgoing,
    Receipt,
    Record,
    Stream,
    StreamConfig,
    Subscription,
    Table,
    murmur2,
)


class V1(BaseModel):
    id: Key[str]
    total: float = 0.0


class V2(BaseModel):
    id: Key[str]
    amount: int = 0


class Row(BaseModel):
    id: str


plain = Stream("plain")
either = Stream[V1 | V2]("either")
raw = Stream[bytes]("raw")
text = Stream[str]("text", persistence="file_sync", config={"retention.ms": 1000})
landed = Stream[V1]("landed", StreamConfig(destination=Table[Row]("rows", namespace="shop")), partitions=2)
same = Stream[V1]("same", destination=OlapTable[V1]("same"), partition_function=lambda value: murmur2(value.id) % 4)

assert_type(plain, Stream[Any])
assert_type(either, Stream[V1 | V2])

# What is not built, and what is a typing error, is an error in the editor.
Stream("x", partitons=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Stream("x", retention="7d")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Stream("x", persistence="fsync")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Stream("x", partitions="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
StreamConfig(partitons=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Table("x", partition_by="day")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def writes(hw: Client) -> None:
    assert_type(await landed.publish(V1(id="1"), key="k", headers={"a": "b"}, timestamp=datetime.now(UTC)), Receipt)
    assert_type(await landed.publish_many([V1(id="1"), Outgoing(V1(id="2"), key=b"k")]), list[Receipt])
    await landed.publish({"id": "1"})
    await raw.publish(b"x", headers=[("a", None), ("a", b"b")])
    await landed.publish(V2(id="1"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await text.publish(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(hw.stream(landed), Stream[V1])
    assert_type(await hw.stream("named", partitions=4).create(), Stream[Any])
    hw.stream("named", partitons=4)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    assert_type(await hw.streams(), list[str])
    assert_type((await landed.describe()).partitions[0].end, int)
    assert_type(await hw.exists(landed), bool)
    await hw.delete("named")


async def reads() -> None:
    async with headwater.connect("127.0.0.1:9092", kafka={"client.id": "x"}) as hw:
        async with landed.group("g").read(commit="manual", start="end", on_lost="skip") as reader:
            record = await reader.get(timeout="1s")
            assert_type(record, GroupRecord[V1] | None)
            async for one in reader:
                assert_type(one.value, V1)
                assert_type(one.key, str | None)
                assert_type(one.headers["x"], str | None)
                await one.commit()
        async with either.group("g").read(commit=5) as both:
            async for one_of in both:
                assert_type(one_of.value, V1 | V2)
        assert_type(await landed.group("g").subscribe(value), Subscription[V1])
        await landed.group("g").subscribe(whole, stop_timeout="5s")
        await landed.group("g").subscribe(blocking)
        await landed.group("g").subscribe(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        landed.group("g").read(start="earliest")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        try:
            await hw.run()
        except HandlerError as error:
            assert_type(error.offset, int)


async def value(one: V1) -> None: ...
async def whole(one: Record[V1]) -> None: ...
def blocking(one: V1) -> int:
    return len(one.id)


async def wrong(one: V2) -> None: ...
