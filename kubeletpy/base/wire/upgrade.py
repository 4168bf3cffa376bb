"""Requests an upgrade of an HTTP/1.1 connection, and hands over the raw connection.

It reads one response head of bounded size and nothing after it, and follows no redirect.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable

from kubeletpy.base.structs import Struct

MAX_HEAD = 64 << 10
"""Maximum bytes of a response's status line and headers."""
MAX_ERROR_BODY = 64 << 10
_CODE = re.compile("[1-5][0-9][0-9]")
HOP_HEADERS = frozenset(
    {
        "host",
        "authorization",
        "cookie",
        "proxy-authorization",
        "content-length",
        "transfer-encoding",
        "keep-alive",
        "te",
        "trailer",
        "expect",
    }
)
"""Request headers that are not for the next hop; ``Connection: Upgrade`` is."""

Headers = list[tuple[str, str]]

_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


class UpgradeFailed(Exception):
    """The server can't be reached, or its response is invalid."""


class UpgradeResponse(Struct):
    """The response: the head, and the connection if it is an upgrade (status 101).

    Attributes:
        transport: to be closed by the caller after an upgrade; otherwise closed already.
        rest: bytes received after the head.
        body: of a response that is not an upgrade, truncated to MAX_ERROR_BODY.
    """

    status: int
    reason: str
    headers: Headers
    transport: asyncio.Transport
    rest: bytes = b""
    body: bytes = b""

    def header(self, name: str) -> str:
        """The first header of that name, or an empty string."""
        return next((value for key, value in self.headers if key.lower() == name), "")


async def request_upgrade(
    host: str,
    port: int,
    *,
    method: str,
    target: str,
    headers: Iterable[tuple[str, str]],
    timeout: float,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
) -> UpgradeResponse:
    """Request an upgrade; after one the caller owns the answer's transport and closes it.

    Args:
        target: path and query, as sent on the wire.
        server_name: the name that the certificate must match; ``host`` if empty.

    Raises:
        UpgradeFailed: no connection, no answer within ``timeout`` seconds, or not HTTP/1.1.
    """
    loop = asyncio.get_running_loop()
    head = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if any("\r" in line or "\n" in line for line in head) or " " in target:
        raise UpgradeFailed("the request has a line break in its head")
    reader = asyncio.StreamReader(limit=MAX_HEAD)
    try:
        async with asyncio.timeout(timeout):
            transport, _ = await loop.create_connection(
                lambda: asyncio.StreamReaderProtocol(reader),
                host,
                port,
                ssl=tls,
                server_hostname=(server_name or host) if tls is not None else None,
            )
            try:
                transport.write(("\r\n".join(head) + "\r\n\r\n").encode("latin-1", "replace"))
                answer = await read_answer(reader, transport)
                if answer.status != 101:
                    transport.abort()
                return answer
            except BaseException:
                transport.abort()
                raise
    except (OSError, TimeoutError) as error:
        why = str(error) or "no answer in time"
        where = f"[{host}]" if ":" in host else host
        raise UpgradeFailed(f"{where}:{port}: {why}") from error


async def read_answer(
    reader: asyncio.StreamReader, transport: asyncio.Transport
) -> UpgradeResponse:
    """Read a response, whose limit is that of ``reader``; after an upgrade ``transport`` is paused.

    Raises:
        UpgradeFailed: it is not HTTP/1.1, or its head is too large.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise UpgradeFailed("the answer is not HTTP/1.1") from error
    lines = head.decode("latin-1").split("\r\n")
    version, _, status = lines[0].partition(" ")
    code, _, reason = status.partition(" ")
    if not version.startswith("HTTP/1.") or not _CODE.fullmatch(code):
        raise UpgradeFailed("the answer is not HTTP/1.1")
    headers: Headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers.append((name.strip(), value.strip()))
    answer = UpgradeResponse(int(code), reason, headers, transport)
    if answer.status == 101:
        transport.pause_reading()  # the rest is for another protocol
        reader.feed_eof()
        answer.rest = await reader.read()
        return answer
    length = answer.header("content-length")
    most = min(int(length), MAX_ERROR_BODY) if length.isdecimal() else MAX_ERROR_BODY
    body = bytearray()
    while len(body) < most and (piece := await reader.read(most - len(body))):
        body += piece
    chunked = "chunked" in answer.header("transfer-encoding")
    answer.body = _unchunked(bytes(body)) if chunked else bytes(body)
    return answer


def _unchunked(data: bytes) -> bytes:
    """The text of a chunked body, as far as received."""
    text, at = bytearray(), 0
    while (size := _CHUNK_SIZE.match(data, at)) is not None and (length := int(size[1], 16)):
        at = size.end()
        text += data[at : at + length]
        at += length + 2
    return bytes(text)
