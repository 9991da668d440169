"""A Spark session with the settings that Headwater needs, on any machine with Python.

What is always set, and why: the workers run this very Python (else the first `python3` on PATH); nothing listens beyond
loopback and there is no web page (Spark's defaults listen on all addresses); `local[N, 4]`, since plain `local[N]` never
tries a task again; UTC and microseconds, as Iceberg has them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headwater.config import SPARK_HEAP, SPARK_TASK_ATTEMPTS
from headwater.errors import LandingFailed
from headwater.pipeline.java import find_java
from headwater.pipeline.source import RangeSource


def session(
    name: str = "headwater",
    *,
    cores: int | None = None,
    heap: str = SPARK_HEAP,
    config: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """The Spark session of this process: the one that runs, or a new one on `cores` cores (default: all).

    `config` adds to the settings, or overrides them. `log` takes what Java and the workers write; without it they write
    to stderr. Takes 4 to 6 seconds; raises `NotInstalled` when there is no Java for it.
    """
    if is_running():
        running = SparkSession.builder.getOrCreate()
    else:
        running = _start(_settings(name, cores or available_cores(), heap, config or {}), log)
        running.sparkContext.setLogLevel("ERROR")
    running.dataSource.register(RangeSource)
    return running


def is_running() -> bool:
    """Whether this process has a session. (`getActiveSession` knows only those of its own thread.)"""
    return SparkContext._active_spark_context is not None  # noqa: SLF001  PySpark has no public word for it


def available_cores() -> int:
    """Those this process may use: a container often has fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _settings(name: str, cores: int, heap: str, config: Mapping[str, str]) -> SparkConf:
    settings = {
        "spark.app.name": name,
        "spark.master": f"local[{cores},{SPARK_TASK_ATTEMPTS}]",
        "spark.driver.memory": heap,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": "zstd",
        **config,
    }
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


def _start(settings: SparkConf, log: Path | None) -> SparkSession:
    os.environ["JAVA_HOME"] = str(find_java(os.environ).home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # A session of its own for Java: Ctrl-C in a terminal and a supervisor's SIGTERM to the group are for the driver,
    # which finishes its batch first. Java ends by itself when the driver is gone (its stdin closes).
    apart: dict[str, Any] = {"start_new_session": True}
    try:
        if log is None:
            gateway = launch_gateway(settings, apart)
        else:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("wb") as out:
                gateway = launch_gateway(settings, {**apart, "stdout": out, "stderr": out})
    except PySparkRuntimeError as error:
        raise LandingFailed(f"Spark did not start: {_last_words(log) or error}") from None
    SparkContext(conf=settings, gateway=gateway)
    return SparkSession.builder.getOrCreate()


def _last_words(log: Path | None) -> str:
    """PySpark says only that its gateway exited; why, Java wrote to its stderr."""
    lines = log.read_text(errors="replace").strip().splitlines() if log is not None else []
    why = next((line for line in lines if "rror" in line or "xception" in line), lines[-1] if lines else "")
    return f"{why} (see {log})" if why else ""
