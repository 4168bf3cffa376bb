"""The outcome of querying a container, and the ports and addresses that are queried. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from enum import StrEnum

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct

KEPT_OUTPUT = 10 * 1024
"""Bytes of a body or of a command's output that are kept.

Source: docs/reference/constants.csv: body kept, exec output kept.
"""


class HandlerResult(StrEnum):
    """The three possible answers; without an answer, HandlerError is raised instead."""

    SUCCESS = "success"
    WARNING = "warning"
    """Works, but not as intended: a redirect to another host."""
    FAILURE = "failure"


class Reply(Struct, frozen=True):
    """An answer and its text: at most KEPT_OUTPUT bytes from the container, untrusted."""

    answer: HandlerResult
    output: str = ""
    exit_code: int | None = None
    """Exit code of a command that ended."""


class HandlerError(Exception):
    """The container could not be queried, so its health is unknown."""


# Ports and addresses

LOOPBACK = "127.0.0.1"
"""Where a pod on the host's network is reached while the node has no address."""


def resolve_port(port: object, ports: Iterable[api.ContainerPort]) -> int:
    """Return the number of a port, which a handler specifies as such or by a container port's name.

    A name without a container port may still be a number in a string.

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
