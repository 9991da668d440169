from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest
from pydantic import BaseModel

from headwater.errors import InvalidOption
from headwater.model import Record
from headwater.sdk.handlers import caller, wants_record


class Order(BaseModel):
    id: str


class Special(Order): ...


async def value(order: Order) -> None: ...
async def record(one: Record[Order]) -> None: ...
def bare(one): ...
def anything(one: Any) -> None: ...
def broader(one: BaseModel) -> None: ...
def either(one: Order | Special) -> None: ...
def with_default(one: Order, member: str = "a") -> None: ...
def two(one: Order, other: str) -> None: ...
def keyword(*, one: Order) -> None: ...
def several(one: list[Order]) -> None: ...
def unknown(one: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


class Handler:
    def method(self, one: Record) -> None: ...

    async def __call__(self, one: Order) -> None: ...


@pytest.mark.parametrize("handler", [value, bare, anything, broader, either, with_default, Handler(), print, [].append,
                                     functools.partial(two, other="x"), lambda *all: None])  # fmt: skip
def test_who_gets_the_value(handler):
    """By annotation, or because there is none."""
    assert not wants_record(handler, "s", Order)


@pytest.mark.parametrize("handler", [record, Handler().method])
def test_who_gets_the_record(handler):
    """`Record`, with or without its model."""
    assert wants_record(handler, "s", Order)


@pytest.mark.parametrize(
    ("handler", "said"),
    [(two, "cannot be called with one"), (keyword, "cannot be called with one"), (several, "not built yet"),
     (unknown, "Nowhere.*cannot be looked up"), (5, "a function of one value"), (lambda: None, "takes one value")],
)  # fmt: skip
def test_what_is_no_handler(handler, said):
    """Each error says why it cannot be called, before anything is read."""
    with pytest.raises(InvalidOption, match=said):
        wants_record(handler, "s", Order)


def test_a_handler_that_wants_what_the_stream_does_not_give():
    """The error says how to declare the stream."""
    for handler, model in ((value, bytes), (record, None), (value, dict)):
        with pytest.raises(InvalidOption, match=r"Stream\[Order\]"):
            wants_record(handler, "s", model)
    assert not wants_record(several, "s", list[Order])


async def test_a_blocking_handler_has_a_thread_of_its_own():
    """Results and errors come back to the loop, and the thread ends when it is let go."""
    threads = []

    def work(number: int) -> int:
        threads.append(threading.current_thread())
        return 10 // number

    call, let_go = caller(work, "g")
    assert await call(5) == 2
    with pytest.raises(ZeroDivisionError):
        await call(0)
    let_go()
    assert len(set(threads)) == 1
    await asyncio.to_thread(threads[0].join, 10)
    assert not threads[0].is_alive()


async def test_an_async_handler_is_called_on_the_loop():
    """Coroutine functions, partials of them and objects with an async call alike."""
    for handler in (value, functools.partial(value), Handler()):
        call, let_go = caller(handler, "g")
        assert call is handler
        let_go()
