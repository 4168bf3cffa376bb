"""Assigns a pod to NUMA nodes: collects the providers' hints, merges them, and has each book.

:func:`kubeletpy.resources.placement.model.merge` decides on the nodes, and the providers decide
what is allocated there. Source: docs/reference/behaviour-resources.md, rt.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Component
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.metrics.resources import CONTAINER, NUMA_NODE, POD, PlacementMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import pod_level_set
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.resources.placement import model

log = logging.getLogger(__name__)

AFFINITY = AdmissionReason.TOPOLOGY_AFFINITY_ERROR
AFFINITY_TEXT = "Resources cannot be allocated with Topology locality"
POD_LEVEL_TEXT = "Pod Scope pod with pod-level resources failed admission "
POD_LEVEL_TEXTS = {
    model.PodLevelPlacement.CONTAINERS: POD_LEVEL_TEXT + "with a container-level topology manager",
    model.PodLevelPlacement.POOL: POD_LEVEL_TEXT + "under pod-scope topology manager",
}
"""The text for pods with pod-level resources; with the gate off it is that of other pods."""


class TopologyManager(Component):
    """Places pods that are to be admitted."""

    providers: Sequence[model.ResourceProvider]
    """Called in this order."""
    nodes: Sequence[int]
    """Ids of all NUMA nodes."""
    policy: model.Policy
    metrics: PlacementMetrics
    scope: str = CONTAINER
    """Whether to assign nodes to each ``container`` or to a complete ``pod``."""
    pod_level: model.PodLevelPlacement = model.PodLevelPlacement.NOTHING
    """Whether and how pods with pod-level resources are placed."""
    closest: model.Distances | None = None
    """Set with the option prefer-closest-numa-nodes."""
    users: Callable[[], Collection[str] | None] = lambda: None
    """Uids of the pods that use the node; None: not known yet, nothing is taken back."""
    decided: Callable[[str, Sequence[Decision]], None] = lambda uid, decisions: None
    """Called with what was decided about a pod, and why."""
    elapsed: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self._providers = tuple(self.providers)
        self._nodes = tuple(self.nodes)

    def admit(self, pod: Pod) -> Callable[[], Awaitable[None]] | None:
        """Reserve all that a pod requests of the machine; it keeps what it already has.

        Returns:
            a function to await before the pod is admitted, or None. Others may be admitted
            meanwhile. It raises AllocationRefused, too.

        Raises:
            AllocationRefused: it can't be allocated; what was booked so far is taken back with the
                next call, when the pod no longer uses the node.
        """
        self.metrics.topology_requests.inc()
        began = self.elapsed()
        booked: list[model.ResourceProvider] = []
        try:
            if self.policy is not model.Policy.NONE or any(
                provider.is_requested_by(pod) for provider in self._providers
            ):
                self.release()
                booked = self._book(pod)
        except ValueError as error:  # an invalid quantity
            raise model.AllocationRefused(
                f"Allocate failed due to {error}, which is unexpected"
            ) from error
        finally:
            if not booked:
                self._took(began)
        return partial(self._settle, pod, booked, began) if booked else None

    def preview(self, pod: Pod) -> list[Decision]:
        """Return where a pod, or each of its containers by itself, would be placed now.

        Nothing is booked.

        Raises:
            AllocationRefused: nowhere; the message has all resources that could not agree.
            ValueError: an invalid quantity.
        """
        if self.policy is model.Policy.NONE:
            return []
        found = []
        for container in (None,) if self.scope == POD else model.containers_in_order(pod):
            merged, why = self._merge(pod, container)
            if not merged.admitted:
                raise model.AllocationRefused(f"{self._refusal(pod)}: {why}", AFFINITY)
            if why:
                found.append(Decision(f"{_whose(container)} goes {_where(merged.hint)}", why))
        return found

    def release(self) -> None:
        """Have all providers take back what is held by pods that no longer use the node."""
        users = self.users()
        if users is None:
            return
        for provider in self._providers:
            provider.release(users)

    def _book(self, pod: Pod) -> list[model.ResourceProvider]:
        """Book with all providers; return those that have something to settle."""
        booked: dict[str, model.ResourceProvider] = {}
        hint = model.NOT_PREFERRED  # policy none: there is no hint
        if self.scope == POD and self.policy is not model.Policy.NONE:
            hint = self._merged(pod, None)
        for container in model.containers_in_order(pod):
            if self.scope != POD and self.policy is not model.Policy.NONE:
                hint = self._merged(pod, container)
            for provider in self._providers:
                with self._recorded(pod, provider, container["name"]):
                    if provider.book(pod, container, hint):
                        booked[provider.name] = provider
        return list(booked.values())

    async def _settle(
        self, pod: Pod, booked: Sequence[model.ResourceProvider], began: float
    ) -> None:
        try:
            for provider in booked:
                with self._recorded(pod, provider):
                    await provider.settle(pod)
        finally:
            self._took(began)

    @contextmanager
    def _recorded(
        self, pod: Pod, provider: model.ResourceProvider, container: str = ""
    ) -> Iterator[None]:
        """Records a refusal as a decision about the pod."""
        try:
            yield
        except model.AllocationRefused as refused:
            name = container or refused.container
            what = f"refused: no {provider.name}" + (f" for container {name}" if name else "")
            self.decided(pod.uid, [Decision(what, str(refused))])
            log.info("no place for a pod", extra={"pod": pod.key, "why": f"{what}: {refused}"})
            raise

    def _merged(self, pod: Pod, container: api.Container | None) -> model.Hint:
        merged, why = self._merge(pod, container)
        whose = _whose(container)
        guaranteed = self.policy is model.Policy.SINGLE_NUMA_NODE
        if not merged.admitted:
            self.metrics.topology_errors.inc()
            if guaranteed:
                self.metrics.not_aligned.labels(self.scope, NUMA_NODE).inc()
            self.decided(pod.uid, [Decision(f"refused: no place for {whose}", why)])
            log.info("no place for a pod", extra={"pod": pod.key, "why": why})
            raise model.AllocationRefused(self._refusal(pod), AFFINITY)
        if guaranteed:
            self.metrics.aligned.labels(self.scope, NUMA_NODE).inc()
        if why:
            self.decided(pod.uid, [Decision(f"{whose} goes {_where(merged.hint)}", why)])
        return merged.hint

    def _merge(self, pod: Pod, container: api.Container | None) -> tuple[model.MergedHints, str]:
        """Return the merged hints, and as text the nodes that each resource offered.

        If the pod is not admitted, the text has the resources that could not agree. It is empty
        without hints.
        """
        provided = [provider.hints(pod, container) for provider in self._providers]
        merged = model.merge(provided, self._nodes, self.policy, self.closest)
        if not merged.admitted:
            offered = _offered(self._providers, provided, merged.against)
            return merged, f"topologyManagerPolicy {self.policy} finds no NUMA nodes: {offered}"
        hinted = any(any(hints.values()) for hints in provided)
        return merged, _offered(self._providers, provided) if hinted else ""

    def _refusal(self, pod: Pod) -> str:
        pod_level = POD_LEVEL_TEXTS.get(self.pod_level, "") if pod_level_set(pod) else ""
        return pod_level or AFFINITY_TEXT

    def _took(self, began: float) -> None:
        self.metrics.topology_duration.observe((self.elapsed() - began) * 1000)


def _whose(container: api.Container | None) -> str:
    return "pod" if container is None else f"container {container['name']}"


def _where(hint: model.Hint) -> str:
    if hint.mask is None:
        return "to any NUMA node"
    best = "" if hint.preferred else ", which is not as near as can be"
    return f"to NUMA node {model.format_ids(model.nodes_of(hint.mask))}{best}"


def _offered(
    providers: Sequence[model.ResourceProvider],
    provided: Sequence[model.Hints],
    only: Collection[str] | None = None,
) -> str:
    """The NUMA nodes offered by each provider, as text; ``only``: of these resources."""
    return "; ".join(
        f"{resource} ({provider.name}) {_offers(offered)}"
        for provider, hints in zip(providers, provided, strict=True)
        for resource, offered in hints.items()
        if only is None or resource in only
    )


def _offers(hints: Sequence[model.Hint] | None) -> str:
    if hints is None:
        return "could come from anywhere"
    preferred = [hint for hint in hints if hint.preferred]
    if not preferred:
        return "can't be had near to each other"
    nodes = (
        "any" if hint.mask is None else model.format_ids(model.nodes_of(hint.mask))
        for hint in preferred[:8]
    )
    return f"could come from {' or '.join(nodes)}"
