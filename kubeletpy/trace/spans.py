"""What was done for a pod, when, and for how long: the spans of its start and of its end.

A task that works for a pod enters the pod's trace once (:meth:`Traces.enter`); whatever it calls
notes its spans with :func:`span`, without being handed anything. Costs a few microseconds per
span and is bounded: spans per pod, and pods. Must never change what happens, nor keep anything
secret: a detail is a name, never a value.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextvars import ContextVar
from types import TracebackType

from kubeletpy.trace.model import MAX_OPEN, MAX_TEXT, SHORT_S, PodTrace, Span
from kubeletpy.trace.names import Call, Name, Step

MAX_PODS = 300


_current: ContextVar[PodTrace | None] = ContextVar("pod_trace", default=None)


class _OfPod:
    """The context manager of one span."""

    __slots__ = ("_loop", "_milestone", "_trace", "span")

    def __init__(self, trace: PodTrace, span: Span, milestone: bool) -> None:
        self._trace = trace
        self._milestone = milestone
        self.span = span
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Span:
        self.span.began = self._loop.time()
        if len(self._trace.open) < MAX_OPEN:
            self._trace.open[id(self)] = self.span
        return self.span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        span, trace = self.span, self._trace
        span.ended = self._loop.time()
        trace.open.pop(id(self), None)
        if error is not None:
            cut = kind is asyncio.CancelledError
            span.error = "cut short" if cut else (str(error) or repr(error))[:MAX_TEXT]
        if self._milestone or span.error or span.ended - span.began >= SHORT_S:
            trace.keep(span)


class _OfNobody:
    """A span outside of any pod's trace."""

    __slots__ = ()

    def __enter__(self) -> Span:
        return Span(Step.STATUS, "", 0.0)

    def __exit__(self, *_: object) -> None:
        return None


_NOTHING = _OfNobody()


def span(
    name: Name, detail: str = "", *, limit: float | None = None, milestone: bool = False
) -> _OfPod | _OfNobody:
    """Note what is done inside ``with`` as a span of the current pod.

    Args:
        limit: seconds after which it has to be over, for "until when" (a grace period).
        milestone: keep it however short it was.
    """
    trace = _current.get()
    if trace is None:
        return _NOTHING
    until = None if limit is None else asyncio.get_running_loop().time() + limit
    return _OfPod(trace, Span(name, detail, 0.0, None, "", until), milestone)


class Traces:
    """Pod uid -> trace; the pods begun longest ago go first."""

    def __init__(self, max_pods: int = MAX_PODS) -> None:
        self._max_pods = max_pods
        self._pods: OrderedDict[str, PodTrace] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[PodTrace]:
        return iter(self._pods.values())

    def of(self, uid: str) -> PodTrace | None:
        """The trace of a pod."""
        return self._pods.get(uid)

    def find(self, namespace: str, name: str) -> PodTrace | None:
        """The newest pod that had a name."""
        for trace in reversed(self._pods.values()):
            if trace.name == name and trace.namespace == namespace:
                return trace
        return None

    def enter(self, uid: str, namespace: str, name: str) -> PodTrace:
        """Have the spans of the running task belong to a pod, which is begun if it is new."""
        trace = self._pods.get(uid)
        if trace is None:
            now = asyncio.get_running_loop().time()
            trace = self._pods[uid] = PodTrace(uid, namespace, name, now)
            while len(self._pods) > self._max_pods:
                self._pods.popitem(last=False)
        _current.set(trace)
        return trace

    def written(self, uid: str, began: float, detail: str, *, ready: bool, error: str = "") -> None:
        """A status write to the API is over; ``ready``: it ended the start."""
        trace = self._pods.get(uid)
        if trace is None:
            return
        now = asyncio.get_running_loop().time()
        trace.keep(Span(Call.WRITE_STATUS, detail, began, now, error[:MAX_TEXT]))
        if ready:
            trace.ready(now)

    def gone(self, uid: str) -> None:
        """The pod is out of the API, or its worker has finished."""
        trace = self._pods.get(uid)
        if trace is not None and trace.ended_at is None:
            trace.ended_at = asyncio.get_running_loop().time()
