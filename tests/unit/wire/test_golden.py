"""Frames that real clients and a real Kafka sent, kept in tests/golden/wire."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headwater.batch import check, crc_ok, decode, split
from headwater.wire.framing import frame_request, frame_response, parse_request_header, parse_response_header
from tests.unit.wire.apis import Codec, codecs, module
from tools.generate_wire import APIS

GOLDEN = Path(__file__).parents[2] / "golden" / "wire"
FRAMES = sorted(GOLDEN.glob("*.bin"))
CODECS = {(one.key, one.head, one.version): one for one in codecs()}
KEYS = {one.api.lower(): one.key for one in codecs()}
FLEXIBLE_FROM = {made.KEY: made.FLEXIBLE_FROM for made in map(module, APIS)}
CLIENTS = ("librdkafka", "kafka-python", "java")
API_VERSIONS = 18


def codec_of(path: Path) -> Codec:
    found = re.fullmatch(rf"(?:{'|'.join(CLIENTS)})-(\w+)-v(\d+)-(request|response)", path.stem)
    assert found is not None, f"{path.name} is not called as the others are"
    return CODECS[KEYS[found[1].replace("_", "")], found[3], int(found[2])]


def message_of(path: Path) -> Any:
    codec, raw = codec_of(path), memoryview(bytearray(path.read_bytes()))
    if codec.head == "request":
        return codec.read(raw[parse_request_header(raw, FLEXIBLE_FROM).body_at :])
    return codec.read(raw[parse_response_header(raw, header_version(codec))[1] :])


def header_version(codec: Codec) -> int:
    return int(codec.key != API_VERSIONS and codec.version >= FLEXIBLE_FROM[codec.key])


@pytest.mark.parametrize("path", FRAMES, ids=lambda path: path.stem)
def test_golden_frames(path: Path):
    """A captured frame is read to its last byte, and written again byte for byte, header and length included."""
    codec, raw = codec_of(path), path.read_bytes()
    body = codec.encode(message_of(path), codec.version)
    if codec.head == "request":
        header = parse_request_header(memoryview(raw), FLEXIBLE_FROM)
        assert (header.api_key, header.version) == (codec.key, codec.version)
        parts = frame_request(*header[:4], body, flexible=codec.version >= FLEXIBLE_FROM[codec.key])
    else:
        number, _ = parse_response_header(memoryview(raw), header_version(codec))
        parts = frame_response(number, header_version(codec), body)
    assert b"".join(parts) == len(raw).to_bytes(4, "big") + raw  # type: ignore[arg-type]


@pytest.mark.parametrize("client", CLIENTS)
def test_golden_batches(client: str):
    """Batches as real clients make them pass the check, and hold the records that were published."""
    (path,) = GOLDEN.glob(f"{client}-produce-*-request.bin")
    (batch,) = split(message_of(path).topic_data[0].partition_data[0].records)
    check(batch, bytes_max=1_048_588, now_ms=batch.max_timestamp)
    for record in decode(batch):
        assert re.fullmatch(rb"v\d|plain\d|[abc]", record.value or b"")


@pytest.mark.parametrize("client", CLIENTS)
def test_golden_fetches(client: str):
    """Batches as Kafka stores them are read from its answers."""
    (path,) = GOLDEN.glob(f"{client}-fetch-*-response.bin")
    partitions = [part for topic in message_of(path).responses for part in topic.partitions if part.records]
    assert partitions
    for part in partitions:
        for batch in split(part.records, batches_max=100):
            assert crc_ok(batch)
            assert [record.offset for record in decode(batch)] == list(range(batch.base_offset, batch.next_offset))
