"""`headwater ...` and `python -m headwater ...`: to `up`, which starts fast, or to the command line with everything."""

from __future__ import annotations

import sys


def main() -> int:
    if sys.argv[1:2] == ["up"]:
        from headwater.cli.up import main as up

        return up(sys.argv[2:])
    from headwater.cli.app import main as app

    return app()


if __name__ == "__main__":
    sys.exit(main())
