"""Explanations and timelines of pods: plain immutable data, as sent over the socket.

Pure. Times are Unix seconds, None for unknown. Must never hold secrets: no environment, no volume
content, no credentials; only names, states, reasons and messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import convert

from kubeletpy.base.structs import Struct
from kubeletpy.metrics.trace.model import Chapter as Part
from kubeletpy.metrics.trace.model import Name, PodTrace, Span, Step, TraceCall
from kubeletpy.observe.explain.deaths import DeathCause
from kubeletpy.pods.pod import HeldResource


class WaitKind(StrEnum):
    """The kinds of waits of a pod. Code compares the members; people read the values."""

    RUNTIME = "runtime"
    STATIC_NAME = "static name"
    ADMISSION = "admission"
    WATCH = "watch"
    IMAGE_PULL = "image pull"
    SANDBOX = "sandbox"
    GRACE_PERIOD = "grace period"
    HOOK = "hook"
    START_PLACE = "start place"
    STOP_PLACE = "stop place"
    STOP_ORDER = "stop order"
    RELEASE = "release"
    RUNTIME_CALL = "runtime call"
    NETWORK = "network"
    VOLUME = "volume"
    CLAIM = "resource claim"
    CGROUP = "cgroup"
    DIRECTORY = "directory"
    STOP = "stop"
    RETRY = "retry"
    CRASH_BACKOFF = "crash backoff"
    IMAGE_BACKOFF = "image backoff"
    IMAGE = "image"
    START_ERROR = "start error"
    INIT_CONTAINER = "init container"
    PROBE = "probe"
    READINESS_GATE = "readiness gate"
    RESIZE = "resize"
    API_WRITE = "API write"
    FINALIZER = "finalizer"


class Role(StrEnum):
    """The kind of a container in its pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    CONTAINER = "container"
    EPHEMERAL = "ephemeral"


class ContainerStateKey(StrEnum):
    """The state of a container: the key of its entry in the pod's status."""

    WAITING = "waiting"
    RUNNING = "running"
    TERMINATED = "terminated"


class WorkerState(StrEnum):
    """The phase a pod's worker is in."""

    NONE = "none"
    WAITING = "waiting"
    SYNCING = "syncing"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FINISHED = "finished"


class Wait(Struct, frozen=True):
    """Something that must happen, or a time that must come, before the pod can continue."""

    kind: WaitKind
    subject: str
    """The container, volume or object; may be empty."""
    why: str
    """For people, worded by :mod:`kubeletpy.observe.explain.phrases`."""
    since: float | None = None
    until: float | None = None
    call: str | None = None
    """The step or call being waited for: one of ours, or ``NodeStageVolume of driver x``."""
    share: float | None = None
    """How much of it is done, from 0 to 1; None: not known."""


class Action(Struct, frozen=True):
    """A step or call that is under way for the pod."""

    what: Name
    subject: str
    since: float
    until: float | None = None


class Decided(Struct, frozen=True):
    """A decision and its reason; made ``count`` times between ``at`` and ``last_at``."""

    at: float
    what: str
    why: str
    count: int = 1
    last_at: float | None = None


class Exit(Struct, frozen=True):
    """The end of a run of a container."""

    container: str
    attempt: int | None
    exit_code: int
    reason: str
    message: str
    started_at: float | None
    finished_at: float | None
    cause: DeathCause | None = None
    """None: not decided by this agent."""


class ContainerView(Struct, frozen=True):
    """One container of the pod."""

    name: str
    kind: Role
    image: str
    state: ContainerStateKey
    reason: str
    message: str
    since: float | None
    ready: bool
    restarts: int
    id: str
    exit_code: int | None = None
    """For a terminated container."""


class ProbeView(Struct, frozen=True, rename={"message": "words"}):
    """The latest results of a probe."""

    container: str
    kind: str
    """startup, readiness or liveness."""
    settled: str
    """The result in effect for the container: success, failure, unknown, or empty for none yet."""
    last: str
    """The result of the latest run: success, failure, error (it could not be run), or empty."""
    message: str
    """Its output; truncated, on one line."""
    at: float | None
    streak: int
    threshold: int
    """Consecutive runs needed to settle the latest result."""
    next_at: float | None


class WorkerView(Struct, frozen=True):
    """The state of the pod's worker, and its last and next sync."""

    state: WorkerState
    since: float | None
    stage: str
    """The stage whose sync is running; empty between two syncs."""
    grace: int | None
    """Seconds that a terminating pod has."""
    next_sync_at: float | None
    last_sync_at: float | None
    last_error: str


