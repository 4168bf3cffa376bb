"""Looks the API server's name up in threads of its own.

The event loop's look-up shares the threads that all file work is done by: where those are busy, or
where a name server does not answer and holds them, a heartbeat would wait with everybody else.
"""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from kubeletpy.host.patient_threads import PatientThreads

LOOK_UPS = 2
"""At once, of one set of connections; aiohttp asks for a name only once at a time."""


class NameLookup(AbstractResolver):
    """For an aiohttp connector. Nobody waits for a look-up when the process ends."""

    def __init__(self) -> None:
        self._threads = PatientThreads(LOOK_UPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Addresses of a name. Raises OSError: it has none."""
        return await self._threads.run(_look_up, host, port, family)

    async def close(self) -> None:
        """Threads end by themselves."""


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    flags = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    try:
        found = socket.getaddrinfo(
            host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
    except UnicodeError as error:  # a label that no name may have
        raise OSError(None, f"{host[:253]}: no such host") from error
    # getnameinfo says the scope of a link-local address too
    return [
        ResolveResult(
            hostname=host,
            host=socket.getnameinfo(address, flags)[0],
            port=int(address[1]),
            family=each,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for each, _, protocol, _, address in found
    ]
