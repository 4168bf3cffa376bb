"""Sockets that listen. Connections are limited and accepted elsewhere (:mod:`kubeletpy.wire`)."""

from __future__ import annotations

import socket

from kubeletpy.wire.accepting import ListeningSocket
from kubeletpy.wire.listener import BACKLOG

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
