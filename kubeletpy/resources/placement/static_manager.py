"""Books one resource of the machine by a static policy, and keeps the bookings on the disk.

The common part of the managers of CPUs and memory. The policy makes the decisions. One allocation
is one write. Must never let a pod be admitted whose resources are not booked on the disk.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from prometheus_client import Counter

from kubeletpy.base.api import types as api
from kubeletpy.metrics.resources import PlacementMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.placement.hints import Hint, Hints
from kubeletpy.resources.placement.pod_pool import PodLevelPlacement, containers_in_order
from kubeletpy.resources.placement.refusal import AllocationRefused
from kubeletpy.resources.placement.state_file import PlacementState, StateFile

S = TypeVar("S", bound=PlacementState)
P = TypeVar("P", bound="StaticPolicy[Any]")


class StaticPolicy(Protocol[S]):
    """Decides what pods get of a resource; a decision is a new state. Pure.

    All methods raise ValueError for an invalid quantity.
    """

    @property
    def pod_level(self) -> PodLevelPlacement:
        """How resources are booked for pods with pod-level resources."""

    def problem(self, state: S) -> str:
        """Why a state that was read cannot be used; empty: it can."""

    def requested(self, pod: Pod, container: api.Container) -> object:
        """The amount that a container gets of its own; false: nothing."""

    def hints(self, state: S, pod: Pod, container: api.Container | None) -> Hints:
        """Where it could be allocated; ``container`` None: that of the whole pod."""

    def allocate(self, state: S, pod: Pod, container: api.Container, hint: Hint) -> S:
        """The state after a container gets its own. Raises AllocationRefused."""

    def allocate_pool(self, state: S, pod: Pod, hint: Hint) -> S:
        """The state after a pod gets its pool. Raises AllocationRefused."""


class StaticManager(Generic[S, P]):
    """A provider of a resource (``ResourceProvider``), except ``settle`` and ``release``."""

    name = ""

    def __init__(
        self,
        policy: P | None,
        state: S,
        file: StateFile[S],
        metrics: PlacementMetrics,
        *,
        requests: Counter,
        errors: Counter,
    ) -> None:
        """Args:
        policy: None: the policy none.
        state: that of a node on which no container has anything yet.
        file: keeps the state.
        requests: counts the containers that request the resource, ``errors`` those refused.
        """
        self.state = state
        self._policy = policy
        self._file = file
        self._metrics = metrics
        self._requests = requests
        self._errors = errors
        self._unsettled: dict[str, list[str]] = {}
        """Containers whose resources are not booked on the disk, by uid of the pod."""

    async def start(self) -> None:
        """Continue from the file's content. Raises StateUnusable."""
        problem = None if self._policy is None else self._policy.problem
        self.state = await self._file.begin(self.state, problem)

    async def close(self) -> None:
        """Finish pending writes."""
        await self._file.close()

    def hints(self, pod: Pod, container: api.Container | None) -> Hints:
        """See ResourceProvider."""
        return {} if self._policy is None else self._policy.hints(self.state, pod, container)

    def is_requested_by(self, pod: Pod) -> bool:
        """See ResourceProvider."""
        policy = self._policy
        return policy is not None and any(
            policy.requested(pod, each) for each in containers_in_order(pod)
        )

    def book(self, pod: Pod, container: api.Container, hint: Hint) -> bool:
        """See ResourceProvider."""
        policy = self._policy
        if policy is None:
            return False
        before, pools = self.state, policy.pod_level.pools(pod)
        if not pools and not policy.requested(pod, container):
            return False
        try:
            if pools:
                self.state = policy.allocate_pool(before, pod, hint)
            else:
                self._requests.inc()
                self.state = self._allocate(policy, pod, container, hint)
        except AllocationRefused:
            self._count_refusal("pod" if pools else "node")
            raise
        if self.state is before:
            return False
        if pools:  # the first container reserves what its pod gets as one
            names = [each["name"] for each in containers_in_order(pod)]
            self._requests.inc(sum(self.owns(pod, name) for name in names))
            self._unsettled[pod.uid] = names
        else:
            self._unsettled.setdefault(pod.uid, []).append(container["name"])
        return True

    @abstractmethod
    def owns(self, pod: Pod, container: str) -> bool:
        """Whether a container has something that no other shares, not even in its pod."""

    def _allocate(self, policy: P, pod: Pod, container: api.Container, hint: Hint) -> S:
        state: S = policy.allocate(self.state, pod, container, hint)
        return state

    def _source(self, pod: Pod) -> str:
        """Where a pod's resources come from, as metrics name it."""
        return "pod" if pod.uid in self.state.pools else "node"

    def _count_refusal(self, source: str) -> None:
        self._errors.inc()
        self._metrics.allocation_errors.labels(self.name, source).inc()

    def _count_allocation(self, pod: Pod, container: str, source: str) -> None:
        kind = "exclusive" if self.owns(pod, container) else "shared"
        self._metrics.allocations.labels(self.name, source).inc()
        self._metrics.assignments.labels(self.name, f"{source}_{kind}").inc()
