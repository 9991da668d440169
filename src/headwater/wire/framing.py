"""What stands around every message: a length, and a header that says what it is or what it answers.

A request: length i32 | key i16 | version i16 | correlation id i32 | client id, nullable | tags, in flexible versions.
A response: length i32 | correlation id i32 | tags, in flexible versions; never for ApiVersions, which clients of any age
must be able to read (KIP-511). The client id is in the old form even in flexible headers, for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headwater.errors import ProtocolError
from headwater.wire.fields import (
    READ_ERRORS,
    Part,
    Struct,
    broken,
    nullable_string,
    part_bytes,
    put_nullable_string,
    skip_tags,
)

LENGTH_BYTES = 4
HEADER_TAGS_MAX = 100  # Kafka has defined none to this day
NEVER_FLEXIBLE = 1 << 15  # beyond every version
_request_head = Struct(">hhi")
_response_head = Struct(">ii")
_length = Struct(">i")
_FRAME_BYTES_END = 2**31


class RequestHeader(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_at: int  # where the body begins


def parse_request_header(view: memoryview, flexible_from: Mapping[int, int]) -> RequestHeader:
    """The header of a frame (without its length). `flexible_from`: API key -> first flexible version.

    A key that is not in the mapping leaves the body unread: whoever serves it has to refuse it anyway.
    """
    try:
        api_key, version, correlation_id = _request_head.unpack_from(view)
        client_id, at = nullable_string(view, _request_head.size)
        if version >= flexible_from.get(api_key, NEVER_FLEXIBLE):
            at = skip_tags(view, at, [HEADER_TAGS_MAX]) if view[at] else at + 1
    except READ_ERRORS as error:
        raise broken("request header", error) from None
    return RequestHeader(api_key, version, correlation_id, client_id, at)


def frame_response(correlation_id: int, header_version: int, body: Sequence[Part]) -> list[Part]:
    """A whole answer: length and header in front of what `encode_response` gave."""
    size = sum(map(part_bytes, body)) + 4 + header_version
    if size >= _FRAME_BYTES_END:
        raise ProtocolError(f"an answer of {size} bytes cannot be sent")
    head = bytearray(_response_head.pack(size, correlation_id))
    if header_version:
        head.append(0)
    return _before(head, body)


def frame_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: Sequence[Part], *, flexible: bool
) -> list[Part]:
    """A whole request, for raw clients and tests."""
    head = bytearray(LENGTH_BYTES)
    head += _request_head.pack(api_key, version, correlation_id)
    put_nullable_string(head, client_id)
    if flexible:
        head.append(0)
    _length.pack_into(head, 0, len(head) - LENGTH_BYTES + sum(map(part_bytes, body)))
    return _before(head, body)


def parse_response_header(view: memoryview, header_version: int) -> tuple[int, int]:
    """Of an answer's frame (without its length): correlation id, and where the body begins."""
    try:
        correlation_id: int = _length.unpack_from(view)[0]
        return correlation_id, skip_tags(view, 4, [HEADER_TAGS_MAX]) if header_version else 4
    except READ_ERRORS as error:
        raise broken("response header", error) from None


def _before(head: bytearray, body: Sequence[Part]) -> list[Part]:
    if body and isinstance(body[0], bytes | bytearray):  # the small fields before the records: one piece less to send
        head += body[0]
        return [head, *body[1:]]
    return [head, *body]
