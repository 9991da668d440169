# ruff: noqa: SLF001  librdkafka's own codes begin with an underscore
"""The border to librdkafka: the options every client gets, and its errors as ours, mapped once.

Options that were measured or that prevent a silent wrong: `fetch.queue.backoff.ms` (its default of a second costs four
fifths of the reading speed), `check.crcs` (librdkafka trusts the network otherwise), `allow.auto.create.topics=false`
(a typing error must not become a stream), `auto.offset.reset=error` (lost records are never skipped in silence).
"""

from __future__ import annotations

import asyncio
import logging
import operator
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message

from headwater.config import (
    SDK_ANSWER_SECONDS,
    SDK_FETCH_BACKOFF_MS,
    SDK_GONE_MS,
    SDK_HEARTBEAT_MS,
    SDK_LINGER_MS,
    SDK_PUBLISH_SECONDS,
    SDK_QUEUED_KBYTES,
    SDK_QUEUED_RECORDS,
    SDK_RECONNECT_MS,
    SDK_RECORD_BYTES_MAX,
    SDK_SESSION_MS,
)
from headwater.errors import (
    CallerError,
    ConnectionFailed,
    CorruptBatch,
    GroupKindMismatch,
    HeadwaterError,
    InvalidOption,
    InvalidValue,
    OutOfOrderSequence,
    RecordTooLarge,
    StreamNotFound,
    WireError,
)

R = TypeVar("R")
C = TypeVar("C")

library_log = logging.getLogger("headwater.librdkafka")  # else each refused connection is written to stderr
library_log.addHandler(logging.NullHandler())

MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
AWAY = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,  # right after a start or a create the leader may not know itself
    }
)
# The group went on without this member, or is between two generations: what it commits now counts for nobody.
FENCED = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._ASSIGNMENT_LOST,
    }
)

FATAL = frozenset(  # trying again would not help
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.GROUP_MAX_SIZE_REACHED,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._AUTHENTICATION,
        KafkaError._BAD_MSG,
    }
)


