"""An app's file: which streams it declares, what is refused before anything is started, how its models travel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from headwater.errors import InvalidSetting, LandingRefused
from headwater.pipeline.program import load_program

APP = """
from pydantic import BaseModel
from headwater.sdk.declare import Stream, Table

class Part(BaseModel):
    id: str

class Event(BaseModel):
    id: str
    part: Part | None = None

"""


def an_app(directory: Path, *lines: str, name: str = "app.py") -> Path:
    path = directory / name
    path.write_text(APP + "\n".join(lines) + "\n")
    return path


def test_only_its_own_streams_with_a_destination_are_landed(tmp_path: Path) -> None:
    """Streams of an app loaded before, and streams without a table, are not this app's business."""
    load_program(an_app(tmp_path, 'a = Stream[Event]("first", destination=Table[Event]("t"))', name="one.py"))
    path = an_app(
        tmp_path,
        'plain = Stream[Event]("plain")',
        'b = Stream[Event]("second", destination=Table[Event]("t"))',
        name="two.py",
    )
    program = load_program(path)
    assert program.name == "two"
    assert [stream.name for stream in program.streams] == ["second"]
    assert load_program(path, "other").name == "other"


def test_an_app_may_be_called_like_a_module(tmp_path: Path) -> None:
    """`json.py` is an app like any other, and json stays json."""
    import json

    path = an_app(tmp_path, 'a = Stream[Event]("s", destination=Table[Event]("t"))', name="json.py")
    assert load_program(path).name == "json"
    assert sys.modules["json"] is json


def test_modules_beside_an_app_are_found(tmp_path: Path) -> None:
    """A stream declared in a module that lies beside the app belongs to it."""
    an_app(tmp_path, 'a = Stream[Event]("beside", destination=Table[Event]("t"))', name="shop_models.py")
    path = tmp_path / "main.py"
    path.write_text("from shop_models import a\n")
    assert [stream.name for stream in load_program(path).streams] == ["beside"]
    assert [stream.name for stream in load_program(path, "again").streams] == ["beside"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("x = = 1", "broken.py, line 1: SyntaxError: invalid syntax"),
        ("import nowhere_at_all", "broken.py, line 1: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("def f():\n    return 1 / 0\nf()", "broken.py, line 2: ZeroDivisionError: division by zero"),
        ("raise KeyError", "broken.py, line 1: KeyError"),
        ("import broken_beside", "broken_beside.py, line 2: NameError: name 'nobody' is not defined"),
    ],
)
def test_an_app_that_does_not_load_is_told_its_line(tmp_path: Path, lines: str, said: str) -> None:
    """What is wrong with somebody's file is said as file, line and error, in one line; Python's trace is the cause."""
    (tmp_path / "broken_beside.py").write_text("\nnobody\n")
    path = tmp_path / "broken.py"
    path.write_text(lines)
    with pytest.raises(InvalidSetting) as refused:
        load_program(path)
    assert str(refused.value) == f"{said}: correct it, then run it again"
    assert refused.value.__cause__ is not None


def test_a_stream_lands_in_one_table(tmp_path: Path) -> None:
    """Two declarations of one stream with different tables are refused; none is dropped in silence."""
    path = an_app(
        tmp_path,
        'a = Stream[Event]("twice_declared", destination=Table[Event]("one_table"))',
        'b = Stream[Event]("twice_declared", destination=Table[Event]("another_table"))',
    )
    with pytest.raises(LandingRefused, match=r"twice_declared twice, .*one_table.* and as .*another_table"):
        load_program(path)


def test_an_app_that_its_own_modules_import_is_one_app(tmp_path: Path) -> None:
    """A module beside the app that imports the app runs its file a second time: the same declarations, not others."""
    (tmp_path / "imports_back.py").write_text("def later():\n    import circular_app\n    return circular_app.a\n")
    path = an_app(
        tmp_path,
        'a = Stream[Event]("circular", destination=Table[Event]("t"))',
        "import imports_back",
        'if __name__ != "circular_app":',
        "    imports_back.later()",
        name="circular_app.py",
    )
    assert [stream.name for stream in load_program(path).streams] == ["circular"]


def test_a_model_travels_without_its_file(tmp_path: Path) -> None:
    """A worker unpickles the model by value: another process, where the app's file is not known, validates with it."""
    path = an_app(tmp_path, 'a = Stream[Event]("s", destination=Table[Event]("t"))')
    (stream,) = load_program(path).streams
    pickled = tmp_path / "model.pickle"
    pickled.write_bytes(cloudpickle.dumps(stream.model))
    path.unlink()
    program = (
        f"import cloudpickle, pathlib; model = cloudpickle.loads(pathlib.Path({str(pickled)!r}).read_bytes());"
        'print(model.model_validate_json(b\'{"id": "a", "part": {"id": "b"}}\').part.id)'
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == "b"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (('x = Stream[Event]("a")',), "declares no stream that lands"),
        (
            (
                'x = Stream[Event]("a.b", destination=Table[Event]("t"))',
                'y = Stream[Event]("a-b", destination=Table[Event]("u"))',
            ),
            "a_b_dead_letters",
        ),
        (
            (
                'x = Stream[Event]("a", destination=Table[Event]("t"))',
                'y = Stream[Event]("b", destination=Table[Event]("a_dead_letters"))',
            ),
            "rename the table",
        ),
    ],
)
def test_what_cannot_be_landed_is_refused_before_anything_starts(
    tmp_path: Path, lines: tuple[str, ...], said: str
) -> None:
    """No stream, or two that would share a table of dead letters."""
    with pytest.raises((InvalidSetting, LandingRefused), match=said):
        load_program(an_app(tmp_path, *lines))


def test_two_streams_may_share_a_table(tmp_path: Path) -> None:
    """Tokens are by stream id, so one table takes several streams."""
    path = an_app(
        tmp_path,
        'x = Stream[Event]("a", destination=Table[Event]("t"))',
        'y = Stream[Event]("b", destination=Table[Event]("t"))',
    )
    assert len(load_program(path).streams) == 2


def test_an_app_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A path that leads nowhere, and a name that cannot be a directory."""
    with pytest.raises(InvalidSetting, match=r"nowhere\.py"):
        load_program(tmp_path / "nowhere.py")
    path = an_app(tmp_path, 'a = Stream[Event]("s", destination=Table[Event]("t"))', name="an app.py")
    with pytest.raises(InvalidSetting, match="--name"):
        load_program(path)
