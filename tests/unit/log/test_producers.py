"""Idempotent producers: a batch that is sent again is not written again, and a gap is not papered over."""

from __future__ import annotations

from headwater.config import PRODUCERS_MAX
from headwater.errors import InvalidProducerEpoch, OutOfOrderSequence, StorageFailed
from headwater.log import Appended
from headwater.log.producers import Producers
from tests.unit.log.logs import SMALL, append, batch, opened, values

LAST = 2**31 - 1


def sent(sequence: int, *what: bytes, epoch: int = 0, producer: int = 9):
    return batch(*(what or (b"v",)), producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def test_a_resend_gets_its_first_answer(disk, idle) -> None:
    """Each of the last five batches is known; the answer is the offset of the first time."""
    partition = opened(disk, idle)
    first = [append(partition, sent(2 * number, b"a", b"b"))[0] for number in range(6)]
    for number in range(1, 6):
        [again] = append(partition, sent(2 * number, b"a", b"b"))
        assert again == (first[number].base_offset, first[number].next_offset, True)
    assert partition.end == 12
    assert isinstance(partition.append([sent(0, b"a", b"b")])[0], OutOfOrderSequence)


def test_a_resend_within_one_append_is_seen(disk, idle) -> None:
    """The original and its copy may arrive in the same turn."""
    partition = opened(disk, idle)
    assert append(partition, sent(0), sent(0), sent(1)) == [(0, 1, False), (0, 1, True), (1, 2, False)]
    assert partition.check() == []


def test_a_gap_is_refused(disk, idle) -> None:
    """A sequence that does not follow means that a batch was lost; so does half of a known batch."""
    partition = opened(disk, idle)
    append(partition, sent(0, b"a", b"b"))
    for wrong in (sent(3), sent(1), sent(0)):
        assert isinstance(partition.append([wrong])[0], OutOfOrderSequence)
    assert partition.end == 2
    append(partition, sent(2))


def test_an_unknown_producer_may_begin_anywhere(disk, idle) -> None:
    """As in Kafka: what was known of it may have expired."""
    partition = opened(disk, idle)
    append(partition, sent(1234), sent(1235))
    assert isinstance(partition.append([sent(1234 + 9)])[0], OutOfOrderSequence)


def test_epochs_fence(disk, idle) -> None:
    """A higher epoch begins at 0 and fences the lower one."""
    partition = opened(disk, idle)
    append(partition, sent(0), sent(1))
    assert isinstance(partition.append([sent(2, epoch=1)])[0], OutOfOrderSequence)
    append(partition, sent(0, epoch=1))
    assert isinstance(partition.append([sent(2, epoch=0)])[0], InvalidProducerEpoch)
    assert isinstance(partition.append([sent(0, epoch=0)])[0], InvalidProducerEpoch)
    append(partition, sent(1, epoch=1))


def test_sequences_wrap(disk, idle) -> None:
    """After 2^31 - 1 comes 0, also in the middle of a batch, and a resend across it is seen."""
    partition = opened(disk, idle)
    across = [append(partition, one)[0] for one in (sent(LAST - 1), sent(LAST, b"a", b"b"), sent(1))]
    assert append(partition, sent(LAST, b"a", b"b")) == [(across[1].base_offset, across[1].next_offset, True)]
    append(partition, sent(LAST, producer=8), sent(0, producer=8))


def test_producers_do_not_mind_each_other(disk, idle) -> None:
    """Sequence numbers are each producer's own."""
    partition = opened(disk, idle)
    append(partition, sent(0, producer=1), sent(0, producer=2), sent(1, producer=1), batch())
    assert append(partition, sent(0, producer=2))[0].duplicate


def test_a_failed_write_leaves_no_trace(disk, idle) -> None:
    """A batch that could not be written is new when it comes again, and its copy in the same append failed with it."""
    partition = opened(disk, idle)
    append(partition, sent(0))
    disk.fail_write()
    answers = partition.append([sent(1), sent(1), sent(0)])
    assert [type(one) for one in answers] == [StorageFailed, StorageFailed, Appended]
    assert append(partition, sent(1)) == [(1, 2, False)]
    assert partition.check() == []


def test_they_are_rebuilt_from_the_log(disk, idle) -> None:
    """After a kill, a stop, or the loss of every snapshot, resends are known as before."""
    partition = opened(disk, idle, **SMALL)
    for number in range(30):
        append(partition, sent(number, b"x" * 100), sent(number, b"y" * 50, producer=100 + number))
    known = partition._state.producers
    for epoch, lose in enumerate((False, False, True), 1):
        if epoch > 1:
            partition.close()
        if lose:
            for name in disk.names(partition._state.place.directory):
                if name.endswith(".producers"):
                    disk.delete(f"{partition._state.place.directory}/{name}")
        partition = opened(disk, idle, epoch, **SMALL)
        assert partition._state.producers == known
        assert append(partition, sent(29, b"x" * 100))[0].duplicate
        assert partition.check() == []
    assert len(values(partition)) == 60


def test_there_is_a_limit(monkeypatch) -> None:
    """Beyond the limit those that wrote longest ago are forgotten, and nobody else."""
    producers = Producers()
    for number in range(PRODUCERS_MAX + 1):
        one = sent(0, producer=number)
        one.base_offset = number
        producers.replay(one)
    assert PRODUCERS_MAX * 0.8 < len(producers) <= PRODUCERS_MAX
    again = sent(0, producer=PRODUCERS_MAX)
    assert producers.judge(again, 0) is not None
    assert producers.judge(sent(0, producer=0), 0) is None
