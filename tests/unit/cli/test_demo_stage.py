"""The demo's stage: its processes end with it, and what fails is shown."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from rich.console import Console

from headwater.cli.demo import play
from headwater.cli.demo.stage import ActFailed, Actor, Stage
from headwater.errors import OperatorError

WITH_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    """Whether the process still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until_dead(pid: int) -> None:
    deadline = time.monotonic() + 10
    while alive(pid):
        assert time.monotonic() < deadline, f"{pid} still runs"
        time.sleep(0.01)


def child_of(stage: Stage, actor: Actor) -> int:
    stage.wait_for(lambda: actor.said().endswith("\n"), 20, actor, "did not start")
    return int(actor.said())


def test_a_kill_takes_the_children_with_it(tmp_path: Path) -> None:
    """SIGKILL goes to the whole group of an actor, as a driver's JVM is in its group."""
    with Stage(tmp_path) as stage:
        actor = stage.start("parent", "-c", WITH_A_CHILD)
        child = child_of(stage, actor)
        actor.kill()
        until_dead(child)
        assert actor.process.returncode == -9


def test_the_stage_leaves_nothing_behind(tmp_path: Path) -> None:
    """Whatever ends an act, its processes and their children end with the stage."""
    with pytest.raises(RuntimeError), Stage(tmp_path) as stage:
        actor = stage.start("parent", "-c", WITH_A_CHILD)
        child = child_of(stage, actor)
        raise RuntimeError
    until_dead(actor.process.pid)
    until_dead(child)


def test_a_failed_actor_shows_the_end_of_its_output(tmp_path: Path) -> None:
    """The error names the file with the output, and carries its last lines."""
    with Stage(tmp_path) as stage:
        actor = stage.start("broken", "-c", "print('all was well'); raise SystemExit('no luck')")
        with pytest.raises(ActFailed) as caught:
            actor.finish(20)
        assert "broken ended with 1" in str(caught.value)
        assert str(tmp_path / "output" / "broken.txt") in str(caught.value)
        assert "no luck" in str(caught.value)
        with pytest.raises(ActFailed, match="never came: it ended with 1"):
            stage.wait_for(lambda: False, 20, actor, "never came")


def test_actors_see_the_stage_and_no_settings_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the demo with HEADWATER_* set gets the same demo."""
    monkeypatch.setenv("HEADWATER_PORT", "1")
    with Stage(tmp_path) as stage:
        show = "import os; print(sorted(k for k in os.environ if k.startswith('HEADWATER_')))"
        assert stage.start("env", "-c", show).finish(20) == "['HEADWATER_URL']\n"


def test_the_demo_empties_only_its_own_directory(tmp_path: Path) -> None:
    """A directory with somebody's work is refused and left as it is."""
    (tmp_path / "work.txt").write_text("mine")
    with pytest.raises(OperatorError, match="--dir"):
        play(tmp_path, Console())
    assert list(tmp_path.iterdir()) == [tmp_path / "work.txt"]
