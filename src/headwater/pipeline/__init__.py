"""Streams into tables, on Spark.

Landing goes through these files: `source.py` (ranges of offsets, on the driver), `landing.py` (tasks write files, the
driver commits), `standing.py` (tokens against the log, at start), and `app.py`, which runs it all for an app's file.
The names here are loaded when they are used: PySpark imports this package in every worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.pipeline.app import Outcome, Progress, run
    from headwater.pipeline.spark import session

__all__ = ["Outcome", "Progress", "run", "session"]

_HOMES = {"Outcome": "app", "Progress": "app", "run": "app", "session": "spark"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"headwater.pipeline has no {name!r}")
    return getattr(import_module(f"headwater.pipeline.{_HOMES[name]}"), name)
