"""The load of the connections to an API server, and how the last one was lost. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from kubeletpy.base.structs import Struct, replace

HTTP1, HTTP2 = "HTTP/1.1", "HTTP/2"


class Usage(Struct, frozen=True):
    """Connections to one server. Times are on the event loop's clock.

    Attributes:
        protocols: open connections by protocol; of HTTP/1.1 those with a request.
        streams: requests and watches under way.
        watches: how many of these are watches.
        since: when the oldest HTTP/2 connection was opened.
        lost: HTTP/2 connections that broke or that the server ended, since the start.
        lost_at: when the last one was.
        lost_why: and why.
    """

    protocols: dict[str, int]
    streams: int = 0
    watches: int = 0
    since: float | None = None
    lost: int = 0
    lost_at: float | None = None
    lost_why: str = ""


def together(found: Sequence[Usage]) -> Usage:
    """The sum of several transports to one server; losses are left to :class:`Losses`."""
    protocols: Counter[str] = Counter()
    for each in found:
        protocols.update(each.protocols)
    return Usage(
        dict(protocols),
        sum(each.streams for each in found),
        sum(each.watches for each in found),
        min((each.since for each in found if each.since is not None), default=None),
    )


class Losses:
    """Counts connections that were lost, and remembers the last."""

    def __init__(self, on_loss: Callable[[], None] = lambda: None) -> None:
        """``on_loss`` is called at each."""
        self._on_loss = on_loss
        self._count = 0
        self._at: float | None = None
        self._why = ""

    def note(self, why: str, now: float) -> None:
        """A connection was lost."""
        self._count, self._at, self._why = self._count + 1, now, why
        self._on_loss()

    def added_to(self, usage: Usage) -> Usage:
        """The same usage, with the losses."""
        return replace(usage, lost=self._count, lost_at=self._at, lost_why=self._why)
