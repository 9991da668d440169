"""The acts of the demo, in order. Everything is real: own processes, kill -9, Spark, Iceberg; nothing is staged.

Two programs publish orders, some of them broken; the broker is killed and started again meanwhile; a group of three
reads everything; Spark lands it and is killed between the commits of its two tables; SQL asks the table. At the end a
process of its own compares the log, read through another client, with the tables: equal, or the demo fails.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from headwater.cli.demo.stage import ActFailed, Actor, Stage
from headwater.errors import OperatorError

RECORDS_PER_WRITER = 4000
WRITERS = ("north", "south")
MARK = ".headwater-demo"  # tells a directory of ours, which may be emptied, from somebody's work
PROGRAMS = Path(__file__).parent / "programs"
LANDING_SECONDS = 150.0
BY_COUNTRY = (
    "SELECT country, count(*) AS orders, round(sum(total), 2) AS total FROM orders GROUP BY country ORDER BY 2 DESC"
)


def play(directory: Path, console: Console) -> None:
    """Plays all acts in `directory`; raises when anything is not as promised, and leaves no process behind."""
    begun = time.monotonic()
    _prepare(directory)
    expected = RECORDS_PER_WRITER * len(WRITERS)
    with Stage(directory) as stage:
        with _act(console, "a broker, two writers, a group of three, Spark") as say:
            broker = stage.broker("broker-1")
            landing = stage.start(
                "landing-1", "-m", "headwater", "run", "shop.py", HEADWATER_FAILPOINT="land-between-tables:1"
            )
            writers = [stage.start(f"writer-{name}", "writer.py", name, str(RECORDS_PER_WRITER)) for name in WRITERS]
            readers = stage.start("readers", "readers.py", str(expected))
            say(f"listening at {stage.address}")
        with _act(console, "the broker is killed with -9 in the middle, and started again") as say:
            for name, writer in zip(WRITERS, writers, strict=True):
                well_begun = partial(_has_lines, directory / f"acked-{name}.jsonl", RECORDS_PER_WRITER // 4)
                stage.wait_for(well_begun, 60, writer, "did not publish")
            broker.kill()
            before = sum(_lines(directory / f"acked-{name}.jsonl") for name in WRITERS)
            broker = stage.broker("broker-2")
            say(f"{before} records were acknowledged before; clients reconnect by themselves")
        with _act(console, "everything is published, and read by the group") as say:
            for writer in writers:
                writer.finish(90)
            seen = json.loads(readers.finish(90).splitlines()[-1])
            members = ", ".join(f"{name} {count}" for name, count in seen["by_member"].items())
            say(f"{seen['seen']} different records; read by {members} (what the crash left uncommitted, twice)")
        with _act(console, "Spark lands it; its driver dies between the commits of its two tables") as say:
            _wait_for_death(landing)
            say("killed at that very point (SIGKILL); started again to finish")
            stage.start("landing-2", "-m", "headwater", "run", "shop.py", "--once").finish(LANDING_SECONDS)
        with _act(console, "SQL over the table") as say:
            answer = stage.start("sql", "-m", "headwater", "sql", "--json", BY_COUNTRY).finish(60)
            say(f"headwater sql {BY_COUNTRY!r}")
            _chart(console, [json.loads(line) for line in answer.splitlines() if line.startswith("{")])
        with _act(console, "log and tables compared record by record, through another client") as say:
            checked = json.loads(stage.start("check", "check.py", str(expected)).finish(90).splitlines()[-1])
            say(f"{checked['log']} in the log = {checked['landed']} landed + {checked['dead']} dead letters")
            say(f"{checked['acked']} acknowledged: 0 lost, 0 doubled")
        broker.end()
    _farewell(console, directory, time.monotonic() - begun)


def _prepare(directory: Path) -> None:
    if directory.exists() and any(directory.iterdir()) and not (directory / MARK).exists():
        raise OperatorError(f"{directory} is not empty and not from a demo: name another with `headwater demo --dir`")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / MARK).touch()
    for program in PROGRAMS.glob("*.py"):
        shutil.copy(program, directory)


@contextmanager
def _act(console: Console, title: str) -> Iterator[Callable[[str], None]]:
    notes: list[str] = []
    begun = time.monotonic()
    with console.status(f"[bold]{title} ..."):
        yield notes.append
    console.print(f"[green]✓[/] {title} [dim]({time.monotonic() - begun:.1f} s)[/]")
    for note in notes:
        console.print(f"  [dim]{note}[/]", highlight=False, soft_wrap=True)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _has_lines(path: Path, count: int) -> bool:
    return _lines(path) >= count


def _wait_for_death(landing: Actor) -> None:
    code = landing.process.wait(LANDING_SECONDS)
    if code != -9:
        raise ActFailed(landing.failed(f"should have been killed between two commits, and ended with {code}").args[0])
    landing.kill()  # what is left of its group: the JVM


def _chart(console: Console, answers: list[dict[str, object]]) -> None:
    if not answers:
        raise ActFailed("SQL found no orders in the table: see the files in output/")
    most = max(int(str(one["orders"])) for one in answers)
    for one in answers:
        count = int(str(one["orders"]))
        console.print(
            f"    {one['country']} [cyan]{'█' * max(1, 40 * count // most)}[/] {count}  [dim]{one['total']}[/]"
        )


def _farewell(console: Console, directory: Path, seconds: float) -> None:
    console.print(
        f"\n[bold green]All of it holds[/], in {seconds:.0f} s. Nothing runs any more; what was made lies here:"
    )
    for path, what in (
        (directory, "the programs (shop.py is the whole pipeline) and what each process printed (output/)"),
        (directory / ".headwater" / "streams", "the log: Kafka segments, byte for byte"),
        (directory / ".headwater" / "lake", "Iceberg tables (warehouse/) and their catalog (catalog.db)"),
    ):
        console.print(f"  {path}  [dim]{what}[/]", highlight=False, soft_wrap=True)
    console.print("\nTry next:")
    for command in (
        f"cd {directory}",
        'headwater sql "select * from orders limit 5"',
        'headwater sql "select error_type, count(*) from orders_dead_letters group by 1"',
        "headwater up      # then, in another terminal: headwater tail orders --from-start",
    ):
        console.print(f"  [cyan]{command}[/]", highlight=False, soft_wrap=True)
