"""The client half of an HTTP/1.1 upgrade: connects, sends the request, and hands over the raw
connection.

Reads one response head of bounded size and nothing after it. Must never follow a redirect.
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

_END = b"\r\n\r\n"
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


class _HeadReader(asyncio.Protocol):
    """Collects a response's head, and the body if it is not an upgrade."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self._head_end = -1
        self._enough = 0
        """Bytes after which a response that is not an upgrade is complete, or long enough."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._head_end < 0:
            # each byte is scanned once, however the response is split
            searched = max(len(self.data) - len(_END) + 1, 0)
            self.data += data
            self._head_end = self.data.find(_END, searched)
            if self._head_end >= 0:
                self._head_is_there()
            elif len(self.data) > MAX_HEAD:
                self._finish()
        else:
            self.data += data
        if self._head_end >= 0 and len(self.data) >= self._enough:
            self._finish()

    def _head_is_there(self) -> None:
        if self.data[9:12] == b"101":
            # what follows is not ours to read
            self.transport.pause_reading()
            self._finish()
            return
        length = _content_length(bytes(self.data[: self._head_end]))
        most = MAX_ERROR_BODY if length is None else min(length, MAX_ERROR_BODY)
        self._enough = self._head_end + len(_END) + most

    def eof_received(self) -> None:
        self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


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
    try:
        async with asyncio.timeout(timeout):
            transport, reader = await loop.create_connection(
                _HeadReader,
                host,
                port,
                ssl=tls,
                server_hostname=(server_name or host) if tls is not None else None,
            )
            try:
                transport.write(("\r\n".join(head) + "\r\n\r\n").encode("latin-1", "replace"))
                await reader.done
                answer = _parse_answer(reader)
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


def _parse_answer(reader: _HeadReader) -> UpgradeResponse:
    head, found, rest = bytes(reader.data).partition(_END)
    lines = head.decode("latin-1").split("\r\n")
    version, _, status = lines[0].partition(" ")
    code, _, reason = status.partition(" ")
    if not found or not version.startswith("HTTP/1.") or not _CODE.fullmatch(code):
        raise UpgradeFailed("the answer is not HTTP/1.1")
    headers: Headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers.append((name.strip(), value.strip()))
    answer = UpgradeResponse(int(code), reason, headers, reader.transport)
    if answer.status == 101:
        answer.rest = rest
    else:
        answer.body = _unchunked(rest) if "chunked" in answer.header("transfer-encoding") else rest
    return answer


def _content_length(head: bytes) -> int | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None


def _unchunked(data: bytes) -> bytes:
    """The text of a chunked body, as far as received."""
    text, at = bytearray(), 0
    while (size := _CHUNK_SIZE.match(data, at)) is not None and (length := int(size[1], 16)):
        at = size.end()
        text += data[at : at + length]
        at += length + 2
    return bytes(text)
