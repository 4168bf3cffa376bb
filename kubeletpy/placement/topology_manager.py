"""Gives a pod its place on the machine: asks who has something to give, merges, has each book.

Source: docs/reference/behaviour-resources.md, rt. Which nodes suit is decided by
:mod:`kubeletpy.placement.hints`, what is given there by the providers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from kubeletpy.api import types as api
from kubeletpy.metrics.placement import CONTAINER, NUMA_NODE, POD, PlacementMetrics
from kubeletpy.placement.hints import (
    NOT_TO_BE_HAD,
    Distances,
    Hint,
    Hints,
    Merged,
    Policy,
    merge,
    nodes_of,
)
from kubeletpy.placement.id_lists import format_ids
from kubeletpy.placement.provider import ResourceProvider
from kubeletpy.placement.refusal import AllocationRefused
from kubeletpy.placement.static_cpus import containers_in_order
from kubeletpy.pods.decision import Decision
from kubeletpy.pods.pod import Pod

log = logging.getLogger(__name__)

AFFINITY = "TopologyAffinityError"
AFFINITY_TEXT = "Resources cannot be allocated with Topology locality"


class TopologyManager:
    """For pods that are to be let in, one at a time."""

    def __init__(
        self,
        providers: Sequence[ResourceProvider],
        nodes: Sequence[int],
        policy: Policy,
        metrics: PlacementMetrics,
        *,
        scope: str = CONTAINER,
        closest: Distances | None = None,
        users: Callable[[], Collection[str] | None] = lambda: None,
        decided: Callable[[str, Sequence[Decision]], None] = lambda uid, decisions: None,
        elapsed: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Args:
        providers: asked in this order.
        nodes: ids of all NUMA nodes.
        scope: whether a place is looked for each ``container`` or for a whole ``pod``.
        closest: with the option prefer-closest-numa-nodes.
        users: uids of the pods that use the node; None: not known yet, nothing is taken back.
        decided: is told what was decided of a pod and why.
        """
        self._providers = tuple(providers)
        self._nodes = tuple(nodes)
        self._policy = policy
        self._metrics = metrics
        self._scope = scope
        self._closest = closest
        self._users = users
        self._decided = decided
        self._elapsed = elapsed

    async def admit(self, pod: Pod) -> None:
        """Give a pod all that it asks for of the machine; what it has already it keeps.

        Raises:
            AllocationRefused: it can't be given; what was booked till then is taken back with the
                next call, when the pod uses the node no more.
        """
        self._metrics.topology_requests.inc()
        with self._timed():
            self.release()
            try:
                await self._place(pod)
            except ValueError as error:  # a quantity that is none
                raise AllocationRefused(
                    f"Allocate failed due to {error}, which is unexpected"
                ) from error

    def release(self) -> None:
        """Have all providers take back what pods hold that do not use the node any more."""
        users = self._users()
        if users is None:
            return
        for provider in self._providers:
            provider.release(users)

    async def _place(self, pod: Pod) -> None:
        hint = NOT_TO_BE_HAD  # policy none: there is no hint
        if self._scope == POD and self._policy is not Policy.NONE:
            hint = self._merged(pod, None)
        for container in containers_in_order(pod):
            if self._scope != POD and self._policy is not Policy.NONE:
                hint = self._merged(pod, container)
            for provider in self._providers:
                await self._allocate(provider, pod, container, hint)

    async def _allocate(
        self, provider: ResourceProvider, pod: Pod, container: api.Container, hint: Hint
    ) -> None:
        try:
            await provider.allocate(pod, container, hint)
        except AllocationRefused as refused:
            what = f"refused: no {provider.name} for container {container['name']}"
            self._decided(pod.uid, [Decision(what, str(refused))])
            raise

    def _merged(self, pod: Pod, container: api.Container | None) -> Hint:
        provided = [provider.hints(pod, container) for provider in self._providers]
        merged = merge(provided, self._nodes, self._policy, self._closest)
        whose = "pod" if container is None else f"container {container['name']}"
        guaranteed = self._policy is Policy.SINGLE_NUMA_NODE
        if not merged.admitted:
            self._metrics.topology_errors.inc()
            if guaranteed:
                self._metrics.not_aligned.labels(self._scope, NUMA_NODE).inc()
            why = _against(merged, self._providers, provided, self._policy)
            self._decided(pod.uid, [Decision(f"refused: no place for {whose}", why)])
            log.info("no place for a pod", extra={"pod": pod.key, "why": why})
            raise AllocationRefused(AFFINITY_TEXT, AFFINITY)
        if guaranteed:
            self._metrics.aligned.labels(self._scope, NUMA_NODE).inc()
        if any(any(hints.values()) for hints in provided):
            self._decided(pod.uid, [Decision(f"{whose} goes {_where(merged.hint)}", "")])
        return merged.hint

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = self._elapsed()
        try:
            yield
        finally:
            self._metrics.topology_duration.observe((self._elapsed() - started) * 1000)


def _where(hint: Hint) -> str:
    if hint.mask is None:
        return "to any NUMA node"
    best = "" if hint.preferred else ", which is not as near as can be"
    return f"to NUMA node {format_ids(nodes_of(hint.mask))}{best}"


def _against(
    merged: Merged, providers: Sequence[ResourceProvider], provided: Sequence[Hints], policy: Policy
) -> str:
    """Which resources could not agree, and what each could have given."""
    parts = []
    for provider, hints in zip(providers, provided, strict=True):
        for resource in merged.against:
            if resource in hints:
                parts.append(f"{resource} ({provider.name}) {_offers(hints[resource])}")
    return f"topologyManagerPolicy {policy} finds no NUMA nodes: " + "; ".join(parts)


def _offers(hints: Sequence[Hint] | None) -> str:
    if hints is None:
        return "could come from anywhere"
    preferred = [hint for hint in hints if hint.preferred]
    if not preferred:
        return "can't be had near to each other"
    nodes = (
        "any" if hint.mask is None else format_ids(nodes_of(hint.mask)) for hint in preferred[:8]
    )
    return f"could come from {' or '.join(nodes)}"
