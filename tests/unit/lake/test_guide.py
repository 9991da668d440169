from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path

from headwater.lake.tables import FACTS, FIDELITY
from tests.unit.lake.models import Lake, Polled

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "tables.md"
ORDER = {"id": "a", "country": "DE", "placed": "2026-01-01T00:00:00Z", "lines": []}


def test_the_guide_runs(tmp_path, monkeypatch, capsys):
    """The Python of the guide runs as it stands, in the order of the page, on what it says has landed."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", module)
    declared, *rest = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    exec(declared, module.__dict__)
    lake = Lake(tmp_path / ".headwater", module.orders)
    lake.land([Polled(0, json.dumps(ORDER).encode()), Polled(1, b"{}")])
    for block in rest:
        exec(block, module.__dict__)
    assert capsys.readouterr().out == "1 ValidationError b'{}'\n"
    assert module.german.column("id").to_pylist() == ["a"]


def test_the_guide_names_every_column_of_ours():
    """Each fidelity column and each fact of a dead letter stands in the guide."""
    text = GUIDE.read_text()
    assert [one.name for one in (*FIDELITY, *FACTS) if f"`{one.name}`" not in text] == []
