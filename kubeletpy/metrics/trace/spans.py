"""The spans of a pod's start and termination: what was done, when, and for how long.

A task that works for a pod enters the pod's trace once (:meth:`Traces.enter`); everything it calls
records spans with :func:`span`, without passing a trace around. Costs a few microseconds per span,
and both spans per pod and pods are bounded. Must never change what happens, nor keep anything
secret: a detail is a name, never a value.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import TracebackType

from kubeletpy.base.structs import Component
from kubeletpy.metrics.trace import model as trace_model

MAX_PODS = 300
MOST_AT_ONCE = 12
"""Latest spans among which the same wait is searched for."""
SAME_S = 0.5
"""Waits that end within so many seconds are one."""


SpanLog = Callable[[trace_model.PodTrace, trace_model.Span], None]
"""Is given each span that is kept."""

_current: ContextVar[tuple[trace_model.PodTrace, trace_model.Tracer, SpanLog | None] | None] = (
    ContextVar("pod_trace", default=None)
)


class _OfPod:
    """The context manager of one span."""

    __slots__ = ("_log", "_loop", "_milestone", "_sent", "_trace", "span")

    def __init__(
        self,
        trace: trace_model.PodTrace,
        span: trace_model.Span,
        sent: trace_model.OpenSpan,
        milestone: bool,
        log: SpanLog | None,
    ) -> None:
        self._trace, self._log = trace, log
        self._milestone = milestone
        self._sent = sent
        self.span = span
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> trace_model.Span:
        self.span.began = self._loop.time()
        if len(self._trace.open) < trace_model.MAX_OPEN:
            self._trace.open[id(self)] = self.span
        self._sent.__enter__()
        return self.span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._sent.__exit__(kind, error, traceback)
        span, trace = self.span, self._trace
        span.ended = self._loop.time()
        trace.open.pop(id(self), None)
        if error is not None:
            cut = kind is asyncio.CancelledError
            span.error = "cut short" if cut else (str(error) or repr(error))[: trace_model.MAX_TEXT]
        if self._milestone or span.error or span.ended - span.began >= trace_model.SHORT_S:
            _keep(trace, span, self._log)


class _OfNobody:
    """A span outside of any pod's trace."""

    __slots__ = ()

    def __enter__(self) -> trace_model.Span:
        return trace_model.Span(trace_model.Step.STATUS, "", 0.0)

    def __exit__(self, *_: object) -> None:
        return None


_NOTHING = _OfNobody()


def span(
    name: trace_model.Name, detail: str = "", *, limit: float | None = None, milestone: bool = False
) -> _OfPod | _OfNobody:
    """Record what is done inside ``with`` as a span of the current pod.

    Args:
        limit: seconds after which it has to end, for "until when" (a grace period).
        milestone: keep it however short it was.
    """
    current = _current.get()
    if current is None:
        return _NOTHING
    trace, tracer, log = current
    until = None if limit is None else asyncio.get_running_loop().time() + limit
    sent = tracer.span(name, {"detail": detail} if detail else {})
    return _OfPod(trace, trace_model.Span(name, detail, 0.0, None, "", until), sent, milestone, log)


def note(name: trace_model.Name, detail: str = "", *, error: str = "", lasts: float = 0.0) -> None:
    """Record something of the current pod that is no work: a refusal, or a wait that begins now.

    Args:
        lasts: seconds until the wait is over. The same wait is not recorded again.
    """
    current = _current.get()
    if current is None:
        return
    trace, _, log = current
    now = asyncio.get_running_loop().time()
    ends = now + max(lasts, 0.0)
    if lasts and any(
        (each.name, each.detail) == (name, detail) and abs((each.ended or 0.0) - ends) < SAME_S
        for each in trace.latest(MOST_AT_ONCE)
    ):
        return
    _keep(trace, trace_model.Span(name, detail, now, ends, error[: trace_model.MAX_TEXT]), log)


def _keep(trace: trace_model.PodTrace, span: trace_model.Span, log: SpanLog | None) -> None:
    trace.add_span(span)
    if log is not None:
        log(trace, span)


class Traces(Component):
    """Pod uid -> trace; the oldest ones are dropped first."""

    tracer: trace_model.Tracer = trace_model.NO_TRACER
    """Where spans are sent besides."""
    max_pods: int = MAX_PODS
    span_log: SpanLog | None = None
    """Receives the spans that are kept."""

    def __post_init__(self) -> None:
        self._pods: OrderedDict[str, trace_model.PodTrace] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[trace_model.PodTrace]:
        return iter(self._pods.values())

    def pod_trace(self, uid: str) -> trace_model.PodTrace | None:
        """The trace of a pod."""
        return self._pods.get(uid)

    def find(self, namespace: str, name: str) -> trace_model.PodTrace | None:
        """The trace of the newest pod of that name."""
        for trace in reversed(self._pods.values()):
            if trace.name == name and trace.namespace == namespace:
                return trace
        return None

    def enter(self, uid: str, namespace: str, name: str) -> trace_model.PodTrace:
        """Assign the running task's spans to a pod, whose trace is begun if it is new."""
        trace = self._of_new(uid, namespace, name)
        _current.set((trace, self.tracer, self.span_log))
        return trace

    def _of_new(self, uid: str, namespace: str, name: str) -> trace_model.PodTrace:
        trace = self._pods.get(uid)
        if trace is None:
            now = asyncio.get_running_loop().time()
            trace = self._pods[uid] = trace_model.PodTrace(uid, namespace, name, now)
            while len(self._pods) > self.max_pods:
                self._pods.popitem(last=False)
        return trace

    def refused(self, uid: str, namespace: str, name: str, why: str) -> None:
        """A pod was not admitted: that is all there is of its start."""
        trace = self._of_new(uid, namespace, name)
        now = asyncio.get_running_loop().time()
        trace.add_span(
            trace_model.Span(trace_model.TraceCall.ADMIT, "", now, now, why[: trace_model.MAX_TEXT])
        )
        trace.ended_at = now

    def happened(
        self, uid: str, name: trace_model.TraceCall, detail: str, *, error: str = ""
    ) -> None:
        """Record something that has just happened to a pod, and that no step of it did."""
        trace = self._pods.get(uid)
        if trace is None:
            return
        now, most = asyncio.get_running_loop().time(), trace_model.MAX_TEXT
        span = trace_model.Span(name, detail[:most], now, now, error[:most])
        _keep(trace, span, self.span_log)

    def written(
        self, uid: str, began: float, detail: str, *, ready: bool, ended: bool = False
    ) -> None:
        """A status write to the API has ended; it showed that the pod is Ready, or has ended."""
        trace = self._pods.get(uid)
        if trace is None:
            return
        now = asyncio.get_running_loop().time()
        span = trace_model.Span(trace_model.TraceCall.WRITE_STATUS, detail, began, now)
        _keep(trace, span, self.span_log)
        self.needs_no_write(uid, ready=ready, ended=ended)

    def needs_no_write(self, uid: str, *, ready: bool, ended: bool) -> None:
        """A status of the pod is where it is read; without an API server that is here."""
        trace = self._pods.get(uid)
        if trace is not None and (ready or ended):
            trace.ready(asyncio.get_running_loop().time(), ended=ended)

    def removed(self, uid: str) -> None:
        """The pod was removed from the API, or its worker has finished."""
        trace = self._pods.get(uid)
        if trace is not None and trace.ended_at is None:
            trace.ended_at = asyncio.get_running_loop().time()
