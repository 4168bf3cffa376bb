"""Circular connections: a component notifies one that takes it in turn.

Each is a named value, created first and connected last, in one place, so that a reader of
:mod:`kubeletpy.agent.build` sees who listens to what. A one-way connection is a constructor
argument, not a signal. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import NodePods, Pod
from kubeletpy.pods.runtime_status import ProbeOutcome
from kubeletpy.probes.schedule import ProbeKind

P = ParamSpec("P")


class AgentSignal(Generic[P]):
    """Call every listener in the order in which they were added. They must not block."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[P, None], ...] = ()

    def connect(self, *listeners: Callable[P, None]) -> None:
        """The listener, set once."""
        assert not self._listeners, "connected in one place"
        self._listeners = listeners

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)


class Signals(Struct, frozen=True):
    """All signals of one agent."""

    pod_changed: AgentSignal[[str]] = field(default_factory=AgentSignal)
    """Something that a pod's sync depends on has changed (a configMap, a token, a resize)."""
    probe_settled: AgentSignal[[str, ProbeKind, ProbeOutcome]] = field(default_factory=AgentSignal)
    pod_finished: AgentSignal[[str]] = field(default_factory=AgentSignal)
    """A worker is done with its pod, or has forgotten it."""
    republish_pods: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The next housekeeping pass must notify the components even if no pod came or went."""
    pod_reported: AgentSignal[[Pod]] = field(default_factory=AgentSignal)
    """The API shows a new object of a pod; for a mirror, of the static pod."""
    status_changed: AgentSignal[[str]] = field(default_factory=AgentSignal)
    """The status manager has another status of a pod, by uid, or another object, or none."""
    node_changed: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The node's status must be written at once."""
    runtime_health_changed: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The runtime, or its network, has become usable or unusable."""
    pods_counted: AgentSignal[[NodePods]] = field(default_factory=AgentSignal)
    """A housekeeping pass has found different pods than the previous one."""
    shutdown_changed: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The machine is about to shut down, or no longer is."""
    node_reported: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The watch has shown the node's object, possibly changed."""
    node_answered: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The API has shown us the node."""
    node_replaced: AgentSignal[[]] = field(default_factory=AgentSignal)
    """Somebody has created the Node object anew, with another uid: the node serves that one."""
    api_back: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The API answers again: the node's lease is renewed after it could not be."""
