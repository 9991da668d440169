"""What a handler wants, by its annotation, and how it is called.

`Login` gets the value, `Record[Login]` the record with its key, headers and place. Sync handlers run in a thread of the
subscription's own: a blocking one stalls neither the loop nor heartbeats, and a stuck one does not keep the program
from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import queue
import threading
import types
import typing
from collections.abc import Awaitable, Callable
from typing import Any, get_args, get_origin

from headwater.errors import InvalidOption
from headwater.model import Record

Call = Callable[[Any], Awaitable[Any]]


def wants_record(handler: Callable[..., Any], stream: str, model: Any) -> bool:
    """Whether `handler` takes a `Record`; an error when it takes what this stream does not give."""
    parameter = _first(handler, stream)
    wanted = _annotation(handler, parameter)
    if wanted is inspect.Parameter.empty or wanted is Any:
        return False
    origin = get_origin(wanted)
    if wanted is list or origin is list:
        if model is not None and wanted == model:
            return False
        raise InvalidOption(
            f"a handler of stream {stream!r} takes {_said(wanted)}: handlers of several records are not built yet: "
            f"take one value, or one Record[...]"
        )
    record = (isinstance(wanted, type) and issubclass(wanted, Record)) or origin is Record
    if record:
        wanted = (get_args(wanted) or (Any,))[0]
    _fits(wanted, stream, model)
    return record


def caller(handler: Callable[..., Any], name: str) -> tuple[Call, Callable[[], None]]:
    """How to call `handler` from the loop, and how to let go of what that needs."""
    if _is_async(handler):
        return handler, lambda: None
    thread = HandlerThread(handler, name)
    return thread.call, thread.close


class HandlerThread:
    """One thread for one subscription's blocking handler. A daemon: the program may end while it is stuck."""

    def __init__(self, handler: Callable[[Any], Any], name: str) -> None:
        self._handler = handler
        self._work: queue.SimpleQueue[tuple[Any, asyncio.Future[Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=f"headwater-handler-{name}", daemon=True).start()

    async def call(self, argument: Any) -> Any:
        """Cancelling forgets the result; the handler itself goes on to its end in its thread."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._work.put((argument, future))
        result = await future
        return await result if inspect.isawaitable(result) else result

    def close(self) -> None:
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            argument, future = work
            result, error = None, None
            try:
                result = self._handler(argument)
            except BaseException as raised:  # noqa: BLE001  it belongs to whoever awaits the call
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):  # a future cannot carry it
        future.set_exception(RuntimeError(f"the handler raised {error!r}"))
    else:
        future.set_exception(error)


def _is_async(handler: Callable[..., Any]) -> bool:
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def _first(handler: Callable[..., Any], stream: str) -> inspect.Parameter | None:
    if not callable(handler):
        raise InvalidOption(f"a handler of stream {stream!r} is a function of one value, not {handler!r}")
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        return None  # a builtin, such as print or list.append
    places = [one for one in parameters if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]
    needed = [
        one for one in parameters if one.default is one.empty and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
    ]
    takes_any = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if (
        (not places and not takes_any)
        or len(needed) > 1
        or (needed and needed[0].kind is inspect.Parameter.KEYWORD_ONLY)
    ):
        raise InvalidOption(
            f"a handler of stream {stream!r} takes one value: {_name(handler)} cannot be called with one"
        )
    return places[0] if places else None


def _annotation(handler: Callable[..., Any], parameter: inspect.Parameter | None) -> Any:
    if parameter is None:
        return inspect.Parameter.empty
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    target: Any = handler
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target).get(parameter.name, inspect.Parameter.empty)
    except NameError as error:
        raise InvalidOption(
            f"the annotation of {_name(handler)}, {parameter.annotation!r}, cannot be looked up ({error}): import the "
            f"name in the handler's module, outside of TYPE_CHECKING"
        ) from None


def _fits(wanted: Any, stream: str, model: Any) -> None:
    """Only what cannot be is refused: when no class that is wanted is, or has as a subclass, one that is given."""
    wants, gives = _classes(wanted), _classes(model)
    if model is None:  # JSON gives dict, list, text and numbers, but no model and no bytes
        possible = any(not hasattr(one, "model_fields") and one is not bytes for one in wants)
    else:
        possible = any(issubclass(one, other) or issubclass(other, one) for one in wants for other in gives)
    if wants and (gives or model is None) and not possible:
        raise InvalidOption(
            f"a handler of stream {stream!r} takes {_said(wanted)}, and the stream gives {_said(model)}: declare it as "
            f"Stream[{_said(wanted)}]({stream!r})"
        )


def _classes(annotation: Any) -> list[type]:
    """The classes of an annotation, those of a union one by one; none where it says nothing that can be compared."""
    if get_origin(annotation) in {types.UnionType, typing.Union}:
        return [one for part in get_args(annotation) for one in _classes(part)]
    plain = get_origin(annotation) or annotation
    return [plain] if isinstance(plain, type) and plain is not Any else []


def _said(wanted: Any) -> str:
    return "JSON" if wanted is None else getattr(wanted, "__name__", None) or str(wanted)


def _name(handler: Any) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)
