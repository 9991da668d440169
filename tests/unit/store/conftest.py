"""A store over a directory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.store import Store
from tests.unit.store.acts import settings


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(settings(tmp_path / "data"))
    yield opened
    opened.close()
