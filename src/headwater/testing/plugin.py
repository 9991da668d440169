"""The pytest fixture `headwater_broker`: a broker of its own for the test that asks, ready in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def headwater_broker() -> Iterator[Any]:
    """A running broker on a free port; `.address` is what clients connect to. Ends, with its data, after the test."""
    from headwater.testing import broker  # imported late: a plugin must cost nobody anything

    with broker() as server:
        yield server
