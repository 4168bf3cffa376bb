"""Responses to an upgrade, split into any pieces, and the cost of reading them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kubeletpy.base.wire.upgrade import (
    MAX_ERROR_BODY,
    MAX_HEAD,
    UpgradeFailed,
    UpgradeResponse,
    read_answer,
)
from tests.kit.costs import is_linear

REFUSED = b"HTTP/1.1 403 Forbidden\r\n"


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.paused = False

    def pause_reading(self) -> None:
        self.paused = True


def read(text: bytes, piece: int, *, ends: bool = True) -> UpgradeResponse:
    """The response read from an answer that arrives in pieces of one size."""

    async def reads() -> UpgradeResponse:
        reader = asyncio.StreamReader(limit=MAX_HEAD)
        reading = asyncio.ensure_future(read_answer(reader, _Transport()))
        for at in range(0, len(text), piece):
            if not reading.done():
                reader.feed_data(text[at : at + piece])
                await asyncio.sleep(0)
        if ends:
            reader.feed_eof()
        async with asyncio.timeout(60):
            return await reading

    return asyncio.run(reads())


@pytest.mark.parametrize("piece", [1, 3, 70_000])
def test_answers_in_any_pieces(piece: int) -> None:
    upgraded = read(b"HTTP/1.1 101 Switching\r\nUpgrade: SPDY/3.1\r\n\r\n", piece, ends=False)
    assert (upgraded.status, upgraded.header("upgrade"), upgraded.rest) == (101, "SPDY/3.1", b"")
    assert isinstance(upgraded.transport, _Transport)
    assert upgraded.transport.paused
    sized = read(REFUSED + b"Content-Length: 2\r\n\r\nno", piece, ends=False)
    assert (sized.status, sized.body) == (403, b"no")
    assert read(REFUSED + b"Content-Length: 0\r\n\r\n", piece, ends=False).body == b""
    assert read(REFUSED + b"\r\nuntil the end", piece).body == b"until the end"
    chunks = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"
    assert read(REFUSED + chunks, piece).body == b"abc0123456789"
    long = read(REFUSED + b"Content-Length: 999999\r\n\r\n" + b"x" * 99_999, piece, ends=False)
    assert len(long.body) <= MAX_ERROR_BODY + piece


@pytest.mark.parametrize("text", [b"", b"SSH-2.0\r\n\r\n", REFUSED + b"X: " + b"x" * 70_000])
def test_malformed_responses_are_refused(text: bytes) -> None:
    with pytest.raises(UpgradeFailed):
        read(text, 100)


@pytest.mark.parametrize("size", [b"-5", b"", b"zz", b"1" * 16])
def test_a_chunk_of_no_size_ends_a_body(size: bytes) -> None:
    answer = read(REFUSED + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n" + size + b"\r\ny", 99)
    assert answer.body == b"x"


def head_in_single_bytes(size: int) -> None:
    read(REFUSED + b"X: " + b"x" * size + b"\r\nContent-Length: 0\r\n\r\n", 1, ends=False)


def body_in_single_bytes(size: int) -> None:
    read(REFUSED + b"X: " + b"x" * size + b"\r\n\r\n" + b"x" * size, 1)


@pytest.mark.parametrize("work", [head_in_single_bytes, body_in_single_bytes])
def test_the_work_is_in_proportion_to_what_came(work: Callable[[int], None]) -> None:
    assert is_linear(work)
