"""Named places where a crash test kills this process: `HEADWATER_FAILPOINT=name:n` dies at the n-th pass.

Read once at start. Without the variable a failpoint costs one comparison with None.
"""

from __future__ import annotations

import os
import signal

_name, _, _count = os.environ.get("HEADWATER_FAILPOINT", "").partition(":")
_left = int(_count or 1)

NAMES = frozenset(
    {
        "after-write-before-ack",
        "mid-roll",
        "mid-flush",
        "mid-checkpoint",
        "mid-delete",
        "between-log-and-meta",
        "mid-recovery",
        "land-files-written",
        "land-between-tables",
        "land-before-cursors",
    }
)


def reach(name: str) -> None:
    """Ends this process as a power-off button would, if it was told to end at `name`."""
    global _left  # noqa: PLW0603  one counter for the process, set once from its environment
    if name != _name:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
