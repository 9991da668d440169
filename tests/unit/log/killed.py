"""A program that writes a log on the real disk until a failpoint kills it; says what was acknowledged on stdout."""

from __future__ import annotations

import sys
from pathlib import Path

from headwater.log import Appended, DiskFiles, Flusher
from tests.unit.log.logs import batch, noting, opened


def main(directory: Path, epoch: int, *, sync: bool, count: int) -> None:
    flusher = Flusher()
    flusher.start()
    partition = opened(
        DiskFiles(directory), flusher, epoch, sync=sync, segment_bytes=1_000, index_interval_bytes=200, flush_ms=1
    )
    say(f"opened {partition.end}")
    for _ in range(count):
        number = partition.end
        [answer] = partition.append([batch(b"%d" % number * 30, producer_id=1, producer_epoch=0, base_sequence=number)])
        assert isinstance(answer, Appended)
        if sync:
            partition.when_durable(
                answer.next_offset, noting(lambda at: say(f"acked {at}"), answer.next_offset), alone=True
            )
        else:
            say(f"acked {answer.next_offset}")
    partition.close()
    flusher.close()
    say(f"closed {partition.end}")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sync=sys.argv[3] == "sync", count=int(sys.argv[4]))