def client_options(address: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What every librdkafka client gets; `given` is what the program said in `connect(kafka={...})`, and wins."""
    return {
        "client.id": "headwater",
        "allow.auto.create.topics": False,
        "reconnect.backoff.ms": SDK_RECONNECT_MS,
        "reconnect.backoff.max.ms": SDK_RECONNECT_MS * 5,
        "socket.nagle.disable": True,
        "enable.metrics.push": False,
        "log.connection.close": False,
        "logger": library_log,
        **given,
        "bootstrap.servers": address,
    }


def writer_options(address: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "enable.idempotence": True,
        "topic.metadata.propagation.max.ms": SDK_GONE_MS,
        "message.timeout.ms": round(SDK_PUBLISH_SECONDS * 1000),
        "linger.ms": SDK_LINGER_MS,
        "queue.buffering.max.messages": SDK_QUEUED_RECORDS,
        "queue.buffering.max.kbytes": SDK_QUEUED_KBYTES,
        "message.max.bytes": SDK_RECORD_BYTES_MAX,
        **client_options(address, given),
    }


def reader_options(address: str, given: Mapping[str, Any], group: str) -> dict[str, Any]:
    return {
        "session.timeout.ms": SDK_SESSION_MS,
        "heartbeat.interval.ms": SDK_HEARTBEAT_MS,
        "fetch.queue.backoff.ms": SDK_FETCH_BACKOFF_MS,
        "check.crcs": True,
        **client_options(address, given),
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }


def made(kind: Callable[[dict[str, Any]], C], options: dict[str, Any]) -> C:
    """A librdkafka client; an option that it does not know is the program's error."""
    for name, value in options.items():
        if not (isinstance(name, str) and travels(name) and (not isinstance(value, str) or travels(value))):
            raise InvalidOption(
                f"cannot connect: {name!r}: {value!r:.200} is no option of the Kafka client{_CHECK_OPTIONS}"
            )
    try:
        return kind(options)
    except KafkaException as error:
        raise mapped(error.args[0], "connect") from None
    except (TypeError, ValueError) as error:
        raise InvalidOption(f"cannot connect: {error}{_CHECK_OPTIONS}") from None


def travels(text: str) -> bool:
    """Whether the library takes `text` as it is: it cuts at a zero, and crashes at what UTF-8 cannot carry."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def refuse_reserved(given: Mapping[str, Any]) -> None:
    """Options that the SDK decides: passing them through would take its promises away."""
    for name in ("bootstrap.servers", "group.id", "enable.auto.commit", "enable.auto.offset.store", "isolation.level",
                 "auto.offset.reset", "allow.auto.create.topics", "partition.assignment.strategy", "group.protocol", "on_delivery", "on_commit"):  # fmt: skip
        if name in given:
            raise InvalidOption(f"kafka={{{name!r}: ...}}: the SDK decides this itself: leave it out")


async def answered(future: Future[R], doing: str, *, stream: str = "", seconds: float = SDK_ANSWER_SECONDS) -> R:
    """What the server answers, its refusal as an error of ours. Cancelling forgets the answer.

    Not `wait_for`: on Python 3.11 it forgets a cancellation (a Ctrl-C, say) that comes together with the answer.
    """
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.wrap_future(future)
    except KafkaException as error:
        raise mapped(error.args[0], doing, stream) from None
    except TimeoutError:
        raise unreachable(doing, f"no answer within {seconds:g} s") from None


async def in_thread(doing: str, call: Awaitable[R]) -> R:
    """A blocking call of librdkafka that runs in a thread, with its errors as ours."""
    try:
        return await call
    except KafkaException as error:
        raise mapped(error.args[0], doing) from None


async def persist(attempt: Callable[[], Awaitable[R]], seconds: float = SDK_ANSWER_SECONDS) -> R:
    """Asks again while the server is coming up or moving its leaders, which it is for an instant after many a change."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await attempt()
        except ConnectionFailed:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(SDK_RECONNECT_MS / 1000)


def headers_of(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """A record's headers; an error that names its place when a name is no UTF-8, where the library says SystemError."""
    try:
        headers = _headers(message)
    except (SystemError, UnicodeDecodeError):
        raise InvalidValue(
            f"a record of stream {message.topic()!r} has a header whose name is not UTF-8 (partition "
            f"{message.partition()}, offset {message.offset()}): this client cannot read it"
        ) from None
    return tuple(headers or ())


# The binding returns a list and an error at once. A plain call that Python has specialised does not look for the error,
# which then comes up anywhere later; called by way of `methodcaller`, it is raised there and then.
_headers = operator.methodcaller("headers")


def time_of(ms: int) -> datetime:
    """A record's time; what a foreign client made of years that a datetime has not becomes the nearest it has."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return _LAST if ms > 0 else _FIRST


_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def mapped(error: KafkaError, doing: str, stream: str = "") -> HeadwaterError:
    """`error` as one of ours; `doing` says what failed, as in "publish to stream 'orders'"."""
    code, said = error.code(), error.str().strip()
    if code in MISSING:
        return not_found(stream) if stream else StreamNotFound(f"cannot {doing}: {said}")
    if code in AWAY:
        return unreachable(doing, said)
    refusal, hint = _MEANINGS.get(code) or (_REFUSALS.get(code, CallerError), "")
    return refusal(f"cannot {doing}: {said}{hint}")


def not_found(stream: str) -> StreamNotFound:
    return StreamNotFound(
        f"there is no stream {stream!r}: make it with `await stream.create()`, or `headwater stream create {stream}`"
    )


def unreachable(doing: str, why: str) -> ConnectionFailed:
    return ConnectionFailed(f"cannot {doing}: the server does not answer ({why}): is it running at this address?")


def _refusals(root: type[WireError]) -> dict[int, type[WireError]]:
    found = {one.code: one for one in root.__subclasses__()}
    for one in root.__subclasses__():
        found |= _refusals(one)
    return found


_REFUSALS = _refusals(WireError)
_OTHER_KIND = (
    ": the name belongs to a group of another kind, or its members assign partitions in another way: take another name"
)
_GIVEN_UP = ": the client was closed, or its server moved, before it was acknowledged"
_LOG_LOST = ": the log lost records that were acknowledged before, or another program writes as this one: publish again"
_CHECK_OPTIONS = ": check the options in kafka={...}"
_MEANINGS: dict[int, tuple[type[HeadwaterError], str]] = {
    KafkaError.MSG_SIZE_TOO_LARGE: (RecordTooLarge, ": make it smaller, or raise the stream's max.message.bytes"),
    KafkaError._BAD_MSG: (CorruptBatch, ": the bytes that arrived contradict their checksum"),
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: (GroupKindMismatch, _OTHER_KIND),
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER: (OutOfOrderSequence, _LOG_LOST),
    KafkaError._FATAL: (OutOfOrderSequence, _LOG_LOST),
    KafkaError._PURGE_QUEUE: (ConnectionFailed, _GIVEN_UP),
    KafkaError._PURGE_INFLIGHT: (ConnectionFailed, f"{_GIVEN_UP}: whether it was written is not known"),
    KafkaError._AUTHENTICATION: (ConnectionFailed, _CHECK_OPTIONS),
    KafkaError._SSL: (ConnectionFailed, _CHECK_OPTIONS),
    KafkaError._INVALID_ARG: (InvalidOption, _CHECK_OPTIONS),
}
