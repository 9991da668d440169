"""One way to say how long: `"7d"`, `"5m"`, `"10ms"`, seconds, a timedelta, or `"forever"`."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TypeAlias

from headwater.errors import InvalidOption

Duration: TypeAlias = str | int | float | timedelta

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


def seconds_of(duration: Duration, what: str = "a duration") -> float:
    """`duration` in seconds, `math.inf` for "forever"; `what` names it in the error."""
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        seconds = float(duration)
    elif duration == "forever":
        return math.inf
    else:
        found = _TEXT.fullmatch(duration.strip().lower()) if isinstance(duration, str) else None
        if found is None or found[2] not in _UNITS:
            raise _wrong(duration, what)
        seconds = float(found[1]) * _UNITS[found[2]]
    if seconds < 0 or math.isnan(seconds):
        raise _wrong(duration, what)
    return seconds


def _wrong(duration: object, what: str) -> InvalidOption:
    return InvalidOption(
        f'{what} cannot be {duration!r}: write "10ms", "5s", "5m", "1h", "7d", seconds as a number, a timedelta, '
        'or "forever"'
    )
