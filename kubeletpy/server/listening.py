"""Sockets that listen. Connections are limited and accepted elsewhere (:mod:`kubeletpy.wire`)."""

from __future__ import annotations

import errno
import ipaddress
import socket

from kubeletpy.wire.accepting import ListeningSocket
from kubeletpy.wire.listener import BACKLOG

GIVE_UP_MS = 60_000
"""Milliseconds after which the kernel drops a plain connection that accepts no data."""


_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""Errors of a kernel without IPv6 (``ipv6.disable``, or not built)."""


def listen(address: str, port: int, *, short_answers: bool = False) -> ListeningSocket:
    """A listening socket; port 0 picks a free one. Raises OSError.

    ``0.0.0.0`` and ``::`` both mean all addresses of IPv4 and IPv6, whatever the kernel's
    ``bindv6only`` is, as for the kubelet (docs/reference/config.csv: address). A kernel without
    IPv6 has those of IPv4.

    Args:
        address: an IP address.
        short_answers: no client may take longer than GIVE_UP_MS to read an answer, even after the
            answer has been handed to the kernel and the connection closed.
    """
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    if not parsed.is_unspecified:
        return _listen(str(parsed), port, v6_only=True, short_answers=short_answers)
    try:
        return _listen("::", port, v6_only=False, short_answers=short_answers)
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
    return _listen("0.0.0.0", port, v6_only=False, short_answers=short_answers)


def _listen(address: str, port: int, *, v6_only: bool, short_answers: bool) -> ListeningSocket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = ListeningSocket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6_only)
        if short_answers:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GIVE_UP_MS)
        made.bind((address, port))
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    made.setblocking(False)
    return made
