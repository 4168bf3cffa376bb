"""The wires that go round in circles: a room is notified by one that is made after it.

Each is a named value, made first and connected last, in one place, so that a reader of
:mod:`kubeletpy.agent.build` sees who hears what. A wire that goes one way only is a constructor's
argument, not a signal. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, ParamSpec, TypeVar

from kubeletpy.admission.verdict import Rejection
from kubeletpy.api import types as api
from kubeletpy.node.conditions import NodeHealth
from kubeletpy.pods.node_pods import NodePods
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.probe_results import ProbeOutcome
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.syncloop.lifecycle import LifecycleEvent

P = ParamSpec("P")
R = TypeVar("R")


class Signal(Generic[P]):
    """Call every listener, in the order in which they were added. They must not block."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[P, None], ...] = ()

    def connect(self, *listeners: Callable[P, None]) -> None:
        """The listener, set once."""
        assert not self._listeners, "connected in one place"
        self._listeners = listeners

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)


class Question(Generic[P, R]):
    """Call it to have it answered by a room that is made later."""

    def __init__(self) -> None:
        self._answer: Callable[P, R] | None = None

    def connect(self, answer: Callable[P, R]) -> None:
        """Who answers, once and for all."""
        assert self._answer is None, "connected in one place"
        self._answer = answer

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        assert self._answer is not None, "nobody asks before all rooms are made"
        return self._answer(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Signals:
    """All of one agent."""

    pod_changed: Signal[[str]] = field(default_factory=Signal)
    """Something that a pod's sync depends on has changed (a configMap, a token, a resize)."""
    runtime_changed: Signal[[str, Sequence[LifecycleEvent]]] = field(default_factory=Signal)
    """The runtime has something new of a pod, which the status cache has."""
    probe_settled: Signal[[str, ProbeKind, ProbeOutcome]] = field(default_factory=Signal)
    pod_finished: Signal[[str]] = field(default_factory=Signal)
    """A worker is done with its pod, or has forgotten it."""
    look_again: Signal[[]] = field(default_factory=Signal)
    """The next housekeeping pass is to notify the rooms even if no pod came or went."""
    pod_shown: Signal[[Pod]] = field(default_factory=Signal)
    """The API shows another object of a pod; of a mirror: the static pod."""
    node_changed: Signal[[]] = field(default_factory=Signal)
    """The node's status is to be written at once."""
    pods_counted: Signal[[NodePods]] = field(default_factory=Signal)
    """A housekeeping pass has found other pods than the one before."""
    shutdown_changed: Signal[[]] = field(default_factory=Signal)
    """The machine is about to go down, or is not any more."""
    node_shown: Signal[[]] = field(default_factory=Signal)
    """The watch has shown the node's object, perhaps changed."""
    node_answered: Signal[[]] = field(default_factory=Signal)
    """The API has shown us the node."""
    node_health: Question[[], NodeHealth] = field(default_factory=Question)
    pressures: Question[[], tuple[str, ...]] = field(default_factory=Question)
    """Conditions of pressure that the node reports."""
    newest_node: Question[[], api.Node | None] = field(default_factory=Question)
    """The newest of the node's object that is known, by whatever way."""
    fits: Question[[Pod], Rejection | None] = field(default_factory=Question)
    """Why a pod as it is after a resize would not fit beside the others; None: it does."""
