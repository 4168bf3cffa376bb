"""Consecutive gzip members, decompressed immediately and within bounds."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
import time
import zlib
from collections.abc import AsyncIterator

import pytest

from kubeletpy.kubeapi.transport import (
    MAX_SILENT_BYTES,
    PIECE_BYTES,
    Inflater,
    TransportError,
    decompressed,
    new_socket,
)
from tests.kit.messages import member, opened

KIB, MIB = 1 << 10, 1 << 20
EVENTS = [b'{"type":"ADDED","object":%d}\n' % number for number in range(300)]


def inflated(*chunks: bytes) -> bytes:
    inflater = Inflater()
    found = b"".join(piece for chunk in chunks for piece in inflater.decompress(chunk))
    inflater.end()
    return found


@pytest.mark.parametrize("size", [1, 2, 7, 19, 20, 21, 1000, 100_000])
def test_members_in_pieces_of_any_size(size: int) -> None:
    body = b"".join(map(member, EVENTS))
    assert inflated(*(body[at : at + size] for at in range(0, len(body), size))) == b"".join(EVENTS)


def test_a_flushed_event_is_returned_before_its_member_ends() -> None:
    inflater = Inflater()
    for event in EVENTS:
        data, end = opened(event)
        assert b"".join(inflater.decompress(data)) == event
        assert list(inflater.decompress(end)) == []
        inflater.end()


@pytest.mark.parametrize("size", range(PIECE_BYTES - 300, PIECE_BYTES + 300, 37))
def test_output_that_fills_a_piece_is_not_left_inside(size: int) -> None:
    """If zlib keeps output after all input, a watch would get it one event later."""
    body = gzip.compress(bytes(size))
    for end in range(len(body)):
        inflater, unbounded = Inflater(), zlib.decompressobj(31)
        pieces = list(inflater.decompress(body[:end]))
        assert max(map(len, pieces), default=0) <= PIECE_BYTES
        assert sum(map(len, pieces)) == len(unbounded.decompress(body[:end]))


def test_an_empty_body_is_empty() -> None:
    """A watch that ended before its first event has no member."""
    assert inflated() == inflated(b"") == inflated(member(b"")) == b""


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"plain", "is no gzip: "),
        (member(b"hello") + b"trailing garbage", "is no gzip after its member 1: "),
        (member(b"hello") + bytes(512), "is no gzip after its member 1: "),
        (member(b"hello") * 2 + member(b"x")[:-1] + b"?", "is no gzip after its member 2: "),
        (member(b"hello")[:-8] + bytes(8), "is no gzip: .*incorrect data check"),
        (member(b"hello")[:-1], "ends before its gzip"),
        (member(b"hello") + b"\x1f", "ends before its gzip"),
        (member(b"hello") + opened(b"more")[0], "ends before its gzip"),
    ],
)
def test_bytes_that_are_not_members(body: bytes, error: str) -> None:
    for chunks in ([body], [body[at : at + 1] for at in range(len(body))]):
        with pytest.raises(TransportError, match=error):
            inflated(*chunks)


NAME_WITHOUT_END = b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * MIB
EMPTY_BLOCKS = opened(b"")[0] + b"\x00\x00\x00\xff\xff" * 200_000
EMPTY_MEMBERS = member(b"") * 50_000


@pytest.mark.parametrize("body", [NAME_WITHOUT_END, EMPTY_BLOCKS, EMPTY_MEMBERS])
@pytest.mark.parametrize("chunk", [MIB, 100])
def test_gzip_that_contains_nothing_ends_at_a_bound(body: bytes, chunk: int) -> None:
    inflater, taken = Inflater(), 0
    began = time.thread_time()
    with pytest.raises(TransportError, match="contain nothing"):
        for at in range(0, len(body), chunk):
            taken = at
            assert list(inflater.decompress(body[at : at + chunk])) == []
    assert taken <= MAX_SILENT_BYTES + chunk
    assert time.thread_time() - began < 0.5


def test_some_empty_members_are_skipped() -> None:
    body = (member(b"") * 500 + member(b"event\n")) * 20
    assert inflated(body) == b"event\n" * 20


@pytest.mark.parametrize("encoding", ["br", "deflate", "zstd", "gzip, gzip"])
async def test_other_encodings_are_refused(encoding: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"x"

    with pytest.raises(TransportError, match="not requested"):
        _ = [piece async for piece in decompressed(encoding, chunks())]


@pytest.mark.parametrize(
    "body", [gzip.compress(bytes(64 * MIB)), member(b"\n") * 30_000], ids=["bomb", "tiny members"]
)
async def test_the_loop_runs_between_pieces(body: bytes) -> None:
    """A megabyte that inflates to much more, or to 30,000 members, takes many turns of the loop."""

    async def chunks() -> AsyncIterator[bytes]:
        yield body

    longest, turned = 0.0, 0
    done = False

    async def watching() -> None:
        nonlocal longest, turned
        last = time.thread_time()
        while not done:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last, turned = max(longest, now - last), now, turned + 1

    watch = asyncio.ensure_future(watching())
    size = 0
    async for piece in decompressed("gzip", chunks()):
        size += len(piece)
        assert len(piece) <= PIECE_BYTES
    done = True
    await watch
    assert turned >= size // PIECE_BYTES
    assert longest < 0.05


def test_a_large_answer_costs_little_more_than_zlib() -> None:
    """The remaining input is copied for each piece; with 16 KiB that is little."""
    text = random.Random(1).randbytes(300_000).hex().encode() * 20
    packed = gzip.compress(text, 1)
    began = time.thread_time()
    assert gzip.decompress(packed) == text
    plain = time.thread_time() - began
    began = time.thread_time()
    assert inflated(packed) == text
    assert time.thread_time() - began < 5 * plain + 0.05


# A server that has vanished is detected soon, but not after a single lost packet.


def test_several_probes_are_lost_before_a_connection_is() -> None:
    with new_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as made:
        first, pause, milliseconds = (
            made.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT)
        )
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    sent = range(first, milliseconds // 1000, pause)
    assert len(sent) == 3
    assert milliseconds <= 30_000
