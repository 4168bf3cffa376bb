"""TCP connections to an API server: options that notice when it has vanished."""

from __future__ import annotations

import socket
from typing import Any

_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)
"""A server that has vanished is noticed within a minute, also by a silent watch on HTTP/1.1."""


def new_socket(address: Any) -> socket.socket:
    """A socket for an address as ``getaddrinfo`` returns it."""
    family, kind, protocol, _name, _address = address
    new = socket.socket(family=family, type=kind, proto=protocol)
    for level, option, value in _OPTIONS:
        new.setsockopt(level, option, value)
    return new