class PodExplanation(Struct, frozen=True):
    """Everything about one pod."""

    at: float
    namespace: str
    name: str
    uid: str
    static: bool
    verdict: str
    """One sentence: why it does not run, or how it runs."""
    healthy: bool
    """Whether everything is as it should be."""
    cause: str
    """A fixed word: a member of :class:`kubeletpy.observe.explain.verdict.CauseCode`, or a kind of
    wait."""
    first_seen: float | None
    """When that began: the first time, not the latest try; None while all is well."""
    hint: str
    """How to fix it, on one line; may be empty."""
    final: bool
    """This pod is never retried, whatever is done about the cause."""
    phase: str
    ready: bool
    pod_ips: tuple[str, ...]
    worker: WorkerView
    waits: tuple[Wait, ...]
    actions: tuple[Action, ...]
    containers: tuple[ContainerView, ...]
    held: tuple[HeldResource, ...]
    """CPUs, memory and devices that its containers have."""
    probes: tuple[ProbeView, ...]
    decisions: tuple[Decided, ...]
    """Oldest first."""
    errors: tuple[Decided, ...]
    exits: tuple[Exit, ...]
    """Newest first."""


class PodLine(Struct, frozen=True):
    """One pod in a list."""

    namespace: str
    name: str
    uid: str
    state: WorkerState
    healthy: bool
    verdict: str
    cause: str
    first_seen: float | None


# Timelines: each span has its length and its offset from the moment the agent first saw the pod (or
# began to end it), both in seconds. A span that contains others stands above them.

_LEFT_OUT = (Step.RUNTIME, Step.STATUS)
"""Spans that only contain others, or are too short to be worth a line."""


class Bar(Struct, frozen=True):
    """A span as a bar of a waterfall; ``name``: the step or call."""

    name: str
    detail: str
    start: float
    """Seconds since the start of the chapter."""
    end: float
    depth: int
    error: str = ""
    going_on: bool = False
    """It was still running at ``end``, when it was observed."""


class TimelineChapter(Struct, frozen=True):
    """A part of a pod's life as a waterfall of spans."""

    title: Part
    began: float
    """Unix seconds."""
    total: float | None
    """Seconds until it was complete; None: still in progress."""
    spans: tuple[Bar, ...]
    note: str = ""
    over: bool = False
    """The start is over although the pod was never Ready."""


class Timeline(Struct, frozen=True):
    """The waterfalls of one pod."""

    namespace: str
    name: str
    uid: str
    start: TimelineChapter
    end: TimelineChapter | None = None
    life: TimelineChapter | None = None
    """The chapter between start and end; None: nothing that matters happened."""
    verdict: str = ""
    """How the pod is now."""
    waits: tuple[Wait, ...] = ()
    """The pod's waits now, and until when; in Unix seconds."""
    at: float = 0.0
    """Unix seconds of the request."""

    @property
    def chapters(self) -> tuple[TimelineChapter, ...]:
        """Returns the chapters that exist, in order."""
        return tuple(each for each in (self.start, self.life, self.end) if each is not None)


def timeline(
    trace: PodTrace,
    wall_offset: float,
    seen_at: float | None,
    now: float,
    inits: Sequence[Exit] = (),
    *,
    has_sandbox: bool = True,
) -> Timeline:
    """Return the waterfalls of a pod from its trace.

    Args:
        trace: the spans of the pod's steps and calls.
        wall_offset: added to event-loop seconds it gives Unix seconds.
        seen_at: Unix seconds at which the agent first saw the pod, if it saw the start.
        now: event-loop seconds.
        inits: how the pod's init containers ended: their runs are part of the start.
        has_sandbox: False if the runtime has none, so that an earlier agent can't have made it.
    """
    going_on = list(trace.open.values())
    ending = bool(trace.end) or trace.chapter is Part.END
    spans = [*trace.start, *_runs(inits, wall_offset, trace)]
    if not ending and trace.ready_at is None:
        spans += going_on
    start = _start(trace, wall_offset, seen_at, spans, now, has_sandbox=has_sandbox)
    end = _end(trace, wall_offset, going_on, now) if ending else None
    lives = trace.ready_at is not None and not ending
    life = _life([*trace.later, *(going_on if lives else ())], wall_offset, now)
    return Timeline(trace.namespace, trace.name, trace.uid, start, end, life)


