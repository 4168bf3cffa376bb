"""Ports as handlers specify them: a number, or the name of a container port. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from kubeletpy.base.api import types as api
from kubeletpy.probes.handlers.outcome import HandlerError

LOOPBACK = "127.0.0.1"
"""Where a pod on the host's network is reached while the node has no address."""


def resolve_port(port: object, ports: Iterable[api.ContainerPort]) -> int:
    """The number of a port; a name without a container port may still be a number in a string.

    Raises:
        HandlerError: there is no such port.
    """
    number = port
    if isinstance(port, str):
        named = (each.get("containerPort") for each in ports if each.get("name") == port)
        number = next(named, None)
        if number is None:
            if not (port.isascii() and port.isdigit() and len(port) <= 5):
                raise HandlerError(f"port {port[:63]} not found")
            number = int(port)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 65536:
        raise HandlerError(f"invalid port number: {number!s:.20}")
    return number


def is_address(host: str) -> bool:
    """Whether a host is an IP address, possibly with a zone."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def host_port(host: str, port: int | str) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
