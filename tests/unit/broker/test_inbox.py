"""Bytes of a socket become whole frames, whatever pieces they arrive in, and are not copied more than needed."""

import socket
import struct
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from headwater.broker.inbox import Inbox
from headwater.broker.limits import Arena
from headwater.config import RECEIVE_BYTES
from headwater.errors import ProtocolError

FRAME_MAX = 10 * 1024**2


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Wire:
    """A socket of which each read gives the next of the pieces, and no more than was asked for."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.left = list(pieces)
        self.copied = 0

    def recv_into(self, room: memoryview) -> int:
        assert len(room) > 0, "a read of nothing would look like the end of the stream"
        piece = self.left[0][: len(room)]
        room[: len(piece)] = piece
        rest = self.left[0][len(piece) :]
        self.left[:1] = [rest] if rest else []
        return len(piece)


def read_all(pieces: list[bytes]) -> list[bytes]:
    inbox, wire, frames = Inbox(Arena(), FRAME_MAX), Wire(pieces), []
    while wire.left:
        inbox.receive(wire)
        while (frame := inbox.next_frame()) is not None:
            frames.append(bytes(frame))
        if need := inbox.need():
            inbox.grow(need)
    assert inbox.left == 0
    return frames


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([10, 11, 100, 4000, 4096, 70_000, 200_000]), min_size=1, max_size=8),
    seed=st.integers(0, 2**32),
)
def test_frames_come_out_as_they_went_in(sizes, seed):
    """However the bytes are cut, the same frames come out, in order."""
    random = Random(seed)
    bodies = [random.randbytes(size) for size in sizes]
    stream = b"".join(map(framed, bodies))
    pieces = []
    at = 0
    while at < len(stream):
        size = random.choice([1, 3, 5, 50, 1000, 65_536, 200_000])
        pieces.append(stream[at : at + size])
        at += size
    assert read_all(pieces) == bodies


@pytest.mark.parametrize("length", [2**31 - 1, -1, -(2**31), 0, 9, FRAME_MAX + 1])
def test_a_length_that_cannot_be_is_refused(length):
    """Before any memory is taken for it."""
    inbox = Inbox(Arena(), FRAME_MAX)
    inbox.receive(Wire([struct.pack(">i", length) + bytes(20)]))
    with pytest.raises(ProtocolError):
        inbox.next_frame()
    assert inbox.capacity == 0


def test_a_large_frame_is_read_to_its_end_and_no_further():
    """So that its payload lies at the beginning of its buffer, and the next frame begins a fresh read."""
    inbox = Inbox(Arena(), FRAME_MAX)
    body = bytes(range(256)) * 1000
    wire = Wire([framed(body) + framed(body)])
    while True:
        inbox.receive(wire)
        frame = inbox.next_frame()
        if frame is not None:
            break
        if need := inbox.need():
            inbox.grow(need)
    assert bytes(frame) == body
    assert inbox.left == 0
    assert inbox.capacity == len(body) + 4


def test_a_large_buffer_is_kept_for_the_next_large_frame_until_it_rests():
    """And a small one goes at once: an idle connection holds no memory."""
    inbox = Inbox(Arena(), FRAME_MAX)
    wire = Wire([framed(bytes(RECEIVE_BYTES * 2))])
    while wire.left:
        inbox.receive(wire)
        inbox.next_frame()
        if need := inbox.need():
            inbox.grow(need)
    assert inbox.capacity > RECEIVE_BYTES
    inbox.rest()
    assert inbox.capacity == 0
    wire = Wire([framed(bytes(100))[:50], framed(bytes(100))[50:]])
    while wire.left:
        inbox.receive(wire)
        inbox.next_frame()
        if need := inbox.need():
            inbox.grow(need)
    assert inbox.capacity == 0


def test_a_frame_that_was_handed_out_is_not_overwritten_by_what_follows_it():
    """It is still to be written to the log when the rest of the next one moves to the front."""
    inbox, arena = Inbox(Arena(), FRAME_MAX), Arena()
    first, second = b"a" * 100_000, b"b" * 100_000
    inbox = Inbox(arena, FRAME_MAX)
    wire = Wire([framed(first)[:70_000], framed(first)[70_000:] + framed(second)[:50], framed(second)[50:]])
    frames = []
    while wire.left:
        inbox.receive(wire)
        while (frame := inbox.next_frame()) is not None:
            frames.append(frame)
        if need := inbox.need():
            inbox.grow(need)
        if frames:
            assert bytes(frames[0]) == first
            break


def test_real_sockets_are_read_without_blocking():
    """What is not there raises BlockingIOError, and the end of the stream is 0."""
    one, other = socket.socketpair()
    one.setblocking(False)
    inbox = Inbox(Arena(), FRAME_MAX)
    with pytest.raises(BlockingIOError):
        inbox.receive(one)
    other.close()
    assert inbox.receive(one) == 0
    one.close()
