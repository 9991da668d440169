from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.acked import Killable


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Killable]:
    """Runs, on an empty directory; a test may kill it as it likes."""
    one = Killable(tmp_path / "data")
    one.start()
    yield one
    one.end()
