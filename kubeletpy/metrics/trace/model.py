"""The trace of a pod: its steps and calls as spans, by part of its life, and where they are sent.

Bounded. Pure: times are event-loop seconds, passed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import TracebackType
from typing import Protocol

from kubeletpy.base.structs import Struct, field


class Step(StrEnum):
    """The steps of a worker for a pod: the entries of its list.

    The names are the same in outcomes, traces, timelines, logs and explain. The values are what
    people read; code compares the members.
    """

    STATUS = "compute status"
    NETWORK = "network gate"
    CGROUP = "pod cgroup"
    MIRROR = "mirror pod"
    DIRECTORIES = "directories"
    VOLUMES = "volumes"
    PULL_SECRETS = "pull secrets"
    CLAIMS = "resource claims"
    PROBES = "probes"
    RUNTIME = "runtime sync"
    KILL = "kill"


class TraceCall(StrEnum):
    """The calls and waits within a step. CRI calls have the CRI's names."""

    READ_POD = "read the pod from the runtime"
    SETTLE = "wait for the runtime to end an earlier call"
    START_PLACE = "wait for a place to start in"
    STOP_PLACE = "wait for a place to stop in"
    CHECK_UP_IMAGE = "look up image"
    PULL_IMAGE = "pull image"
    RUN_POD_SANDBOX = "RunPodSandbox"
    POD_SANDBOX_STATUS = "PodSandboxStatus"
    STOP_POD_SANDBOX = "StopPodSandbox"
    CREATE_CONTAINER = "CreateContainer"
    START_CONTAINER = "StartContainer"
    STOP_CONTAINER = "StopContainer"
    STOP_ORDER = "wait for the containers before it"
    POST_START = "postStart hook"
    PRE_STOP = "preStop hook"
    RESIZE = "resize"
    BACK_OFF = "back-off"
    """Its end is known, and may be still to come."""
    ADMIT = "admission"
    WRITE_STATUS = "write status"
    TAKE_VOLUMES_DOWN = "take volumes down"
    REMOVE_CGROUP = "remove cgroup"
    ENDED = "container ended"
    """At a moment; its detail or error has the cause."""
    OOM_KILL = "process killed"
    """At a moment: one of a container that lives on."""
    WAIT_FOR_WORKER = "wait for its worker"
    """Before the first step; drawn, never traced."""
    INIT_RUNS = "init container runs"
    """Known from its termination; drawn, never traced."""


Name = Step | TraceCall


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


# Interface to a collector, besides the pod's own trace. :mod:`kubeletpy.metrics.trace.otlp`,
# loaded only when tracing is configured, implements it.

Attributes = Mapping[str, str | int]


class OpenSpan(Protocol):
    """A span that is sent when its ``with`` ends; an exception that ends it is its error."""

    @property
    def carrier(self) -> Mapping[str, str]:
        """The header that passes this span to the server: W3C's ``traceparent``; empty when off."""

    def set(self, name: str, value: str | int) -> None:
        """Add an attribute. Must not be a secret: spans are sent without encryption."""

    def failed(self, why: str) -> None:
        """It ends with an error that is no exception."""

    def __enter__(self) -> OpenSpan: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Tracer(Protocol):
    """Makes the spans that are sent."""

    def span(self, name: str, attributes: Attributes, *, client: bool = False) -> OpenSpan:
        """A span below the current one of this task, or of a trace of its own.

        ``client``: a call to another process; it never becomes the current one.
        """

    def request(self, name: str, attributes: Callable[[], Attributes]) -> OpenSpan:
        """A request from another process: a trace of its own."""


class _Unsent:
    __slots__ = ()
    carrier: Mapping[str, str] = {}

    def set(self, name: str, value: str | int) -> None:
        """Ignore the attribute: the span is not sent."""

    def failed(self, why: str) -> None:
        """Ignore the error: the span is not sent."""

    def __enter__(self) -> OpenSpan:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class _NoTracer:
    def span(self, name: str, attributes: Attributes, *, client: bool = False) -> OpenSpan:
        return _UNSENT

    def request(self, name: str, attributes: Callable[[], Attributes]) -> OpenSpan:
        return _UNSENT


_UNSENT = _Unsent()
NO_TRACER: Tracer = _NoTracer()
"""A tracer that sends nothing."""
