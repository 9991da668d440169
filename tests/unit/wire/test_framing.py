"""What stands around a message."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import ApiVersionsRequest

from headwater.errors import ProtocolError
from headwater.wire.framing import (
    RequestHeader,
    frame_request,
    frame_response,
    parse_request_header,
    parse_response_header,
)

FLEXIBLE_FROM = {1: 12, 18: 3}


class Slice:
    """Stands for a piece of a file."""

    length = 1000


def test_headers_of_kafka_python():
    """Request headers as kafka-python writes them, flexible and not, are read to their end."""
    for version in (4, 11, 12, 15):
        request = FetchRequest(version=version)
        request.with_header(correlation_id=77, client_id="größe")
        raw = request.encode(header=True)
        body = request.encode(header=False)
        header = parse_request_header(memoryview(raw), FLEXIBLE_FROM)
        assert header == RequestHeader(1, version, 77, "größe", len(raw) - len(body))


def test_headers_with_unknown_tags():
    """Tags in a header that we do not know are passed over."""
    raw = b"\0\1\0\x0c\0\0\0\5\xff\xff" + b"\2\1\3abc\7\0" + b"body"
    assert parse_request_header(memoryview(raw), FLEXIBLE_FROM) == (1, 12, 5, None, len(raw) - 4)


def test_headers_with_tags_that_lie():
    """Tags in a header that are longer than the frame, or too many to be meant, are refused."""
    head = b"\0\1\0\x0c\0\0\0\5\xff\xff"
    with pytest.raises(ProtocolError, match="tagged field"):
        parse_request_header(memoryview(head + b"\1\1\x7fabc"), FLEXIBLE_FROM)
    with pytest.raises(ProtocolError, match="tagged fields"):
        parse_request_header(memoryview(head + b"\x65" + b"\1\0" * 101), FLEXIBLE_FROM)


def test_an_api_that_is_not_served():
    """A header of an unknown key is read as far as all headers are alike."""
    raw = b"\0\x63\0\1\0\0\0\5\0\1a\1\1"
    assert parse_request_header(memoryview(raw), FLEXIBLE_FROM) == (99, 1, 5, "a", 11)


@given(raw=st.binary(max_size=40))
def test_hostile_headers(raw: bytes):
    """Any bytes are a header or a ProtocolError."""
    for parse in (lambda view: parse_request_header(view, FLEXIBLE_FROM), lambda view: parse_response_header(view, 1)):
        with suppress(ProtocolError):
            parse(memoryview(raw))


@pytest.mark.parametrize("flexible", [True, False])
def test_requests_there_and_back(flexible: bool):
    """What frames a request for a raw client is what the broker reads, and its length is right."""
    version = 3 if flexible else 2
    parts = frame_request(18, version, 9, "me", [b"body", memoryview(b"more")], flexible=flexible)
    raw = b"".join(parts)  # type: ignore[arg-type]
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4
    header = parse_request_header(memoryview(raw)[4:], FLEXIBLE_FROM)
    assert header[:4] == (18, version, 9, "me")
    assert raw[4 + header.body_at :] == b"bodymore"
    expected = ApiVersionsRequest(version=version)
    expected.with_header(correlation_id=9, client_id="me")
    assert raw[4:].startswith(expected.encode_header(flexible=flexible))


@pytest.mark.parametrize("header_version", [0, 1])
def test_answers_there_and_back(header_version: int):
    """An answer's length counts its header, its parts and what still lies in a file, which is passed on as it is."""
    gap = Slice()
    parts = frame_response(5, header_version, [bytearray(b"head"), gap, memoryview(b"tail")])
    assert parts[1] is gap
    raw = b"".join(part for part in parts if not isinstance(part, Slice))  # type: ignore[misc]
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4 + gap.length
    assert parse_response_header(memoryview(raw)[4:], header_version) == (5, 4 + header_version)
    assert raw[8 + header_version :] == b"headtail"


def test_answers_without_a_body():
    """An answer may be nothing but its header."""
    assert frame_response(1, 0, []) == [b"\0\0\0\4\0\0\0\1"]


def test_answers_too_large_for_their_length_field():
    """More than a frame's length can say is refused before a byte of it is sent."""

    class Huge:
        length = 2**31

    with pytest.raises(ProtocolError, match="cannot be sent"):
        frame_response(1, 0, [Huge()])
