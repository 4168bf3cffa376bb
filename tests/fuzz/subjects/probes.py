"""Answers of containers to probes and hooks."""

from __future__ import annotations

from kubeletpy.probes.handlers.http_messages import MalformedResponse, ResponseReader
from tests.fuzz.target import pieces, target

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
KEEP = 1000


def _read(parts: list[bytes]) -> tuple[int, str | None, bytes, bool, bool]:
    reader = ResponseReader(KEEP)
    try:
        for part in parts:
            reader.feed(part)
        reader.end()
    except MalformedResponse:
        return reader.status, None, b"", False, True
    assert len(reader.body) <= KEEP
    return reader.status, reader.header("location"), bytes(reader.body), reader.done, False


@target(
    seeds=(b"\0\0" + PLAIN, b"\0\0" + CHUNKED, b"\0\0" + INTERIM * 3 + PLAIN),
    parts=(PLAIN, CHUNKED, INTERIM, b"\r\n\r\n", b"\r\n", b"\n\n", b"HTTP/1.0 301 x", b"chunked"),
)
def http_answers(data: bytes) -> None:
    """The same is read however an answer is cut into pieces."""
    parts = list(pieces(data))
    assert _read(parts) == _read([b"".join(parts)])
