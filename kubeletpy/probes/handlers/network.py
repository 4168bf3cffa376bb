"""Names and sockets for handlers: addresses, and the wording of their errors.

Names are resolved in dedicated threads, so that an unresponsive name server delays only name
resolution. Must never block the event loop; that is why SO_LINGER is not set: on Linux closing a
lingering socket blocks, even if the socket is non-blocking.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket

from kubeletpy.base.host.errors import exhausted
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.probes.handlers.outcome import HandlerError
from kubeletpy.probes.handlers.ports import is_address

RESOLVER_THREADS = 4

_WORDS = {
    errno.ECONNREFUSED: "connect: connection refused",
    errno.EHOSTUNREACH: "connect: no route to host",
    errno.ENETUNREACH: "connect: network is unreachable",
    errno.ETIMEDOUT: "connect: connection timed out",
    errno.ECONNRESET: "connection reset by peer",
}


def raise_if_not_probed(error: Exception) -> None:
    """A container's health is unknown when it could not be probed for lack of descriptors
    or threads: nothing is restarted for that. Raises HandlerError."""
    if (cause := exhausted(error)) is not None:
        raise HandlerError(f"the container could not be probed: {cause}") from error


class Resolver:
    """Resolves hosts to addresses."""

    def __init__(self) -> None:
        self._threads = PatientThreads(RESOLVER_THREADS)

    async def address(self, host: str) -> str:
        """An IP address for a host; an address stays the same. Raises OSError if there is none."""
        return host if is_address(host) else await self._threads.run(_resolve_host, host)


def _resolve_host(host: str) -> str:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is invalid in names
        raise OSError(f"lookup {host[:253]}: no such host") from error
    except socket.gaierror as error:
        raise OSError(f"lookup {host[:253]}: {error.strerror or 'no such host'}") from error
    return str(found[0][4][0])


def in_words(error: OSError) -> str:
    """The text of a system call's error, as the kubelet words it."""
    if error.errno in _WORDS:
        return _WORDS[error.errno]
    if error.errno is None:
        return str(error) or type(error).__name__
    return (error.strerror or os.strerror(error.errno)).lower()


async def connected(address: str, port: int) -> socket.socket:
    """A non-blocking TCP socket that is connected to an address. Raises OSError."""
    sock = new_socket(address)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def new_socket(address: str) -> socket.socket:
    """A non-blocking TCP socket for an address. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock
