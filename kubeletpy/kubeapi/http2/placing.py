"""Which connection takes the next stream. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.http2.limits import MAX_CONNECTIONS, RESERVED_STREAMS, RESERVED_WATCHES


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
