"""Where a member stands: its holds from one assignment to the next, and the cursors that the server keeps of them.

Everything here runs in the member's thread. Holds that a rebalance takes are kept until the next assignment says who
got them: what comes back goes on after the last record that the program was given, and a commit that was asked for
meanwhile waits until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from headwater.config import SDK_ANSWER_SECONDS, SDK_POLL_SECONDS
from headwater.errors import IllegalGeneration
from headwater.sdk.border import AWAY, FENCED, mapped
from headwater.sdk.holding import Hold

Start = Literal["beginning", "end"]
A = TypeVar("A")


class Cursors:
    """Of one member in one stream."""

    def __init__(self, group: str, stream: str, start: Start) -> None:
        self.group, self.stream = group, stream
        self._start = start
        self.holds: dict[int, Hold] = {}
        self._given_back: dict[int, Hold] = {}

    # --- assignments -------------------------------------------------------------------------

    def take_up(
        self, consumer: Consumer, partitions: list[int], give_up: Callable[[], bool]
    ) -> list[TopicPartition] | None:
        """The partitions into our hands, and where to read on in each; None when `give_up` says so meanwhile."""
        cursors = self._look_up(consumer, [TopicPartition(self.stream, one) for one in partitions], give_up)
        if cursors is None:
            return None
        places = []
        for cursor in cursors:
            place = self._take_one(consumer, cursor, give_up)
            if place is None:
                return None
            places.append(place)
            self.holds[place.partition].fetched = max(place.offset, -1)
        for hold in self._given_back.values():
            hold.end("its partition went to another member")
        self._given_back = {}
        return places

    def move(self, partition: int, offset: int) -> list[TopicPartition]:
        """One partition goes on elsewhere; where to read on in each, with nothing read ahead."""
        hold = self.holds[partition]
        if offset < hold.committed:  # the log was cut: the cursor follows it
            hold.done = hold.committed = offset
        hold.given = offset
        for one in self.holds.values():
            one.fetched = offset if one is hold else max(one.given, one.committed)
        return [
            TopicPartition(self.stream, one.partition, one.fetched if one.fetched >= 0 else OFFSET_BEGINNING)
            for one in self.holds.values()
        ]

    def give_back(self) -> None:
        """A rebalance took everything; what it gives again is known at the next `take_up`."""
        self._given_back, self.holds = self.holds, {}

    def forget(self, why: str) -> None:
        """What we know of positions counts no more."""
        for hold in (*self.holds.values(), *self._given_back.values()):
            hold.end(why)
        self.holds, self._given_back = {}, {}

    def ends(self, consumer: Consumer, partition: int, give_up: Callable[[], bool]) -> tuple[int, int] | None:
        """Where the partition begins and ends, as soon as the server answers; None when `give_up` says so."""
        place = TopicPartition(self.stream, partition)
        return _insisted(lambda: consumer.get_watermark_offsets(place, SDK_ANSWER_SECONDS), give_up)

    def _take_one(
        self, consumer: Consumer, cursor: TopicPartition, give_up: Callable[[], bool]
    ) -> TopicPartition | None:
        hold = self._given_back.pop(cursor.partition, None) or Hold(self.stream, cursor.partition)
        hold.committed = max(cursor.offset, -1)
        self.holds[cursor.partition] = hold
        if hold.given > hold.committed:  # it was ours just before: what the program was given, it does not get again
            return TopicPartition(self.stream, cursor.partition, hold.given)
        return cursor if cursor.offset >= 0 else self._beginning(consumer, hold, give_up)

    def _beginning(self, consumer: Consumer, hold: Hold, give_up: Callable[[], bool]) -> TopicPartition | None:
        """Where a group begins that has no cursor. An end is written down at once: another member must not move it."""
        if self._start == "beginning":
            return TopicPartition(self.stream, hold.partition, OFFSET_BEGINNING)
        found = self.ends(consumer, hold.partition, give_up)
        if found is None:
            return None
        hold.given = hold.done = found[1]  # also if a rebalance is in the way of the commit: then the next one has it
        try:
            _insisted(lambda: self._commit(consumer, [hold]), give_up)
        except KafkaException as error:
            if error.args[0].code() not in FENCED:
                raise
        return TopicPartition(self.stream, hold.partition, hold.given)

    def _look_up(
        self, consumer: Consumer, places: list[TopicPartition], give_up: Callable[[], bool]
    ) -> list[TopicPartition] | None:
        """The cursors of the group; asked for until the server answers, since reading without them would be wrong."""

        def ask() -> list[TopicPartition]:
            found = consumer.committed(places, timeout=SDK_ANSWER_SECONDS)
            for one in found:
                if one.error is not None:
                    raise KafkaException(one.error)
            return found

        try:
            return _insisted(ask, give_up) if places else []
        except KafkaException as error:
            raise mapped(error.args[0], f"read the cursors of group {self.group!r}", self.stream) from None

    # --- commits -----------------------------------------------------------------------------

    def commit_done(self, consumer: Consumer) -> None:
        """What is done and not committed; raises `KafkaException`, and then nothing has changed here."""
        dirty = [hold for hold in self.holds.values() if hold.alive and hold.done > hold.committed]
        if dirty:
            self._commit(consumer, dirty)

    def commit_one(self, consumer: Consumer, hold: Hold) -> bool:
        """Whether the server has it. Not yet, while a rebalance is under way: ask again after the next assignment."""
        doing = f"commit partition {hold.partition} of stream {hold.stream!r} for group {self.group!r}"
        if not hold.alive:
            raise IllegalGeneration(f"cannot {doing}: {hold.why}: its records are read again by whoever holds it now")
        if hold.partition not in self.holds:
            return False
        if hold.done <= hold.committed:
            return True
        try:
            self._commit(consumer, [hold])
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.REBALANCE_IN_PROGRESS:
                return False
            if code in FENCED:
                raise IllegalGeneration(
                    f"cannot {doing}: the group went on without this member: its records are read again"
                ) from None
            raise mapped(error.args[0], doing, self.stream) from None
        return True

    def _commit(self, consumer: Consumer, holds: list[Hold]) -> None:
        offsets = [TopicPartition(hold.stream, hold.partition, hold.done, "", hold.done_epoch) for hold in holds]
        for hold, answer in zip(holds, consumer.commit(offsets=offsets, asynchronous=False) or [], strict=False):
            if answer.error is not None:
                raise KafkaException(answer.error)
            hold.committed = answer.offset


def _insisted(ask: Callable[[], A], give_up: Callable[[], bool]) -> A | None:
    """What the library answers, asked again while the server is away; None when `give_up` says so meanwhile."""
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in AWAY:
                raise
        if give_up():
            return None
        time.sleep(SDK_POLL_SECONDS)
