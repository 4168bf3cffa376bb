"""Where a pull stands: in the queue, or under way. Pure."""

from __future__ import annotations

from kubeletpy.base.structs import Struct


class PullPosition(Struct, frozen=True):
    """One pull. The CRI reports nothing of a pull between its call and its answer, so that how much
    has arrived is not known.

    Attributes:
        since: event-loop seconds at which it was queued, or began.
        ahead: how many pulls come before it; None: it is under way.
        running: how many pulls are under way.
        limit: how many may be; None: no limit.
    """

    since: float
    ahead: int | None
    running: int
    limit: int | None
