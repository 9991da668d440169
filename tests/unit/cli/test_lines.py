"""Lines of a descriptor, as they come."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from headwater.cli.lines import lines_of
from headwater.errors import RecordTooLarge


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for one in (read, write):
        try:
            os.close(one)
        except OSError:
            continue


async def test_a_line_is_given_as_soon_as_it_is_whole(pipe: tuple[int, int]) -> None:
    """Nothing waits for more input than there is, and a line in two pieces is one line."""
    read, write = pipe
    lines = lines_of(read)
    os.write(write, b"a\nb\nhal")
    assert await anext(lines) == [b"a", b"b"]
    os.write(write, b"f\n")
    assert await anext(lines) == [b"half"]
    os.write(write, b"last")
    os.close(write)
    assert [one async for one in lines] == [[b"last"]]


async def test_waiting_for_a_line_can_be_cancelled(pipe: tuple[int, int]) -> None:
    """A wait for input that does not come is given up at once."""
    waiting = asyncio.ensure_future(anext(lines_of(pipe[0])))
    done, _ = await asyncio.wait({waiting}, timeout=0.01)
    assert not done
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_line_without_end_is_refused(pipe: tuple[int, int]) -> None:
    """Input without line ends is not collected without limit."""
    os.write(pipe[1], b"x" * 100)
    with pytest.raises(RecordTooLarge, match="longer than 50 bytes"):
        await anext(lines_of(pipe[0], bytes_max=50))
