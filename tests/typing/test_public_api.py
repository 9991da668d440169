from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import headwater

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def test_the_public_face_checks_under_mypy_strict(tmp_path):
    """Models flow from the brackets to what is read; wrong options and wrong values are type errors."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "--cache-dir", str(tmp_path),
         "--follow-imports", "silent", str(HERE / "public_api.py")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_the_public_face_checks_under_pyright(tmp_path):
    """The same file under pyright, in strict mode."""
    settings = {
        "include": ["public_api.py"], "typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": True,
        "enableTypeIgnoreComments": False, "extraPaths": [str(ROOT / "src")], "pythonVersion": "3.11",
        "reportUnusedFunction": False,
    }  # fmt: skip
    (tmp_path / "public_api.py").write_text((HERE / "public_api.py").read_text())
    file = tmp_path / "pyrightconfig.json"
    file.write_text(json.dumps(settings))
    done = subprocess.run(
        [str(Path(sys.executable).parent / "pyright"), "-p", str(file), "--pythonpath", sys.executable],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "No source files" not in done.stdout, done.stdout


def test_every_public_name_is_there():
    """Each name of `__all__` can be looked up, and nothing heavy is imported until one is."""
    for name in headwater.__all__:
        assert getattr(headwater, name) is not None
    assert set(headwater.__all__) <= set(dir(headwater))
    code = "import headwater, sys; print([m for m in sys.modules if m in ('pydantic', 'confluent_kafka')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
