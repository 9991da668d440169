"""`headwater run app.py`: lands the streams of an app in their tables, continuously or until they are drained.

A run is a sequence of plans. Each plan holds the tokens against the log and starts one Spark query from there, in a
checkpoint directory of its own that nobody reads again. A query that fails because the log changed under it (a cut, a
stream deleted, a server gone for a while) is followed by a new plan, which finds out what is true now; other failures end
the run with one line. What a kill interrupts is only files that no table names.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from headwater import errors
from headwater.config import (
    LAND_ASK_SECONDS,
    LAND_AWAY_SECONDS,
    LAND_LOOK_SECONDS,
    LAND_PLAN_SECONDS,
    LAND_PLANS_MAX,
    LAND_TRIGGER_SECONDS,
)
from headwater.errors import (
    AlreadyLanded,
    ConnectionFailed,
    HeadwaterError,
    LandingFailed,
    PartitionSilent,
    RecordsLost,
    StreamNotFound,
)
from headwater.lake import Target, ensure_targets, open_catalog
from headwater.pipeline.attachment import Attachment
from headwater.pipeline.landing import BatchLanded, Lander, StreamLanding
from headwater.pipeline.program import Program, load_program
from headwater.pipeline.source import FORMAT, SourcePlan
from headwater.pipeline.spark import available_cores
from headwater.pipeline.standing import held_against_the_log
from headwater.pipeline.surroundings import only_one, settled, started_spark, stopped_by_signals
from headwater.sdk.ranges import RangeAdmin, StreamFacts

# What a new plan can answer: the log is not what the plan said, or the server was away.
_PLAN_ANEW = (RecordsLost, StreamNotFound, ConnectionFailed, AlreadyLanded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One thing that happened in a run: `text` for people (and `str`), the rest for programs."""

    kind: Literal["ready", "moved", "waiting", "missing", "planned anew", "landed", "warning"]
    text: str
    stream: str = ""
    records: int = 0
    dead_letters: int = 0

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run brought into the tables, by stream."""

    records: Mapping[str, int]
    dead_letters: Mapping[str, int]
    drained: bool  # false when it was asked to stop


def run(
    path: str | Path,
    *,
    once: bool = False,
    name: str | None = None,
    server: str | None = None,
    kafka: Mapping[str, Any] | None = None,
    data: str | Path | None = None,
    say: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Lands the streams that the file at `path` declares, until stopped.

    With `once` it ends when all is landed that was there at the start. SIGTERM and Ctrl-C finish the batch in hand.
    `server` is any Kafka address; without it the broker of the data directory, started if need be. Tables and Spark's
    own files lie under `data`, or where the settings say; the catalog is what `[catalog]` of headwater.toml says.
    Raises a `HeadwaterError` whose text is for people.
    """
    program = load_program(path, name)
    home, catalog = settled(data)
    directory = home / "pipelines" / program.name
    tables = open_catalog(catalog, home)  # first: what is wrong with it is told at once, and not after Spark's start
    with (
        only_one(directory, program.name),
        stopped_by_signals() as stop,
        started_spark(program.name, directory) as spark,
        Attachment(server, kafka or {}, home) as attached,
    ):
        attached.create(program.streams)
        targets = {str(stream.name): ensure_targets(tables, stream) for stream in program.streams}
        running = Run(program, attached, tables, targets, spark, directory, stop=stop, say=say or _silent)
        return running.until_done(once=once)


