"""The options of an exec, attach or port-forward request, and its route to the runtime. Pure.

Source: docs/reference/server.csv: streaming.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from kubeletpy.base.structs import Struct

V5 = "v5.channel.k8s.io"
TUNNEL = "SPDY/3.1+portforward.k8s.io"
MAX_PORTS = 64
MAX_DIGITS = 16
"""Maximum digits of a port, including leading zeros."""


class BadStreamRequest(ValueError):
    """Raised with the problem of a request; answered with 400."""


class StreamRoute(Enum):
    """The way in which a client's upgrade reaches the runtime."""

    RAW = auto()
    """Unchanged: SPDY, and WebSockets that the runtime speaks itself."""
    TRANSLATED = auto()
    """A WebSocket that can close one direction, which no runtime's WebSocket supports."""
    TUNNELLED = auto()
    """SPDY inside a WebSocket."""


class Streams(Struct, frozen=True):
    """The requested streams of a process."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


def read_streams(query: Sequence[tuple[str, str]]) -> Streams:
    """Return the streams of a query: only ``1`` means on, and a terminal has no stderr of its own.

    Raises:
        BadStreamRequest: none is requested.
    """
    first = dict(reversed(query))
    stdin, stdout, stderr, tty = (
        first.get(name) == "1" for name in ("input", "output", "error", "tty")
    )
    if not (stdin or stdout or stderr):
        raise BadStreamRequest("you must specify at least 1 of stdin, stdout, stderr")
    return Streams(stdin, stdout, stderr and not tty, tty)


def read_ports(query: Sequence[tuple[str, str]], *, websocket: bool) -> list[int]:
    """Return the ports of a port-forward over a plain WebSocket; SPDY names its ports by stream.

    Raises:
        BadStreamRequest: no port, or an invalid one.
    """
    if not websocket:
        return []
    ports: list[int] = []
    for text in (part for key, value in query if key == "port" for part in value.split(",")):
        if not (
            text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS and 0 < int(text) < 65536
        ):
            raise BadStreamRequest(f'invalid port "{text[:20]}"')
        ports.append(int(text))
    if not ports or len(ports) > MAX_PORTS:
        raise BadStreamRequest('query parameter "port" is required')
    return ports


def offered_protocols(header: str) -> list[str]:
    """Return the subprotocols of a Sec-WebSocket-Protocol header."""
    return [part.strip() for part in header.split(",") if part.strip()]


def stream_route(upgrade: str, protocols: Sequence[str]) -> StreamRoute:
    """Return the route of a request, by its Upgrade header and subprotocols."""
    if upgrade.lower() != "websocket":
        return StreamRoute.RAW
    if TUNNEL in protocols:
        return StreamRoute.TUNNELLED
    return StreamRoute.TRANSLATED if V5 in protocols else StreamRoute.RAW
