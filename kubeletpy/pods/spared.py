"""How a critical pod exceeds a limit of its local storage without being evicted. Pure."""

from __future__ import annotations

from kubeletpy.base.structs import Struct


class Spared(Struct, frozen=True):
    """The usage of one limit, in bytes.

    Attributes:
        of: what it limits, such as ``container main``.
        since: when it was measured first, in event-loop seconds.
    """

    of: str
    used: int
    limit: int
    since: float
