"""The trace of a pod: its spans by part of its life, bounded.

Pure: times are event-loop seconds, passed in.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

from kubeletpy.base.structs import Struct, field
from kubeletpy.metrics.trace.names import Name

MAX_START = 80
MAX_LATER = 24
MAX_END = 48
MAX_OPEN = 40
SHORT_S = 0.0005
"""Seconds: a span that took less and did not fail is dropped, unless it is a milestone."""
MAX_TEXT = 300


class Chapter(StrEnum):
    """Parts of a pod's life."""

    START = "start"
    LIFE = "life"
    END = "end"


class Span(Struct):
    """One step or call. Times are event-loop seconds."""

    name: Name
    detail: str
    began: float
    ended: float | None = None
    """None: still running."""
    error: str = ""
    until: float | None = None
    """When it has to end, if it has a limit."""


class PodTrace(Struct):
    """The spans of one pod."""

    uid: str
    namespace: str
    name: str
    opened: float
    chapter: Chapter = Chapter.START
    start: list[Span] = field(default_factory=list)
    later: deque[Span] = field(default_factory=lambda: deque(maxlen=MAX_LATER))
    end: list[Span] = field(default_factory=list)
    open: dict[int, Span] = field(default_factory=dict)
    ready_at: float | None = None
    ended_at: float | None = None
    ended_first: bool = False
    """The start was over without the pod having been Ready: ``ready_at`` is its end."""
    dropped: int = 0
    """Spans that did not fit."""

    def latest(self, most: int) -> list[Span]:
        """The last that were kept of the present part."""
        kept = {Chapter.START: self.start, Chapter.LIFE: self.later, Chapter.END: self.end}
        return list(kept[self.chapter])[-most:]

    def add_span(self, span: Span) -> None:
        """Record a span that has ended."""
        if self.chapter is Chapter.LIFE:
            self.later.append(span)
            return
        if self.chapter is Chapter.START:
            if len(self.start) == MAX_START:  # of a start that fails for long, its latest tries too
                del self.start[MAX_START // 2]
                self.dropped += 1
            self.start.append(span)
        elif len(self.end) < MAX_END:
            self.end.append(span)
        else:
            self.dropped += 1

    def ready(self, now: float, *, ended: bool = False) -> None:
        """The pod has started, or (``ended``) come to its end instead."""
        if self.chapter is Chapter.START:
            self.ready_at, self.ended_first = now, ended
            self.chapter = Chapter.LIFE

    def ending(self) -> None:
        """The pod is being terminated."""
        self.chapter = Chapter.END
