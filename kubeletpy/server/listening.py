"""Sockets that listen, and how many connections they take.

A connection over the limit is closed unread, so that clients that merely hold connections open can
cost no more than the limit. What a connection may do is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio import sslproto
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubeletpy.wire.accepting import ListeningSocket

if TYPE_CHECKING:
    from aiohttp import web

BACKLOG = 256
TLS_BUFFER = 32 << 10
GIVE_UP_MS = 60_000
"""Milliseconds after which the kernel drops a plain connection that accepts no data."""


def listen(address: str, port: int, *, short_answers: bool = False) -> ListeningSocket:
    """A listening socket; port 0 picks a free one. Raises OSError.

    Args:
        short_answers: no client may take longer than GIVE_UP_MS to read an answer, even after the
            answer has been handed to the kernel and the connection closed.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = ListeningSocket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address == "::" else 1)
        if short_answers:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GIVE_UP_MS)
        made.bind((address, port))
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    made.setblocking(False)
    return made


def small_tls_buffers() -> None:
    """Have asyncio read at most TLS_BUFFER of a TLS connection at once, in the whole process.

    Each connection keeps a buffer of that size even while idle: with asyncio's 256 KiB, a thousand
    idle clients would hold 256 MB.
    """
    sslproto.SSLProtocol.max_size = TLS_BUFFER


def limited(manager: web.Server, limit: int) -> Callable[[], asyncio.Protocol]:
    """Makes the protocol for a new connection, or one that closes it."""

    def connected() -> asyncio.Protocol:
        return manager() if len(manager.connections) < limit else _Refused()

    return connected


class _Refused(asyncio.Protocol):
    """Closes a connection over the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
