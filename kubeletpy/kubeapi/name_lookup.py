"""Resolves the API server's name in its own threads.

The event loop's lookup shares its threads with all file work. If those are busy, or blocked by a
name server that does not answer, a heartbeat would wait with everything else.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from kubeletpy.base.host.patient_threads import PatientThreads

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

LOOK_UPS = 2
"""At once, for one set of connections; aiohttp looks up a name only once at a time."""


class NameLookup:
    """Addresses, as aiohttp's resolvers give them. Process exit does not wait for a lookup."""

    def __init__(self) -> None:
        self._threads = PatientThreads(LOOK_UPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Addresses of a name. Raises OSError if it has none."""
        return await self._threads.run(_resolve_name, host, port, family)

    async def close(self) -> None:
        """Threads end by themselves."""


def _resolve_name(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    flags = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    try:
        found = socket.getaddrinfo(
            host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
    except UnicodeError as error:  # a label that is invalid in any name
        raise OSError(None, f"{host[:253]}: no such host") from error
    # getnameinfo also returns the scope of a link-local address
    return [
        {
            "hostname": host,
            "host": socket.getnameinfo(address, flags)[0],
            "port": int(address[1]),
            "family": each,
            "proto": protocol,
            "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        }
        for each, _, protocol, _, address in found
    ]
