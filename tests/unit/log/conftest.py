from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.log import Flusher
from headwater.testing.files import FaultyFiles
from tests.unit.log.logs import flushing


@pytest.fixture
def flusher() -> Iterator[Flusher]:
    with flushing() as running:
        yield running


@pytest.fixture
def idle() -> Flusher:
    """A flusher that was never started: nothing is flushed but what a test flushes."""
    return Flusher()


@pytest.fixture
def disk() -> FaultyFiles:
    return FaultyFiles()
