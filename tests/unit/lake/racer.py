"""One of two drivers that land the same range at the same moment: `python -m tests.unit.lake.racer DIRECTORY`.

Speaks lines with its parent: `ready`, then for each line it gets, one attempt, and what came of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headwater.errors import AlreadyLanded
from headwater.lake import Advance, Landed, commit
from tests.unit.lake.models import Lake, place, records, small


def main(directory: str) -> None:
    lake = Lake(Path(directory), small())
    say("ready")
    for line in sys.stdin:
        say(attempt(lake, int(line)))


def attempt(lake: Lake, start: int) -> str:
    seen = Landed(end=start, epoch=0) if start else None
    written = lake.write(records(start, start + 10))
    say("written")
    sys.stdin.readline()
    try:
        commit(lake.catalog, lake.table, written, {place(): Advance(seen=seen, to=Landed(end=start + 10, epoch=0))})
    except AlreadyLanded:
        return "late"
    return "landed"


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
