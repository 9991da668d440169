from __future__ import annotations

import pytest

from headwater.errors import InvalidValue
from headwater.sdk.partitioner import RoundRobin, murmur2

# From the tests of Apache Kafka's Java client, where the hash is signed.
JAVA = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), JAVA.items())
def test_keys_hash_as_in_java(key, signed):
    """The masked value of Kafka's own hash, for text and bytes alike."""
    assert murmur2(key) == murmur2(key.encode()) == signed & 0x7FFFFFFF


def test_turns_touch_each_partition_once():
    """Any four calls in a row go to four partitions."""
    turn = RoundRobin()
    for _ in range(3):
        assert {turn.next(4) for _ in range(4)} == {0, 1, 2, 3}


def test_a_hash_is_of_text_or_bytes():
    """A number would be so many zeros: it is refused."""
    with pytest.raises(InvalidValue, match="str"):
        murmur2(5)  # type: ignore[arg-type]
