"""What a run has around it: its directory, one run at a time, its signals; and how Spark finds the source."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import pyspark_headwater
from headwater.errors import InvalidSetting, LandingRefused
from headwater.pipeline.surroundings import only_one, settled, stopped_by_signals


def test_an_app_is_run_by_one_process(tmp_path: Path) -> None:
    """The second is told which process has it; afterwards the place is free, and old checkpoints are gone."""
    with only_one(tmp_path, "shop"):
        (tmp_path / "runs" / "old").mkdir(parents=True)
        with pytest.raises(LandingRefused, match=f"run by process {os.getpid()}"), only_one(tmp_path, "shop"):
            pass
    with only_one(tmp_path, "shop"):
        assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_ask_for_an_end_and_are_given_back(number: signal.Signals) -> None:
    """The first one sets the event; what handled it before handles it again afterwards."""
    before = signal.getsignal(number)
    with stopped_by_signals() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
    assert signal.getsignal(number) is before


def test_a_second_interrupt_is_not_swallowed() -> None:
    """Ctrl-C twice ends the program at once; SIGTERM twice is what supervisors do, and changes nothing."""
    with stopped_by_signals():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_settings_say_where_things_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was said, then the environment, then headwater.toml; the catalog's properties pass through."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_DATA", raising=False)
    assert settled(None) == (tmp_path / ".headwater", {})
    (tmp_path / "headwater.toml").write_text('data = "there"\n[catalog]\nuri = "http://rest"\ntype = "rest"\n')
    assert settled(None) == (tmp_path / "there", {"uri": "http://rest", "type": "rest"})
    assert settled("here")[0] == tmp_path / "here"
    (tmp_path / "headwater.toml").write_text("data = ")
    with pytest.raises(InvalidSetting, match=r"headwater\.toml"):
        settled(None)


def test_spark_finds_the_source_by_the_name_of_its_module() -> None:
    """PySpark looks into each pyspark_* module for a DefaultSource, and takes the name it gives itself."""
    assert pyspark_headwater.DefaultSource.name() == "headwater-ranges"
