"""Responses in pieces of any size, and servers that send something other than a response."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.probes.handlers.http_messages import (
    MAX_CHUNKS,
    MAX_HEAD,
    MAX_INTERIM,
    MalformedResponse,
    ResponseReader,
)
from tests.unit.effort import calls
from tests.unit.proportion import is_linear

KEEP = 100

GOOD = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello", True),
    "empty": (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 503, b"", True),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
    "bare newlines": (b"HTTP/1.0 200 OK\nContent-Length: 1\n\nx", 200, b"x", True),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "not modified": (b"HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n", 304, b"", True),
    "until close": (b"HTTP/1.0 200 OK\r\n\r\nhello", 200, b"hello", False),
    "interim": (
        b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 100 Go\r\n\r\n"
        b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno",
        404,
        b"no",
        True,
    ),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
        200,
        b"abc0123456789",
        True,
    ),
    "chunks and bare newlines": (
        b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\nabc\n0\n",
        200,
        b"abc",
        True,
    ),
    "long": (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 500, 200, b"x" * KEEP, True),
    "long chunk": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n" + b"x" * 500,
        200,
        b"x" * KEEP,
        True,
    ),
}

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

BAD = [
    CHUNKED + b"\n" * 300,
    CHUNKED + b"1\r\nx\r\n\r\n",
    CHUNKED + b"1\r\nxy\r\n",
    CHUNKED + (b"1;" + b"x" * 250 + b"\r\ny\r\n") * 90,
    CHUNKED + b"-1\r\n",
    CHUNKED + b"0x1\r\ny\r\n",
    b"HTTP/1.1 100 Go\r\n\r\n" * (MAX_INTERIM + 1),
    (b"HTTP/1.1 103 Early\r\nLink: " + b"x" * 8000 + b"\r\n\r\n") * 9,
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"HTTP/2.0 200 OK\r\n\r\n",
    b"HTTP/1.1 20 OK\r\n\r\n",
    b"HTTP/1.1 2000 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 300,
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD,
    b"HTTP/1.1 100 Go\r\n\r\n" * 20 + b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD,
    b"\0" * 10,
]


def fed(data: bytes, sizes: list[int]) -> ResponseReader:
    reader = ResponseReader(KEEP)
    position = 0
    for size in [*sizes, len(data)]:
        reader.feed(data[position : position + size])
        position += size
    return reader


@given(st.sampled_from(sorted(GOOD)), st.lists(st.integers(1, 40), max_size=20))
def test_responses_in_any_pieces(name: str, sizes: list[int]) -> None:
    data, status, body, done = GOOD[name]
    reader = fed(data, sizes)
    assert (reader.status, bytes(reader.body), reader.done) == (status, body, done)
    reader.end()
    assert reader.done


@pytest.mark.parametrize("name", sorted(GOOD))
def test_responses_in_single_bytes(name: str) -> None:
    data, status, body, done = GOOD[name]
    reader = fed(data, [1] * len(data))
    assert (reader.status, bytes(reader.body), reader.done) == (status, body, done)


def test_a_bad_status_line_in_single_bytes() -> None:
    data = b"HTTP/1.1 20 OK\r\n\r\n"
    with pytest.raises(MalformedResponse, match=r"^malformed HTTP response b'HTTP/1\.1 20 OK'$"):
        fed(data, [1] * len(data))


def test_headers_have_names_and_the_first_of_a_name_counts() -> None:
    lines = b"Server:  a: b \r\nno header\r\nSERVER: c\r\nX-Server: d\r\n server: e\nlast:\xc4"
    reader = fed(b"HTTP/1.1 204 X: y\r\n" + lines + b"\n\n", [])
    names = ["server", "x-server", "last", "http/1.1 204 x", "no header", "e"]
    assert [reader.header(name) for name in names] == ["a: b", "d", "Ä", None, None, None]


def test_an_end_that_is_the_end_of_the_body() -> None:
    reader = fed(b"HTTP/1.1 200 OK\r\n\r\nall of it", [])
    assert not reader.done
    reader.end()
    assert (reader.done, bytes(reader.body)) == (True, b"all of it")


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_malformed_responses(data: bytes) -> None:
    with pytest.raises(MalformedResponse):
        fed(data, [1, 7])


@pytest.mark.parametrize("name", ["length", "chunks", "interim"])
def test_an_end_too_early(name: str) -> None:
    for cut in range(len(GOOD[name][0]) - 6):
        reader = ResponseReader(KEEP)
        reader.feed(GOOD[name][0][:cut])
        if not reader.done:
            problem = "unexpected EOF" if reader.status else "EOF"
            with pytest.raises(MalformedResponse, match=f"^{problem}$"):
                reader.end()


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), max_size=5))
def test_anything_at_all(data: bytes, sizes: list[int]) -> None:
    try:
        reader = fed(b"HTTP/1.1 200 OK\r\n" + data, sizes)
    except MalformedResponse:
        return
    assert len(reader.body) <= KEEP


def test_a_body_of_too_many_chunks_counts_as_complete() -> None:
    reader = ResponseReader(10 * MAX_CHUNKS)
    reader.feed(CHUNKED + b"1\r\nx\r\n" * MAX_CHUNKS)
    assert not reader.done
    reader.feed(b"1\r\n")
    assert (reader.done, bytes(reader.body)) == (True, b"x" * MAX_CHUNKS)


def test_a_body_that_is_not_needed_is_not_read() -> None:
    reader = ResponseReader(KEEP, lambda head: head.status != 302)
    reader.feed(CHUNKED.replace(b"200 OK", b"302 Found") + b"1\r\nx\r\n")
    assert (reader.done, reader.status, bytes(reader.body)) == (True, 302, b"")


COSTLY = {
    "chunks of one byte": CHUNKED + b"1\r\nx\r\n" * 10_240,
    "long lines of chunks": CHUNKED + b"000000000000001\nx\n" * 10_240,
    "short header lines": b"HTTP/1.1 200 OK\n" + b"a:\n" * 20_000 + b"\nx",
    "interim heads": b"HTTP/1.1 100 Go\n\n" * MAX_INTERIM + GOOD["length"][0],
    "trailers": CHUNKED + b"0\r\n" + b"a: b\r\n" * 10_000,
}


@pytest.mark.parametrize("name", sorted(COSTLY))
def test_the_work_for_an_answer_is_bounded_whatever_it_is_made_of(name: str) -> None:
    """10,240 chunks of one byte took 15 to 31 ms of the event loop (100,000 calls)."""
    reader = ResponseReader(10_240)
    assert calls(lambda: reader.feed(COSTLY[name])) < 6_000
    assert reader.status == 200


def test_memory_is_bounded_while_a_body_never_ends() -> None:
    reader = ResponseReader(KEEP)
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(1000):
        reader.feed(b"f\r\n" + b"x" * 15 + b"\r\n")
    assert reader.done
    assert len(reader._buffer) < 100


def head_in_single_bytes(size: int) -> None:
    reader = ResponseReader(KEEP)
    for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * size:
        reader.feed(bytes([byte]))


def body_in_single_bytes(size: int) -> None:
    reader = ResponseReader(size)
    reader.feed(CHUNKED + b"%x\r\n" % size)
    for _ in range(size):
        reader.feed(b"x")
    assert reader.done


@pytest.mark.parametrize("parse", [head_in_single_bytes, body_in_single_bytes])
def test_the_work_is_proportional_to_the_input(parse: Callable[[int], None]) -> None:
    """With quadratic work, a container could stop the agent for seconds."""
    assert is_linear(parse)