class Run:
    """One run of an app: plan after plan, until it is drained, stopped, or cannot go on."""

    def __init__(
        self,
        program: Program,
        attached: Attachment,
        catalog: Any,
        targets: Mapping[str, Sequence[Target]],
        spark: Future[Any],
        directory: Path,
        *,
        stop: threading.Event,
        say: Callable[[Progress], None],
    ) -> None:
        self._program, self._attached, self._catalog, self._targets = program, attached, catalog, targets
        self._spark, self._directory, self._stop, self._told = spark, directory, stop, say
        self._models = {str(stream.name): stream.model for stream in program.streams}
        self._records = dict.fromkeys(self._models, 0)
        self._dead_letters = dict(self._records)
        self._batches_count = 0
        self._missing: set[str] = set()
        self._warned = False

    def until_done(self, *, once: bool) -> Outcome:
        fruitless = 0
        while not self._stop.is_set():
            facts = self._facts()
            if facts is None:
                break
            before, begun = self._batches_count, time.monotonic()
            try:
                if self._one_plan(facts, once=once):
                    break
            except _PLAN_ANEW as error:
                silent = isinstance(error, PartitionSilent)  # that takes long, each time: no sign of life
                lived = not silent and time.monotonic() - begun > LAND_PLAN_SECONDS
                fruitless = 0 if lived or self._batches_count > before else fruitless + 1
                if fruitless >= LAND_PLANS_MAX:
                    raise
                if silent or not isinstance(error, ConnectionFailed):  # of that one `_facts` tells, if it lasts
                    self._say("planned anew", str(error))
                self._stop.wait(LAND_TRIGGER_SECONDS * fruitless)
        return Outcome(records=self._records, dead_letters=self._dead_letters, drained=not self._stop.is_set())

    def _one_plan(self, facts: Mapping[str, StreamFacts], *, once: bool) -> bool:
        """True when there is nothing left to do: drained, or told to stop."""
        if not facts:
            return once or self._stop.wait(LAND_TRIGGER_SECONDS)  # every stream is gone: wait for one to come back
        client = self._attached.client
        landings, moved = held_against_the_log(
            client, self._catalog, [(self._targets[name], self._models[name], one) for name, one in facts.items()]
        )
        for one in moved:
            self._say("moved", str(one), stream=one.stream)
        spark = self._spark.result()
        lander = Lander(
            client, self._catalog, landings, run=uuid4().hex[:8], path=self._program.directory, landed=self._landed
        )
        lander.tell_all_cursors()
        checkpoint = self._directory / "runs" / uuid4().hex[:12]
        try:
            self._query(spark, lander, self._plan(client, landings), checkpoint, once=once)
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
        return True

    def _facts(self) -> dict[str, StreamFacts] | None:
        """The app's streams that are there. Waits for a server that is away; None when stopped meanwhile."""
        names = list(self._models)
        deadline = time.monotonic() + LAND_AWAY_SECONDS
        told = False
        while not self._stop.is_set():
            try:
                facts = RangeAdmin(self._attached.client, LAND_ASK_SECONDS).streams(names)
            except ConnectionFailed as error:
                if time.monotonic() > deadline:
                    raise ConnectionFailed(
                        f"{self._address()} has not answered for {LAND_AWAY_SECONDS:g} s ({error}). What has landed is "
                        "safe: start the server and run this again, it goes on where it was"
                    ) from None
                if not told:
                    self._say("waiting", f"{self._address()} does not answer: waiting for it")
                told = True
                continue
            self._tell_missing(set(names) - set(facts))
            if any(not one.id_is_known for one in facts.values()) and not self._warned:
                self._say("warning", "this server has no stream ids: a stream that is created again is not noticed")
                self._warned = True
            return facts
        return None

    def _address(self) -> str:
        return str(self._attached.client["bootstrap.servers"])

    def _tell_missing(self, missing: set[str]) -> None:
        for name in sorted(missing - self._missing):
            self._say("missing", f"the stream {name} was deleted: it lands again once it is created", stream=name)
        self._missing = missing

    def _plan(self, client: Mapping[str, Any], landings: Sequence[StreamLanding]) -> str:
        return SourcePlan(
            client=client,
            stream_ids={one.name: one.stream_id for one in landings},
            missing=sorted(self._missing),
            positions={one.name: {str(at): one.position(at).end for at in one.starts} for one in landings},
            cores=available_cores(),
        ).to_json()

    def _query(self, spark: Any, lander: Lander, plan: str, checkpoint: Path, *, once: bool) -> None:
        try:
            query = self._start(spark, lander, plan, checkpoint, once=once)
            self._say("ready", f"landing {', '.join(self._models)}")
            while query.isActive:
                if self._stop.wait(LAND_LOOK_SECONDS):
                    lander.finish()
                    query.stop()
            failed = query.exception()
        except Exception as error:  # noqa: BLE001  Java may be gone: PySpark has many words for that, mapped below
            failed = error
        failed = lander.failure or (None if self._stop.is_set() else failed)
        if failed is not None:
            raise in_one_line(failed)

    def _start(self, spark: Any, lander: Lander, plan: str, checkpoint: Path, *, once: bool) -> Any:
        trigger: dict[str, Any] = (
            {"availableNow": True} if once else {"processingTime": f"{LAND_TRIGGER_SECONDS} seconds"}
        )
        return (
            spark.readStream.format(FORMAT)
            .option("plan", plan)
            .load()
            .writeStream.foreachBatch(lander)
            .queryName(self._program.name)
            .option("checkpointLocation", checkpoint.as_uri())
            .trigger(**trigger)
            .start()
        )

    def _landed(self, batch: BatchLanded) -> None:
        self._batches_count += 1
        self._records[batch.stream] += batch.records
        self._dead_letters[batch.stream] += batch.dead_letters
        letters = f", {_counted(batch.dead_letters, 'dead letter')}" if batch.dead_letters else ""
        self._told(
            Progress(
                kind="landed",
                text=f"{batch.stream}: {_counted(batch.records, 'record')} landed{letters}",
                stream=batch.stream,
                records=batch.records,
                dead_letters=batch.dead_letters,
            )
        )

    def _say(self, kind: Any, text: str, *, stream: str = "") -> None:
        self._told(Progress(kind=kind, text=text, stream=stream))


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _silent(progress: Progress) -> None:
    """Nobody asked."""


def in_one_line(error: BaseException) -> HeadwaterError:
    """What ended a query, without Java's and Spark's traces: those are in the run's log."""
    if isinstance(error, HeadwaterError):
        return error
    said = str(error)
    ours = re.findall(r"^headwater\.errors\.(\w+): (.+)$", said, re.MULTILINE)
    if ours:
        kind, text = ours[-1]
        return getattr(errors, kind)(text)  # type: ignore[no-any-return]  # raised in the planner process or a task
    python = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*$", said, re.MULTILINE)
    line = (python[-1] if python else said.strip().splitlines()[0] if said.strip() else type(error).__name__)[:500]
    return LandingFailed(
        f"landing stopped: {line} (the whole story is in spark.log of this app, under .headwater/pipelines). What has "
        "landed is safe: mend the cause and run it again"
    )
