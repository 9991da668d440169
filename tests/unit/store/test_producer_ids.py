"""Producer ids come in blocks that are durable before the first id of them is given."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.config import PRODUCER_IDS_PER_GRANT
from headwater.errors import StorageFailed
from headwater.meta import Meta
from headwater.store.producer_ids import ProducerIds


def test_ids_count_up_and_cost_one_commit_per_block(tmp_path: Path) -> None:
    """Within a block no id waits for the disk."""
    meta = Meta.open(tmp_path)
    ids = ProducerIds(meta)
    assert [ids.next().result(5) for _ in range(PRODUCER_IDS_PER_GRANT + 1)] == list(range(PRODUCER_IDS_PER_GRANT + 1))
    assert meta.commit_count == 2
    meta.close()


def test_ids_of_an_earlier_run_are_not_given_again(tmp_path: Path) -> None:
    """What was left of a block is skipped after a start."""
    for first in (0, PRODUCER_IDS_PER_GRANT):
        meta = Meta.open(tmp_path)
        assert ProducerIds(meta).next().result(5) == first
        meta.close()


def test_many_at_once_get_different_ids(tmp_path: Path) -> None:
    """Threads that ask together, for more than a block holds, get each id once; and none waits for ever."""
    meta = Meta.open(tmp_path)
    ids = ProducerIds(meta)
    given: list[int] = []

    def ask() -> None:
        waiting = [ids.next() for _ in range(700)]
        given.extend(one.result(10) for one in waiting)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(given)) == 2800
    meta.close()


def test_more_than_a_block_may_wait_for_one(tmp_path: Path) -> None:
    """When more wait than a grant holds, the rest get theirs from further grants, and none beyond what is durable."""
    meta = Meta.open(tmp_path)
    ids = ProducerIds(meta)
    held = threading.Event()
    meta._writer.submit(lambda _: held.wait(5))
    waiting = [ids.next() for _ in range(2 * PRODUCER_IDS_PER_GRANT + 1)]
    held.set()
    assert [one.result(5) for one in waiting] == list(range(2 * PRODUCER_IDS_PER_GRANT + 1))
    assert ProducerIds(meta).next().result(5) == 3 * PRODUCER_IDS_PER_GRANT
    meta.close()


def test_who_waits_is_told_when_there_are_none(tmp_path: Path) -> None:
    """A grant that fails is answered with its error, to everybody who waits for it."""
    meta = Meta.open(tmp_path)
    ids = ProducerIds(meta)
    meta.close()
    with pytest.raises(StorageFailed, match="closed"):
        ids.next().result(5)
    with pytest.raises(StorageFailed, match="closed"):
        ids.next().result(5)
