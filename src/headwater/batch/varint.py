"""Varints of the record format: seven bits a byte, lowest first, signed ones by zigzag (0, -1, 1, -2 ...)."""

from __future__ import annotations

_BITS_MAX = 63  # the last byte of ten carries one bit


def write_varint(out: bytearray, value: int) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)


def read_varint(view: bytes | memoryview, at: int) -> tuple[int, int]:
    """Value and where it ends. Beyond the bytes: IndexError; longer than ten bytes: ValueError."""
    byte = view[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    raw, shift = byte & 127, 7
    while True:
        byte = view[at]
        at += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            if raw >> 64:
                raise ValueError("a varint of more than 64 bits")
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
        if shift > _BITS_MAX:
            raise ValueError("a varint of more than ten bytes")