def _runs(inits: Sequence[Exit], offset: float, trace: PodTrace) -> list[Span]:
    return [
        Span(TraceCall.INIT_RUNS, one.container, one.started_at - offset, one.finished_at - offset)
        for one in inits
        if one.started_at is not None
        and one.finished_at is not None
        and one.started_at - offset > trace.opened
        and (trace.ready_at is None or one.finished_at - offset < trace.ready_at)
    ]


def _start(
    trace: PodTrace,
    offset: float,
    seen_at: float | None,
    spans: Sequence[Span],
    now: float,
    *,
    has_sandbox: bool,
) -> TimelineChapter:
    began = trace.opened
    made = any(span.name in (TraceCall.RUN_POD_SANDBOX, TraceCall.ADMIT) for span in spans)
    found = has_sandbox and not made
    bars: list[Bar] = []
    if seen_at is not None and not found and 0 <= trace.opened + offset - seen_at < 3600:
        began = seen_at - offset
    if trace.opened - began >= 0.0005:
        bars.append(Bar(TraceCall.WAIT_FOR_WORKER, "", 0.0, trace.opened - began, 0))
    bars += _bars(spans, began, now)
    total = None if trace.ready_at is None else trace.ready_at - began
    note = "this agent found the pod's sandbox running when it started" if found else ""
    if trace.dropped:
        note = f"{note}; ".lstrip("; ") + f"{trace.dropped} more spans were not kept"
    over = trace.ended_first or (
        total is None and (trace.ended_at is not None or trace.chapter is Part.END)
    )
    return TimelineChapter(Part.START, began + offset, total, tuple(bars), note, over)


def _life(spans: Sequence[Span], offset: float, now: float) -> TimelineChapter | None:
    """Return what was done with the containers of a Ready pod, and what failed."""
    if not any(span.name in _CONTAINER_CALLS or span.error for span in spans):
        return None
    began = min(span.began for span in spans)
    return TimelineChapter(Part.LIFE, began + offset, None, tuple(_bars(spans, began, now)))


def _end(trace: PodTrace, offset: float, going_on: Sequence[Span], now: float) -> TimelineChapter:
    spans = [*trace.end, *going_on]
    began = min((span.began for span in spans), default=now)
    total = None if trace.ended_at is None else trace.ended_at - began
    return TimelineChapter(Part.END, began + offset, total, tuple(_bars(spans, began, now)))


def _bars(spans: Iterable[Span], began: float, now: float) -> list[Bar]:
    """Return the spans in start order, each with the number of spans that contain it."""
    kept = [span for span in spans if span.name not in _LEFT_OUT]
    kept.sort(key=lambda span: (span.began, -(span.ended or float("inf"))))
    above: list[Span] = []
    bars = []
    for span in kept:
        while above and not _contains(above[-1], span):
            above.pop()
        goes_on = span.ended is None or span.ended > now
        start, end = span.began - began, (now if goes_on else span.ended or now) - began
        bars.append(Bar(span.name, span.detail, start, end, len(above), span.error, goes_on))
        if span.name not in _PARALLEL:
            above.append(span)
    return bars


_CONTAINER_CALLS = (
    TraceCall.RUN_POD_SANDBOX,
    TraceCall.PULL_IMAGE,
    TraceCall.CREATE_CONTAINER,
    TraceCall.START_CONTAINER,
    TraceCall.STOP_CONTAINER,
    TraceCall.POST_START,
    TraceCall.BACK_OFF,
    TraceCall.RESIZE,
    TraceCall.ENDED,
)
_PARALLEL = (
    TraceCall.CREATE_CONTAINER,
    TraceCall.START_CONTAINER,
    TraceCall.RUN_POD_SANDBOX,
    TraceCall.PULL_IMAGE,
    TraceCall.WRITE_STATUS,
    TraceCall.STOP_CONTAINER,
    TraceCall.INIT_RUNS,
    TraceCall.BACK_OFF,
    TraceCall.ENDED,
    TraceCall.OOM_KILL,
)
"""Spans that run in parallel with others: what happens meanwhile is not part of them."""


def _contains(outer: Span, inner: Span) -> bool:
    return outer.ended is None or (inner.ended is not None and inner.ended <= outer.ended)


def from_json(document: Mapping[str, Any]) -> Timeline:
    """Return the timeline that the socket's JSON describes."""
    return convert(document, Timeline)
