"""Sockets that listen. Connections are limited and accepted elsewhere (:mod:`kubeletpy.base.wire`)."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Collection

from kubeletpy.base.wire.listener import BACKLOG, ListeningSocket
from kubeletpy.probes.handlers.outcome import host_port
from kubeletpy.server.errors import ServerError

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


def is_free(address: str, port: int) -> bool:
    """Whether no program listens at a port, even if the address can't be listened at anyway."""
    try:
        listen(address, port).close()
    except ValueError:
        return True  # it is not an address
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    return True


def next_free_port(address: str, port: int, excluded: Collection[int] = ()) -> int:
    """The first free port after one, or 0 if there is none.

    Programs find it again more easily than one that the kernel chooses, and the kernel gives ports
    of this range to no outgoing connection.
    """
    after = (each for each in range(port + 1, 65536) if each not in excluded)
    return next((each for each in after if is_free(address, each)), 0)


def listen_error(field: str, flag: str, address: str, port: int, error: OSError) -> ServerError:
    """Why the agent can't listen where a field of the configuration requests it, and the remedy."""
    text = f"{field}: can't listen on {host_port(address, port)}: {error.strerror or error}; "
    if error.errno != errno.EADDRINUSE:
        return ServerError(f"{text}choose another {field} or another address")
    return ServerError(
        f"{text}`ss -ltnp 'sport = :{port}'` shows the program that does, such as another kubelet. "
        f"Stop it, or choose another port: kubeletpy run … {flag}={next_free_port(address, port)}, "
        f"or {field} in the file of --config"
    )
