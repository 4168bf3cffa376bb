"""Which devices a container gets, or why it gets none. Pure.

Source: docs/reference/behaviour-resources.md, ro; the numbers are its rows.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import nsmallest

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import value
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.devices.model import DeviceHolder, Wish
from kubeletpy.resources.devices.state import DeviceState
from kubeletpy.resources.placement.hints import mask_of
from kubeletpy.resources.placement.pod_pool import left_by_init_containers


class Nothing(Struct, frozen=True):
    """There is nothing to allocate; ``why`` is for people."""

    why: str


class No(Struct, frozen=True):
    """The container can't have what it requests."""

    message: str


class DeviceChoice(Struct, frozen=True):
    """The devices from which a container gets ``wanted``.

    Attributes:
        taken: it gets these in any case: those of earlier init containers.
        aligned: free ones on the NUMA nodes that placement requests.
        unaligned: free ones on others.
        anywhere: free ones that are on none.
    """

    wanted: int
    taken: frozenset[str]
    aligned: frozenset[str] = frozenset()
    unaligned: frozenset[str] = frozenset()
    anywhere: frozenset[str] = frozenset()

    @property
    def needed(self) -> int:
        """How many are still to be chosen."""
        return self.wanted - len(self.taken)

    @property
    def preferred_request(self) -> tuple[frozenset[str], frozenset[str]] | None:
        """The devices a plugin may choose from, and those it must include; None: there is no
        choice."""
        if 0 < self.needed < len(self.aligned):  # 11
            return self.aligned | self.taken, self.taken
        if self.needed > len(self.aligned):  # 12
            free = self.aligned | self.unaligned | self.anywhere
            return free | self.taken, self.taken | self.aligned
        return None


def requests(container: api.Container, state: DeviceState) -> dict[str, int]:
    """How many devices of each resource a container requests: its limits, rounded up.

    Raises ValueError for what is not a quantity.
    """
    limits = (container.get("resources") or {}).get("limits") or {}
    return {name: value(text) for name, text in sorted(limits.items()) if state.concerns(name)}


def by_claim(pod: Pod, container: str, resource: str) -> bool:
    """Whether a claim, not a plugin, serves a resource for this container (1)."""
    status = pod.status.get("extendedResourceClaimStatus") or {}
    return any(
        each.get("containerName") == container and each.get("resourceName") == resource
        for each in status.get("requestMappings") or ()
    )


def reusable(pod: Pod, container: str, resource: str, state: DeviceState) -> frozenset[str]:
    """Devices of init containers that have ended when a container starts, free to be reused."""
    return left_by_init_containers(
        pod, container, lambda name: state.ids_of(DeviceHolder(pod.uid, name, resource))
    )


def decide(
    pod: Pod, wish: Wish, state: DeviceState, *, pod_runs: bool = False
) -> Nothing | No | DeviceChoice:
    """Decide which devices of one resource a container gets.

    Args:
        pod_runs: something of the pod runs: an earlier agent admitted it, and what it has is in
            use, whatever its plugin reports (or has not reported yet).
    """
    _, container, resource = wish.holder
    wanted, mask = wish.number, wish.mask
    if by_claim(pod, container, resource):
        return Nothing("a claim serves it")
    own = state.bookings.get(wish.holder)
    if own is not None and len(own.ids) != wanted:  # 2
        return No(
            f'pod "{pod.uid}" container "{container}" changed request for resource "{resource}" '
            f"from {len(own.ids)} to {wanted}"
        )
    if pod_runs:  # 3
        return Nothing("its pod runs already")
    known = state.resources.get(resource)
    if known is None:  # 4
        return No(f"cannot allocate unregistered device {resource}")
    if not known.healthy:  # 5
        return No(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
    if own is not None and not own.ids <= known.healthy:  # 6
        return No(
            "previously allocated devices are no longer healthy; "
            f"cannot allocate unhealthy devices {resource}"
        )
    if own is not None or wanted <= 0:  # 7
        return Nothing("it has them" if own is not None else "it requests none")
    again = reusable(pod, container, resource, state) & known.healthy

    def is_far(each: str) -> bool:
        return mask is not None and not mask_of(known.listed[each].nodes) & mask

    taken = frozenset(sorted(again, key=lambda each: (is_far(each), each))[:wanted])  # 8
    free = known.healthy - state.held_ids(resource)
    if len(free) < wanted - len(taken):  # 9
        return No(
            f"requested number of devices unavailable for {resource}. "
            f"Requested: {wanted - len(taken)}, Available: {len(free)}"
        )
    if mask is None:  # 10
        return DeviceChoice(wanted, taken, anywhere=free)
    aligned: list[str] = []
    unaligned: list[str] = []
    anywhere: list[str] = []
    where: dict[tuple[int, ...], list[str]] = {(): anywhere}
    for each in free:
        nodes = known.listed[each].nodes
        if nodes not in where:
            where[nodes] = aligned if mask_of(nodes) & mask else unaligned
        where[nodes].append(each)
    return DeviceChoice(
        wanted,
        taken,
        aligned=frozenset(aligned),
        unaligned=frozenset(unaligned),
        anywhere=frozenset(anywhere),
    )


def pick(choice: DeviceChoice, preferred: Collection[str] = ()) -> tuple[str, ...]:
    """The devices, ordered by id. ``preferred``: what the plugin would take."""
    wish = frozenset(preferred)
    groups: tuple[frozenset[str], ...] = (wish & choice.aligned, choice.aligned)  # 11
    if choice.needed >= len(choice.aligned):  # 12
        liked = (wish & choice.unaligned) | (wish & choice.anywhere)
        groups = (choice.aligned, liked, choice.unaligned, choice.anywhere)
    chosen = set(choice.taken)
    for group in groups:
        missing = choice.wanted - len(chosen)
        if missing > 0:
            chosen.update(nsmallest(missing, group if group.isdisjoint(chosen) else group - chosen))
    return tuple(sorted(chosen))
