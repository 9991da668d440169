"""`headwater demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    directory: Annotated[Path, typer.Option("--dir", help="Where to play; emptied first if a demo was there.")] = Path(
        "headwater-demo"
    ),
) -> None:
    """Play the main job end to end, with a broker and a Spark driver killed on the way; takes about a minute."""
    from rich.console import Console

    import headwater.lake  # noqa: F401  without it the demo would stop in the middle: here it says what to install
    from headwater.cli.demo import play

    play(directory.resolve(), Console())
