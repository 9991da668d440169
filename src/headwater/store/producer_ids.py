"""Hands out producer ids from blocks that meta.db has granted, so that most callers wait for no disk.

What is left of a block at the end is never given to anybody: an id must not come twice.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future

from headwater.config import PRODUCER_IDS_PER_GRANT
from headwater.meta import Meta
from headwater.model import ProducerId


class ProducerIds:
    def __init__(self, meta: Meta) -> None:
        self._meta = meta
        self._lock = threading.Lock()
        self._next = self._end = 0
        self._waiting: deque[Future[ProducerId]] = deque()  # not empty only while a grant is under way

    def next(self) -> Future[ProducerId]:
        future: Future[ProducerId] = Future()
        future.set_running_or_notify_cancel()  # a caller that cancels forgets its wait; the id is spent
        with self._lock:
            if self._next < self._end:
                future.set_result(self._take())
                return future
            self._waiting.append(future)
            first = len(self._waiting) == 1
        if first:
            self._ask()
        return future

    def _take(self) -> ProducerId:
        self._next += 1
        return ProducerId(self._next - 1)

    def _ask(self) -> None:
        self._meta.grant_producer_ids(PRODUCER_IDS_PER_GRANT).add_done_callback(self._granted)

    def _granted(self, granted: Future[ProducerId]) -> None:
        why = granted.exception()
        with self._lock:
            served = list(self._waiting)[:PRODUCER_IDS_PER_GRANT]
            if why is None:
                self._next = granted.result()
                self._end = self._next + PRODUCER_IDS_PER_GRANT
                ids = [self._take() for _ in served]
            for _ in served:
                self._waiting.popleft()
            more = bool(self._waiting)
        for number, future in enumerate(served):
            if why is None:
                future.set_result(ids[number])
            else:
                future.set_exception(why)
        if more:
            self._ask()
