"""What a handler is given beside the request: who asks, in which version, and the broker that answers.

The principal is in it from the first version on, so that no signature moves when there are users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.broker.server import Broker

ANONYMOUS = "User:ANONYMOUS"  # Kafka's own name for a connection without authentication


@dataclass(slots=True, kw_only=True)
class Context:
    """One request's surroundings. A handler keeps none of it beyond its answer."""

    broker: Broker
    version: int
    client_id: str | None = None
    client_host: str = ""
    principal: str = ANONYMOUS
