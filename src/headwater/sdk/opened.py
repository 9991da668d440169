"""Which clients are open in this process: what a declared stream uses that was not bound to one.

Process-wide, not a contextvar: a web framework's tasks, which start in contexts of their own, see it too.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headwater.errors import NotConnected

if TYPE_CHECKING:
    from headwater.sdk.client import Client

_open: list[Client] = []
os.register_at_fork(after_in_child=_open.clear)  # threads and connections stay with the parent


def opened(client: Client) -> None:
    _open.append(client)


def closed(client: Client) -> None:
    if client in _open:
        _open.remove(client)


def the_client(stream: str) -> Client:
    """The one client that is open; the error says what to do when there is none, or a choice."""
    if len(_open) == 1:
        return _open[0]
    if not _open:
        raise NotConnected(
            f"stream {stream!r} was used while no client is open: use it inside of `async with headwater.connect():`"
        )
    addresses = ", ".join(sorted(client.address for client in _open))
    raise NotConnected(
        f"stream {stream!r} was used while {len(_open)} clients are open ({addresses}): bind it to one of them with "
        f"hw.stream(...)"
    )
