"""Payloads of batches, packed and unpacked with a bound: none and gzip. The broker does neither; readers do."""

from __future__ import annotations

import zlib

from headwater.batch.header import Codec
from headwater.config import GZIP_MEMBERS_MAX
from headwater.errors import CorruptBatch, RecordTooLarge, UnsupportedCompression

_GZIP = 16 + zlib.MAX_WBITS  # zlib's way to say: with gzip's own header and checksum


def packed(payload: bytes | bytearray, codec: int) -> bytes | bytearray:
    if codec == Codec.NONE:
        return payload
    if codec == Codec.GZIP:
        packer = zlib.compressobj(wbits=_GZIP)
        return packer.compress(payload) + packer.flush()
    raise _unsupported(codec)


def unpacked(payload: memoryview, codec: int, *, bytes_max: int) -> bytes | memoryview:
    """What is in `payload`; never more than `bytes_max`, whatever a bomb may promise."""
    if codec == Codec.NONE:
        return payload
    if codec == Codec.GZIP:
        return _gunzip(payload, bytes_max)
    raise _unsupported(codec)


def _gunzip(payload: memoryview, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    left = bytes_max
    rest: bytes | memoryview = payload
    try:
        while rest:  # one member from every client; the format allows several, and Java's reader takes them
            if len(pieces) == GZIP_MEMBERS_MAX:
                raise CorruptBatch(f"a gzip payload of more than {GZIP_MEMBERS_MAX} members")
            member = zlib.decompressobj(wbits=_GZIP)
            piece = member.decompress(rest, left + 1)
            left -= len(piece)
            if left < 0:
                raise RecordTooLarge(f"a gzip batch that inflates to more than {bytes_max} bytes")
            if not member.eof:
                raise CorruptBatch("the gzip payload of a batch ends too early")
            pieces.append(piece)
            rest = member.unused_data
    except zlib.error as error:
        raise CorruptBatch(f"the payload of a batch is not gzip, as its header says: {error}") from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unsupported(codec: int) -> UnsupportedCompression:
    name = Codec(codec).name.lower() if codec in Codec._value2member_map_ else str(codec)
    return UnsupportedCompression(f"a batch packed with {name}: only none and gzip can be opened here")
