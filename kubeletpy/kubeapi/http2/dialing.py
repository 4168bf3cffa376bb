"""Opens connections: TCP, TLS, and what the server has chosen to speak."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from typing import cast
from urllib.parse import urlsplit

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from kubeletpy.kubeapi.credentials import Connection
from kubeletpy.kubeapi.http2.limits import CLOSE_S
from kubeletpy.kubeapi.name_lookup import NameLookup
from kubeletpy.kubeapi.sockets import new_socket

_NEXT_ADDRESS_S = 0.25
"""RFC 8305: how long one address is tried alone."""


class Undecided(asyncio.Protocol):
    """A connection before the first request; keeps what the server sends first.

    Attributes:
        transport: the connection.
        early: bytes that came with the end of the handshake.
        lost: whether it is closed.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.early = bytearray()
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """A server may begin; no more is kept than one read brings."""
        assert self.transport is not None
        self.transport.pause_reading()
        self.early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """The server has closed it."""
        self.lost = True

    @property
    def speaks_http2(self) -> bool:
        """Whether the server has chosen HTTP/2 in the handshake."""
        assert self.transport is not None
        found: ssl.SSLObject | None = self.transport.get_extra_info("ssl_object")
        return found is not None and found.selected_alpn_protocol() == "h2"


async def dial(to: Connection, names: NameLookup, seconds: float) -> Undecided:
    """Connect, within so many seconds. Raises OSError (TimeoutError, SSLError) if that fails."""
    assert to.ssl is not None, "HTTP/2 is chosen in a TLS handshake"
    parts = urlsplit(to.host)
    host, port = parts.hostname or "", parts.port or 443
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(seconds):
        connected = await aiohappyeyeballs.start_connection(
            await _addresses(host, port, names),
            happy_eyeballs_delay=_NEXT_ADDRESS_S,
            socket_factory=new_socket,
        )
        try:
            _, protocol = await loop.create_connection(
                Undecided,
                sock=connected,
                ssl=to.ssl,
                server_hostname=to.server_hostname or host,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=CLOSE_S,
            )
        except BaseException:
            connected.close()
            raise
    return protocol


async def _addresses(host: str, port: int, names: NameLookup) -> list[AddrInfoType]:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        found = await names.resolve(host, port, socket.AF_UNSPEC)
        return [_address(each["host"], port) for each in found]
    return [_address(host, port)]


def _address(ip: str, port: int) -> AddrInfoType:
    if ":" in ip:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, port)
