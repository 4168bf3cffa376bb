"""An agent's answers, as `kubeletpy view` gets them."""

from __future__ import annotations

import threading
from typing import Any

from msgspec import to_builtins

from kubeletpy.kubeapi.events.writer import KeptEvent
from kubeletpy.metrics.trace.model import PodTrace, Span, Step, TraceCall
from kubeletpy.observe.explain.gather import explain, line
from kubeletpy.observe.explain.model import timeline
from kubeletpy.observe.view.server import Silent
from tests.kit.observe import OFFSET, facts


def trace() -> PodTrace:
    """A start in which an image is pulled beside the volumes."""
    made = PodTrace("uid-web", "default", "web", 10.0, ready_at=12.0)
    made.start = [
        Span(TraceCall.RUN_POD_SANDBOX, "attempt 0", 10.0, 10.5),
        Span(Step.VOLUMES, "", 10.5, 11.5),
        Span(TraceCall.PULL_IMAGE, "shop:1", 11.0, 11.9, "no such <b>host</b>"),
    ]
    return made


class Agent:
    """Answers like an agent with one pod; tests change its attributes.

    Attributes:
        requested: paths so far.
        silent: why it does not answer; empty: it does.
    """

    def __init__(self) -> None:
        self.requested: list[str] = []
        self.silent = ""
        self.slow: threading.Event | None = None
        """Event that an answer to /usage waits for."""
        self.node: dict[str, Any] = {"name": "node-1", "troubles": []}
        self.pods: list[Any] = [to_builtins(line(facts()))]
        self.pod: Any = to_builtins(explain(facts()))
        self.timeline: Any = to_builtins(timeline(trace(), OFFSET, None, 13.0))
        self.events: list[Any] = [
            to_builtins(
                KeptEvent(5.0, "Normal", "Pulled", "pulled", "spec.containers{main}", 2, 4.0)
            ),
            to_builtins(KeptEvent(6.0, "Warning", "Failed", "failed", "", 1, 6.0)),
        ]
        self.logs: Any = {"containers": {"main": ["listening on :80"]}}
        self.usage: dict[str, Any] = used(1.0, 0.5)

    def __call__(self, *parts: str) -> Any:
        self.requested.append("/".join(parts))
        if self.silent:
            raise Silent(self.silent)
        match parts:
            case ("node",):
                return self.node
            case ("usage",):
                if self.slow is not None:
                    self.slow.wait(10)
                return self.usage
            case ("pods",):
                return self.pods
            case ("pods", _, _):
                return self.pod
            case (*_, "timeline"):
                return self.timeline
            case (*_, "logs"):
                return self.logs
            case _:
                return self.events


def used(at: float, cpu: float | None, memory: int | None = 1024, **more: Any) -> dict[str, Any]:
    """An answer to /usage: one container of one pod."""
    container = {"name": "main", "at": at, "cpu": cpu, "memory": memory,
                 "memory_limit": None, **more}  # fmt: skip
    return {"at": at, "pods": [{"uid": "uid-web", "containers": [container]}]}
