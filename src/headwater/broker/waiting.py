"""Who waits for a partition to move: the long polls of Fetch.

A partition tells when its high watermark moved, when it failed and when it was deleted, from whatever thread that
happened on. Those who wait are called on the loop, once per turn however much was written in it, and look again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from headwater.log import Partition

if TYPE_CHECKING:
    from headwater.broker.server import Broker

Look = Callable[[Partition | None], None]  # which of them moved; None: all are to be looked at


class Waiting:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._looks: dict[Partition, dict[Look, None]] = {}
        self._listeners: dict[Partition, Callable[[], None]] = {}
        self._moved: dict[Partition, None] = {}
        self._called = False

    @property
    def waiting_count(self) -> int:
        return sum(len(looks) for looks in self._looks.values())

    def wait(self, partitions: Iterable[Partition], look: Look) -> None:
        """`look` is called after any of them moved, until `forget`."""
        for partition in partitions:
            looks = self._looks.get(partition)
            if looks is None:
                looks = self._looks[partition] = {}
                listener = self._listeners[partition] = partial(self._note, partition)
                partition.add_listener(listener)
            looks[look] = None

    def forget(self, partitions: Iterable[Partition], look: Look) -> None:
        for partition in partitions:
            looks = self._looks.get(partition)
            if looks is not None:
                looks.pop(look, None)
                if not looks:
                    del self._looks[partition]
                    partition.remove_listener(self._listeners.pop(partition))

    def look_at_all(self) -> None:
        """The broker is about to stop: who waits is answered with what there is."""
        for looks in list(self._looks.values()):
            for look in list(looks):
                look(None)

    def _note(self, partition: Partition) -> None:
        """On any thread."""
        self._moved[partition] = None
        if not self._called:
            self._called = True
            self._broker.call_from_thread(self._look)

    def _look(self) -> None:
        self._called = False
        moved, self._moved = self._moved, {}
        for partition in moved:
            for look in list(self._looks.get(partition, ())):
                look(partition)
