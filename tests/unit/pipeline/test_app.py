"""Plan after plan: which failures a new plan answers, and when a run gives up."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from headwater.config import LAND_PLANS_MAX
from headwater.errors import ConnectionFailed, HeadwaterError, PartitionSilent, RecordsLost
from headwater.pipeline import app
from headwater.pipeline.app import Progress, Run
from headwater.pipeline.attachment import Attachment
from headwater.pipeline.program import Program
from headwater.sdk.ranges import StreamFacts


class Planned(Run):
    """A run whose plans end as they are told to, without Spark or a server."""

    def __init__(self, ends: list[HeadwaterError | None]) -> None:
        self.ends, self.said = ends, list[Progress]()
        super().__init__(
            Program(name="app", directory=".", streams=()), Attachment(None, {}, Path()), None, {}, Future(), Path(),
            stop=threading.Event(), say=self.said.append,
        )  # fmt: skip

    def _facts(self) -> dict[str, StreamFacts] | None:
        return {}

    def _one_plan(self, facts: Mapping[str, StreamFacts], *, once: bool) -> bool:
        end = self.ends.pop(0)
        if end is not None:
            raise end
        return True


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between plans, and each plan lives long enough to be no sign of going round in circles."""
    monkeypatch.setattr(app, "LAND_TRIGGER_SECONDS", 0.0)
    monkeypatch.setattr(app, "LAND_PLAN_SECONDS", -1.0)


def test_a_partition_that_gives_nothing_ends_the_run() -> None:
    """Each plan waits long for it; that is no progress, or a damaged disk would keep a run silent for ever."""
    run = Planned([PartitionSilent("s/0 gave no record")] * 100)
    with pytest.raises(PartitionSilent):
        run.until_done(once=True)
    assert len(run.ends) == 100 - LAND_PLANS_MAX
    assert [one.text for one in run.said] == ["s/0 gave no record"] * (LAND_PLANS_MAX - 1)


@pytest.mark.parametrize("error", [ConnectionFailed("away"), RecordsLost("cut")], ids=str)
def test_what_a_new_plan_answers_does_not_end_a_run_that_lives(error: Any) -> None:
    """A server that restarts once a day ends no landing, however quiet its streams are."""
    run = Planned([error] * (LAND_PLANS_MAX * 3) + [None])
    assert run.until_done(once=True).drained
    assert (run.said == []) == isinstance(error, ConnectionFailed)
