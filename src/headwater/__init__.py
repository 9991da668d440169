"""Headwater: a durable, Kafka-compatible log that comes with pip install.

The names below are the public ones, and all of them; each is looked up at its first use, so that the broker, which
needs none of them, starts fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.errors import HandlerError, HeadwaterError
    from headwater.model import Headers, Receipt, Record
    from headwater.sdk.client import Client, connect
    from headwater.sdk.declare import Duration, Key, OlapTable, Outgoing, Stream, StreamConfig, Table
    from headwater.sdk.describe import PartitionDescription, StreamDescription
    from headwater.sdk.group import Group
    from headwater.sdk.partitioner import murmur2
    from headwater.sdk.reader import GroupRecord, Reader
    from headwater.sdk.subscription import Subscription

_HOMES = {
    "HandlerError": "headwater.errors",
    "HeadwaterError": "headwater.errors",
    "Headers": "headwater.model",
    "Receipt": "headwater.model",
    "Record": "headwater.model",
    "Client": "headwater.sdk.client",
    "connect": "headwater.sdk.client",
    "Duration": "headwater.sdk.declare",
    "Key": "headwater.sdk.declare",
    "OlapTable": "headwater.sdk.declare",
    "Outgoing": "headwater.sdk.declare",
    "Stream": "headwater.sdk.declare",
    "StreamConfig": "headwater.sdk.declare",
    "Table": "headwater.sdk.declare",
    "PartitionDescription": "headwater.sdk.describe",
    "StreamDescription": "headwater.sdk.describe",
    "Group": "headwater.sdk.group",
    "murmur2": "headwater.sdk.partitioner",
    "GroupRecord": "headwater.sdk.reader",
    "Reader": "headwater.sdk.reader",
    "Subscription": "headwater.sdk.subscription",
}
__all__ = [
    "Client",
    "Duration",
    "Group",
    "GroupRecord",
    "HandlerError",
    "Headers",
    "HeadwaterError",
    "Key",
    "OlapTable",
    "Outgoing",
    "PartitionDescription",
    "Reader",
    "Receipt",
    "Record",
    "Stream",
    "StreamConfig",
    "StreamDescription",
    "Subscription",
    "Table",
    "connect",
    "murmur2",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
