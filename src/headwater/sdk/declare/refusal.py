"""How an option that does not work is refused: by name, with a suggestion."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from headwater.errors import InvalidOption


def refusal(name: str, known: Collection[str], not_built: Collection[str], where: str) -> InvalidOption:
    if name in not_built:
        return InvalidOption(f"{where}: the option {name!r} is not built yet: leave it out")
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
    return InvalidOption(f"{where}: there is no option {name!r}: {hint}")
