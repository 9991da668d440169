"""Real clients against a live server: ours, or with TARGET=kafka a real Apache Kafka, where each test passes first."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.sdk.live import TARGET, Started, start

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker("only_headwater")
        if mark is not None and TARGET != "headwater":
            assert mark.args, f"{item.name}: only_headwater wants its reason"
            item.add_marker(pytest.mark.skip(reason=f"only Headwater: {mark.args[0]}"))


class Victim:
    """A server of one test alone, which may be killed, and comes back at its address."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._running: Started = start(TARGET, data)
        self.address = self._running.address

    def kill(self) -> None:
        self._running.kill()

    def come_back(self) -> None:
        self._running = start(TARGET, self._data, "--port", self.address.rpartition(":")[2])

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._running.kill()
        if self._running.process.stdout is not None:
            self._running.process.stdout.close()


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = Victim(Path(tmp_path_factory.mktemp("server")) / "data")
    yield server.address
    server.end()


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    server = Victim(tmp_path / "data")
    yield server
    server.end()


@pytest.fixture
def name() -> str:
    """A stream's name that nobody used before."""
    return f"t{next(_numbers)}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def create(address: str) -> Callable[..., None]:
    def create(name: str, partitions: int = 1, *, at: str = address, **config: str) -> None:
        admin = AdminClient({"bootstrap.servers": at})
        configs = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=configs)])[name].result(30)

    return create
