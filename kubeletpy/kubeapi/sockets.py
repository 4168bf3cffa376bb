"""TCP connections to an API server: options that notice when it has vanished."""

from __future__ import annotations

import socket
from typing import Any

_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)
"""A server that has vanished is noticed within half a minute, also by a silent watch on HTTP/1.1.

With TCP_USER_TIMEOUT set Linux does not count probes (TCP_KEEPCNT): it gives up at the first that
is due after that time without an answer. Three are sent before.
"""


def new_socket(address: Any) -> socket.socket:
    """A socket for an address as ``getaddrinfo`` returns it."""
    family, kind, protocol, _name, _address = address
    new = socket.socket(family=family, type=kind, proto=protocol)
    for level, option, value in _OPTIONS:
        new.setsockopt(level, option, value)
    return new
