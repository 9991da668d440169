"""Headwater in other people's tests: a real broker inside the Python process, ready in milliseconds.

    with headwater.testing.broker() as server:
        Producer({"bootstrap.servers": server.address})

Its data directory is temporary unless `data=` names one. Keyword arguments are those of `config.Settings`.
With pytest, the fixture `headwater_broker` is there once the package is installed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.log import Files
    from headwater.testing.server import Server


def broker(*, files: Files | None = None, **settings: Any) -> AbstractContextManager[Server]:
    """A broker for the length of the block, on a free port unless `port=` says otherwise.

    `files` is the disk of its logs, such as the faulty one of `headwater.testing.files`; the real one by default.
    """
    from headwater.testing import server  # pytest imports this package in every session of everybody

    return server.broker(files=files, **settings)
