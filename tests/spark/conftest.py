"""One Spark session and one server for all tests here: a session takes five seconds to start, a landing one or two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.pipeline import session
from tests.spark.ground import ON_KAFKA, ServerProcess, Writer

APP = """
from pydantic import BaseModel

from headwater.sdk.declare import Key, Stream, Table


class Order(BaseModel):
    id: Key[str]
    total: float
    tags: list[str] = []


{streams}
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker("only_headwater")
        if mark is not None and ON_KAFKA:
            item.add_marker(pytest.mark.skip(reason=str(mark.args[0])))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session that `run` finds, and therefore leaves alone."""
    running = session(log=tmp_path_factory.mktemp("spark") / "spark.log")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("server") / "data")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def writer(server: ServerProcess) -> Writer:
    return Writer(server)


@pytest.fixture
def app(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """An app of one stream of its own, named after the test."""
    return write_app(tmp_path, stream_of(request.node.name))


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    return stream_of(request.node.name)


def stream_of(test: str) -> str:
    return test.removeprefix("test_")[:40].strip("_")


def write_app(directory: Path, *streams: str, partitions: int = 2) -> Path:
    """An app file; each stream lands in the table of its name."""
    lines = [
        f'{name} = Stream[Order]("{name}", destination=Table[Order]("{name}"), partitions={partitions})'
        for name in streams
    ]
    path = directory / "shop.py"
    path.write_text(APP.format(streams="\n".join(lines)))
    return path
