"""Bounds of HTTP/2 connections, and the selection of one for the next stream. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from kubeletpy.base.structs import Component, Struct

STREAM_WINDOW = 1024 * 1024
"""Bytes of a response that wait for their reader; a server may not send more."""
CONNECTION_WINDOW = 4 * 1024 * 1024
"""Bytes of all responses under way in the network. Given back on arrival, so that a response
that nobody reads stalls no other."""
MAX_HEADER_BYTES = 65536
"""Bytes of a response's headers, decoded. Kubernetes needs less than 1 kB."""
MAX_WRITE_BUFFER = 4 * 1024 * 1024
"""Bytes that a server may leave unread: requests, and answers to its settings and pings."""

FIRST_STREAMS = 100
"""Streams on a new connection, until the server has sent how many it allows."""
MAX_STREAMS = 1000
"""On one connection, whatever the server allows."""
HEADER_TABLE_BYTES = 4096
"""Bytes of request headers remembered to compress later ones, whatever the server allows."""
RESERVED_STREAMS = 30
"""Streams that watches leave to requests, of all connections: an agent's three clients have at most
ten requests under way each. If the server allows few streams, a quarter of them."""
RESERVED_WATCHES = 32
"""Streams reserved for watches not of pods' objects (pods, the node, services, …)."""
MAX_CONNECTIONS = 16
"""To one server. At 100 streams each (kube-apiserver's --http2-max-streams-per-connection by
default, which it announces) they carry 1,536 watches of pods' objects: 500 pods with three each."""
MAX_ENDING = 8
"""Connections that take no new streams, and wait for the end of those they have."""
MAX_REFUSALS = 3
"""Times that one request is sent again because the server had not begun with it."""

READ_IDLE_S = 15.0
"""Without a frame from the server, while it owes an answer, until a PING requests one."""
PING_TIMEOUT_S = 10.0
"""For the answer to a PING. Together 25 s: a dead connection is noticed within 30 s."""
IDLE_S = 60.0
"""How long a connection without streams is kept."""

CONTROL_BURST = 2000
CONTROL_PER_S = 100.0
CONTROL_PER_STREAM = 20
"""Frames that carry no answer (SETTINGS, PING, RST_STREAM, WINDOW_UPDATE, empty DATA, …): so many
at once and per second, and in addition for each request sent. Each costs us more than the
server."""


class FloodGuard(Component):
    """Counts a server's frames that carry no answer: a token bucket."""

    at: float
    """When tokens were last added."""

    def __post_init__(self) -> None:
        self._left = float(CONTROL_BURST)

    def opened(self) -> None:
        """A request was sent: its share is allowed in addition."""
        self._left += CONTROL_PER_STREAM

    def exceeded(self, frames: int, now: float) -> bool:
        """Take so many frames into account; returns whether there were too many."""
        if not frames:
            return False
        earned = self._left + (now - self.at) * CONTROL_PER_S
        # what streams have added may exceed the burst, but time does not
        self._left = max(self._left, min(earned, CONTROL_BURST)) - frames
        self.at = now
        return self._left < 0


# Selection of a connection for a stream.


class Load(Struct, frozen=True):
    """A connection.

    Attributes:
        usable: takes new streams: it is open, alive, and the server did not end it.
        streams: open ones.
        allowed: how many the server has announced that it allows.
    """

    usable: bool
    streams: int
    allowed: int


class Otherwise(Enum):
    """The action when no connection takes the stream."""

    CONNECT = auto()
    WAIT = auto()


def place(loads: Sequence[Load], *, lasting: bool) -> int | Otherwise:
    """The first connection with room, so that the others can end.

    Args:
        lasting: a watch: it leaves some streams to requests, wherever they are, and only when
            there can't be another connection takes one of these.
    """
    usable = [load for load in loads if load.usable]
    may_connect = len(usable) < MAX_CONNECTIONS
    if lasting and may_connect:
        allowed = sum(load.allowed for load in usable)
        free = sum(max(load.allowed - load.streams, 0) for load in usable)
        if free <= _reserved(allowed):
            return Otherwise.CONNECT
    for index, load in enumerate(loads):
        if load.usable and load.streams < load.allowed:
            return index
    return Otherwise.CONNECT if may_connect else Otherwise.WAIT


def watch_capacity(allowed: int) -> int:
    """Watches of pods' objects that all connections carry, beside requests and other watches.

    Args:
        allowed: streams that the server allows on a connection.
    """
    streams = allowed * MAX_CONNECTIONS
    return max(streams - _reserved(streams) - RESERVED_WATCHES, 0)


def _reserved(allowed: int) -> int:
    return min(RESERVED_STREAMS, allowed // 4)
