from pathlib import Path

import pytest

from tests.unit.lake.models import Lake, small


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, small())
