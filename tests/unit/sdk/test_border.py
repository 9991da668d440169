from __future__ import annotations

import asyncio
from concurrent.futures import Future
from datetime import UTC, datetime

import pytest
from confluent_kafka import KafkaError

from headwater.errors import ConnectionFailed, HeadwaterError
from headwater.sdk.border import answered, mapped, time_of


def test_every_error_of_the_library_is_one_of_ours():
    """Each code that librdkafka has becomes a HeadwaterError in one line, which says what failed."""
    codes = [code for name in dir(KafkaError) if name.isupper() and isinstance(code := getattr(KafkaError, name), int)]
    assert len(codes) > 100
    for code in codes:
        for stream in ("", "orders"):
            error = mapped(KafkaError(code), "do it", stream)
            assert isinstance(error, HeadwaterError)
            assert "\n" not in str(error)
            assert "do it" in str(error) or "create()" in str(error)
    assert isinstance(mapped(KafkaError(KafkaError._TRANSPORT), "do it"), ConnectionFailed)


async def test_a_cancellation_that_comes_with_the_answer_is_not_lost():
    """A Ctrl-C in the very moment in which the server answers still ends what waits."""
    answer: Future[int] = Future()
    waiting = asyncio.create_task(answered(answer, "do it"))
    for _ in range(3):
        await asyncio.sleep(0)
    answer.set_result(1)
    asyncio.get_running_loop().call_soon(waiting.cancel)
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_times_that_no_datetime_can_say():
    """Milliseconds of other ages become the nearest that there is, and do not stop a reader."""
    assert time_of(1_700_000_000_123) == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert time_of(2**62) == datetime.max.replace(tzinfo=UTC)
    assert time_of(-(2**62)) == datetime.min.replace(tzinfo=UTC)
