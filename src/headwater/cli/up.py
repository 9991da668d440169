"""`headwater up`: one broker in the foreground, until SIGTERM or Ctrl-C.

It goes round the CLI library: a broker has to be ready in 300 ms, of which that would take a third.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path

from headwater.broker.lifetime import serve
from headwater.config import Settings, settings_file
from headwater.errors import CannotListen, InvalidSetting, OperatorError
from headwater.store import Store, directory

FILE_DESCRIPTORS = 65_536  # asked for where the hard limit allows: each connection and each open segment is one


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 after a drain, 1 when it cannot run here, 2 when it was told what cannot be."""
    try:
        settings = read_settings(arguments, Path("headwater.toml"))
        _run(settings)
    except KeyboardInterrupt:
        return 130
    except InvalidSetting as why:
        print(f"headwater up: {why}", file=sys.stderr)
        return 2
    except OperatorError as why:
        print(f"headwater up: {why}", file=sys.stderr)
        return 1
    return 0


def read_settings(arguments: Sequence[str], file: Path) -> Settings:
    """Flags win over `HEADWATER_*`, those over headwater.toml, those over the defaults."""
    flags = vars(_parser().parse_args(arguments))
    return Settings.resolve(flags, os.environ, settings_file(file))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headwater up",
        description="Serves one data directory over the Kafka protocol. Prints READY HOST:PORT pid=PID when it answers.",
        epilog="Each flag can also be set as HEADWATER_NAME or as a line of headwater.toml.",
    )
    for one in fields(Settings):
        assert one.default is not MISSING
        flag = "--" + one.name.replace("_", "-")
        said = f"{one.metadata['reason']} (default: {one.default})".replace("%", "%%")
        if isinstance(one.default, bool):
            parser.add_argument(flag, dest=one.name, default=None, action=argparse.BooleanOptionalAction, help=said)
        else:
            parser.add_argument(flag, dest=one.name, default=None, metavar=one.metadata["unit"].upper(), help=said)
    return parser


def _run(settings: Settings) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    _raise_descriptor_limit()
    store = Store.open(settings)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            last = directory.address(settings.data) if settings.embedded else None
            if last is not None and last.kind == "embedded":
                # Clients of the broker that was here before find this one without looking, if its port is free.
                with contextlib.suppress(CannotListen):
                    runner.run(serve(store, replace(settings, port=last.port), _ready))
                    return
            runner.run(serve(store, replace(settings, port=0) if settings.embedded else settings, _ready))
    finally:
        store.close()


def _ready(host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    print(f"READY {shown}:{port} pid={os.getpid()}", flush=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop where there is one: 10 % more requests a second (measured)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _raise_descriptor_limit() -> None:
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILE_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, FILE_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
