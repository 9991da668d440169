from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import headwater
from tests.sdk.live import TARGET, server

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker("only_headwater")
        if mark is not None and TARGET != "headwater":
            assert mark.args, f"{item.name}: only_headwater wants its reason"
            item.add_marker(pytest.mark.skip(reason=f"only Headwater: {mark.args[0]}"))


@pytest.fixture(autouse=True)
def no_address_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server that the tests run on: ours, or with TARGET=kafka a real Kafka."""
    with server(TARGET, Path(tmp_path_factory.mktemp("data")) / "log") as where:
        yield where


@pytest.fixture
async def hw(address: str) -> AsyncIterator[headwater.Client]:
    async with headwater.connect(address) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A stream's name that nobody used before."""
    return f"t{next(_numbers)}-{uuid.uuid4().hex[:8]}"
