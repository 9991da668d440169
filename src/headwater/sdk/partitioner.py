"""Which partition a record goes to. Decided here, not in librdkafka, which hashes with CRC32 unless told otherwise.

The same key lies in the same partition for every client that hashes as Kafka's Java client does.
"""

from __future__ import annotations

import random
from functools import lru_cache

from headwater.errors import InvalidValue
from headwater.model import bytes_of

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_WORD = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(key: str | bytes) -> int:
    """Kafka's hash of a key, with the sign bit masked off as its Java client does: `murmur2(key) % partitions`."""
    if not isinstance(key, str | bytes):  # bytes(5) would be five zeros
        raise InvalidValue(f"murmur2 takes a str or bytes, not {key!r:.200}: write str(...) around it")
    return _murmur2(bytes_of(key))


@lru_cache(maxsize=16_384)  # keys repeat, and a hash in Python costs microseconds
def _murmur2(key: bytes) -> int:
    length = len(key)
    state = (_SEED ^ length) & _WORD
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ (word >> 24)) * _MULTIPLIER & _WORD
        state = (state * _MULTIPLIER & _WORD) ^ word
    if whole != length:
        state = (state ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _WORD
    state = (state ^ (state >> 13)) * _MULTIPLIER & _WORD
    return (state ^ (state >> 15)) & _POSITIVE


class RoundRobin:
    """Partitions in turn, beginning anywhere, so that many short programs do not all favour partition 0."""

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        self._turn = random.randrange(1 << 16)  # noqa: S311  a spread, not a secret

    def next(self, partitions: int) -> int:
        self._turn += 1
        return self._turn % partitions
