"""The terms of placement: NUMA hints and their merge, the topology, providers, pods' pools. Pure.

Source: docs/reference/behaviour-resources.md, ro, rq, rs, rt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache, cached_property, partial, reduce
from itertools import combinations
from operator import attrgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import whole
from kubeletpy.base.host.errors import Cause, CausedError
from kubeletpy.base.structs import Struct, field
from kubeletpy.config.rules import parse_cpuset
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.resources import (
    COMPUTE,
    Amounts,
    QoSClass,
    amounts,
    container_amounts,
    pod_level_set,
    qos_class,
)

MAX_NODES = 8
"""With more nodes the kubelet does not start, unless max-allowable-numa-nodes allows it."""


class Policy(StrEnum):
    """The values of topologyManagerPolicy."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class Hint(Struct, frozen=True):
    """NUMA nodes from which a resource can be allocated.

    Attributes:
        mask: a bit for each node id; None: any nodes will do.
        preferred: no smaller set of nodes could ever satisfy the request.
    """

    mask: int | None
    preferred: bool


Hints = Mapping[str, Sequence[Hint] | None]
"""Hints of one provider, by resource; None for no preference, empty for impossible."""

ANY = Hint(None, True)
NOT_PREFERRED = Hint(None, False)


class MergedHints(Struct, frozen=True):
    """The result of merging all hints.

    Attributes:
        hint: the hint by which providers allocate.
        admitted: whether the policy admits the pod.
        against: resources that kept the hint from being preferred, for messages.
    """

    hint: Hint
    admitted: bool
    against: tuple[str, ...] = ()


def mask_of(nodes: Iterable[int]) -> int:
    """Return the mask with a bit for each node id."""
    return reduce(lambda mask, node: mask | 1 << node, nodes, 0)


def nodes_of(mask: int) -> tuple[int, ...]:
    """Return the node ids of a mask, ascending."""
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


Distances = Mapping[int, Sequence[int]]
"""Node id -> its distance to each node, in the order of ascending ids."""


def merge(
    provided: Sequence[Hints],
    nodes: Sequence[int],
    policy: Policy,
    closest: Distances | None = None,
) -> MergedHints:
    """Merge the hints for one container, or for one pod.

    The merged hint is that of the best combination of one hint per resource. Combinations are never
    enumerated: with eight nodes and three resources there are sixteen million of them.

    Args:
        provided: the hints of each provider.
        nodes: ids of all NUMA nodes of the machine.
        policy: not NONE, under which no provider is called.
        closest: set with the option prefer-closest-numa-nodes.
    """
    every = mask_of(nodes)
    resources = _resources(provided)
    if policy is Policy.SINGLE_NUMA_NODE:
        resources = {name: _single(hints) for name, hints in resources.items()}
    rank = _rank(closest)
    preferred = _preferred_masks(list(resources.values()), every)
    if preferred:
        best = Hint(min(preferred, key=rank), True)
    elif policy is Policy.BEST_EFFORT:
        best = Hint(_nearest(list(resources.values()), every, rank), False)
    else:
        best = Hint(every, False)
    if policy is Policy.SINGLE_NUMA_NODE and best.mask == every:
        best = Hint(None, best.preferred)
    admitted = policy is Policy.BEST_EFFORT or best.preferred
    return MergedHints(best, admitted, () if best.preferred else _against(resources, every))


def _resources(provided: Sequence[Hints]) -> dict[str, Sequence[Hint]]:
    """The hints of each resource, with no preference and impossible made explicit."""
    found: dict[str, Sequence[Hint]] = {}
    for hints in provided:
        for resource, possible in hints.items():
            if possible is None:
                found[resource] = (ANY,)
            else:
                found[resource] = possible or (NOT_PREFERRED,)
    return found


def _single(hints: Sequence[Hint]) -> Sequence[Hint]:
    return [hint for hint in hints if hint.mask is None or hint.mask.bit_count() == 1]


def _preferred_masks(resources: Sequence[Sequence[Hint]], every: int) -> set[int]:
    """Masks of combinations in which all are preferred and all masks are the same."""
    common: set[int] = set()
    any_do = True
    for hints in resources:
        masks = {hint.mask & every for hint in hints if hint.preferred and hint.mask is not None}
        takes_any = ANY in hints
        common = common & masks | (common if takes_any else set()) | (masks if any_do else set())
        any_do = any_do and takes_any
    return (common | ({every} if any_do else set())) - {0}


def _nearest(resources: Sequence[Sequence[Hint]], every: int, rank: Rank) -> int:
    """The mask intersection whose width is closest to the need of the neediest resource."""
    reached = {every}
    for hints in resources:
        masks = {every if hint.mask is None else hint.mask & every for hint in hints}
        reached = {a & b for a in reached for b in masks} - {0}
    smallest = [
        min(widths)
        for hints in resources
        if (widths := [h.mask.bit_count() for h in hints if h.mask is not None])
    ]
    desired = max(smallest, default=every.bit_count())

    def key(mask: int) -> tuple[bool, int, tuple[float, ...]]:
        width = mask.bit_count()
        return width > desired, width if width > desired else desired - width, rank(mask)

    return min(reached, key=key, default=every)


def _against(resources: Mapping[str, Sequence[Hint]], every: int) -> tuple[str, ...]:
    """Return the resources without which the rest has a preferred hint; all if there are none."""
    found = tuple(
        name
        for name in resources
        if _preferred_masks([hints for other, hints in resources.items() if other != name], every)
    )
    return found or tuple(resources)


Rank = Callable[[int], tuple[float, ...]]


def _rank(closest: Distances | None) -> Rank:
    """Rank masks: narrower first, then closer together, if requested, then lower ids."""

    def rank(mask: int) -> tuple[float, ...]:
        if closest is None:
            return mask.bit_count(), mask
        return mask.bit_count(), _distance(mask, closest), mask

    return rank


def _distance(mask: int, closest: Distances) -> int:
    """The total distance between all pairs of nodes: for equal counts, it ranks like the mean."""
    nodes = nodes_of(mask)
    order = sorted(closest)
    return sum(closest[a][order.index(b)] for a in nodes for b in nodes)


# The topology of a machine.


class Cpu(NamedTuple):
    """A logical CPU.

    Attributes:
        core: the lowest CPU id in its core.
        uncore: its L3 cache; where none is known, its socket.
    """

    id: int
    core: int
    socket: int
    numa: int
    uncore: int


Unit = Callable[[Cpu], int]
"""Returns the id of the group that a CPU belongs to."""

by_core: Unit = attrgetter("core")
by_socket: Unit = attrgetter("socket")
by_numa: Unit = attrgetter("numa")
by_uncore: Unit = attrgetter("uncore")


class CpuTopology(Struct, frozen=True, dict=True):
    """The online CPUs, by id."""

    cpus: Mapping[int, Cpu]

    @cached_property
    def ids(self) -> frozenset[int]:
        """The ids of all CPUs."""
        return frozenset(self.cpus)

    @cached_property
    def cores(self) -> Mapping[int, frozenset[int]]:
        """Core -> its CPUs."""
        return self.grouped(self.cpus, by_core)

    @cached_property
    def sockets(self) -> Mapping[int, frozenset[int]]:
        """Socket -> its CPUs."""
        return self.grouped(self.cpus, by_socket)

    @cached_property
    def nodes(self) -> Mapping[int, frozenset[int]]:
        """NUMA node -> its CPUs."""
        return self.grouped(self.cpus, by_numa)

    @property
    def threads_per_core(self) -> int:
        """How many CPUs a core has; where cores differ, the average, rounded down."""
        return len(self.cpus) // len(self.cores) if self.cores else 0

    @property
    def numa_first(self) -> bool:
        """Whether a NUMA node holds complete sockets, not the other way round."""
        return len(self.sockets) >= len(self.nodes)

    def grouped(self, ids: Iterable[int], unit: Unit) -> dict[int, frozenset[int]]:
        """Group CPUs by unit, units ascending."""
        found: dict[int, set[int]] = {}
        for each in ids:
            found.setdefault(unit(self.cpus[each]), set()).add(each)
        return {key: frozenset(found[key]) for key in sorted(found)}

    def within(self, ids: Collection[int], unit: Unit, key: int) -> frozenset[int]:
        """Return those of the CPUs that are in one unit."""
        return frozenset(each for each in ids if unit(self.cpus[each]) == key)


class NumaNode(Struct, frozen=True):
    """One NUMA node.

    Attributes:
        memory: bytes.
        huge_pages: bytes by size of a page in bytes.
    """

    memory: int
    huge_pages: Mapping[int, int] = field(default_factory=dict)


# Sets of CPUs and of NUMA nodes as the kernel writes them: ``0-1,4``.


def format_ids(ids: Iterable[int]) -> str:
    """Return the shortest list of the ids."""
    ranges: list[tuple[int, int]] = []
    for each in sorted(set(ids)):
        if ranges and ranges[-1][1] == each - 1:
            ranges[-1] = ranges[-1][0], each
        else:
            ranges.append((each, each))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def parse_ids(text: str) -> frozenset[int]:
    """Return all ids in a list. Raises ValueError."""
    found = parse_cpuset(text.strip())
    if found is None:
        raise ValueError(f"{text[:80]!r} is not a list such as 0-1,4")
    return found


# All sets of NUMA nodes at once.
#
# A set is a number: bit *i* stands for the *i*-th node. With the 8 nodes of a large machine there
# are 255 of them, and each container is checked against each; so one pass computes all answers.


@cache
def subsets(count: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return every set of ``count`` nodes with their positions: narrow first, then by position."""
    return tuple(
        (sum(1 << position for position in some), some)
        for width in range(1, count + 1)
        for some in combinations(range(count), width)
    )


def sums(amounts: Iterable[int]) -> list[int]:
    """Return the total of each set; ``amounts`` has that of each node."""
    found = [0]
    for amount in amounts:
        found += [each + amount for each in found]
    return found


def masks(nodes: Iterable[int]) -> list[int]:
    """Return each set as a bit mask of node ids."""
    return sums(1 << node for node in nodes)


def touching(counts: Mapping[int, int], nodes: Sequence[int]) -> list[int]:
    """Count the things near any node of each set.

    Args:
        counts: how many are near which nodes, by bit mask of node ids.
    """
    position = {1 << node: 1 << index for index, node in enumerate(nodes)}
    within = [0] * (1 << len(nodes))
    for mask, count in counts.items():
        within[sum(bit for node, bit in position.items() if mask & node)] += count
    within[0] = 0
    for bit in position.values():
        for each in range(len(within)):
            if each & bit:
                within[each] += within[each ^ bit]
    everything = len(within) - 1
    return [within[everything] - within[everything ^ each] for each in range(len(within))]


# Providers of resources, and their refusals.

UNEXPECTED = AdmissionReason.UNEXPECTED_ADMISSION_ERROR


class AllocationRefused(CausedError):
    """A provider cannot allocate what a container requests: the pod is refused.

    ``reason`` is that of the pod's status, and the text its message; ``container`` is the one that
    requested, if known.
    """

    def __init__(
        self,
        message: str,
        reason: AdmissionReason = UNEXPECTED,
        container: str = "",
        cause: Cause | None = None,
    ) -> None:
        super().__init__(message, cause)
        self.reason = reason
        self.container = container


def write_refusal(file: str, error: OSError) -> AllocationRefused:
    """Return the refusal of an allocation that could not be recorded on the disk."""
    where = f" ({error.filename})" if error.filename else ""
    return AllocationRefused(
        f"Allocate failed due to {file} not being written: {error.strerror or error}{where}, "
        "which is unexpected"
    )


class ResourceProvider(Protocol):
    """Allocates a resource whose parts are near certain NUMA nodes: devices, CPUs, memory.

    The topology manager queries the ``hints`` of each provider, merges them, and then calls
    ``book`` of each. All this is one step, so that two pods are never promised the same resources.
    Slow work follows in ``settle``: files, and device plugins. The allocated resources reach the
    runtime through :class:`kubeletpy.runtime_manager.protocol.ContainerProvider`, which a provider
    implements as well.
    """

    @property
    def name(self) -> str:
        """The provider's name in messages: ``devices``, ``cpu``, ``memory``."""

    def hints(self, pod: Pod, container: api.Container | None) -> Hints:
        """Return where a container's request could be allocated, by resource; book nothing.

        Args:
            pod: as it is allocated.
            container: one of its regular and init containers; None: all that the pod needs at once.
        """

    def is_requested_by(self, pod: Pod) -> bool:
        """Whether a pod requests anything it provides. Raises ValueError: an invalid quantity."""

    def book(self, pod: Pod, container: api.Container, hint: Hint) -> bool:
        """Reserve what a container requests, near ``hint``; return whether to settle.

        Existing allocations stay unchanged: after a restart of the agent all pods are admitted
        again. Containers of a pod come in the order in which they start, init containers first.
        Must not block.

        Raises:
            AllocationRefused: it cannot be allocated; nothing was booked for this container.
        """

    async def settle(self, pod: Pod) -> None:
        """Write all that was booked for a pod to the disk at once; call device plugins.

        Raises:
            AllocationRefused: that failed; none of it is booked any more.
        """

    def release(self, uids: Collection[str]) -> None:
        """Take back what all other pods hold. It must not block.

        Args:
            uids: the pods that use the node, and those that may.
        """


# Pods with pod-level resources (spec.resources).
#
# With the gate PodLevelResourceManagers a pod is placed as one: the managers book a pool of what
# spec.resources requests, and divide it among the containers. The rules are the same for CPUs and
# memory.

EMPTY_POOL = AdmissionReason.EMPTY_POD_SHARED_POOL_ERROR
T = TypeVar("T")
Part = TypeVar("Part", frozenset[int], Counter[str])


class PodLevelPlacement(StrEnum):
    """How resources are booked for a Guaranteed pod with pod-level resources."""

    NOTHING = "nothing"
    """The gate is off: its containers use what the node shares."""
    CONTAINERS = "containers"
    """Containers whose limits are their requests get theirs from the node."""
    POOL = "pool"
    """The pod gets a pool, which its containers divide."""

    @classmethod
    def of_settings(cls, on: bool, policy: Policy, scope: str) -> PodLevelPlacement:
        """Decide from PodLevelResourceManagers (``on``) and the topology manager's settings."""
        if not on:
            return cls.NOTHING
        return cls.POOL if scope == "pod" and policy is not Policy.NONE else cls.CONTAINERS

    def pools(self, pod: Pod) -> bool:
        """Whether this pod gets a pool."""
        return self is PodLevelPlacement.POOL and pod_level_set(pod)


class Division(Struct, Generic[Part], frozen=True):
    """A pool as its containers have it.

    Attributes:
        parts: of each container: its own part, or the part that it shares.
        own: the containers that have parts of their own.
    """

    parts: Mapping[str, Part]
    own: frozenset[str]


def containers_in_order(pod: Pod) -> Iterator[api.Container]:
    """Yield a pod's containers in the order of allocation: init containers first."""
    yield from pod.init_containers
    yield from pod.containers


def may_have_own(pod: Pod, container: api.Container, *, pod_level: bool) -> bool:
    """Whether a container may have CPUs or memory of its own.

    ``pod_level``: whether containers of pods with pod-level resources may. Raises ValueError for
    an invalid quantity.
    """
    if qos_class(pod) is not QoSClass.GUARANTEED:
        return False
    return not pod_level_set(pod) or (pod_level and _limits_are_requests(container))


def shares_part(pod: Pod, name: str, own: Callable[[api.Container], object]) -> bool:
    """Whether others of its pod share what a container has.

    ``own``: what a container has of its own if its pod gets a pool.
    """
    return pod_level_set(pod) and not any(
        own(each) for each in containers_in_order(pod) if each["name"] == name
    )


def pool_requests(pod: Pod) -> Amounts:
    """Return a pod's pool: its pod-level requests, or nothing unless it is Guaranteed.

    Raises ValueError for an invalid quantity.
    """
    if qos_class(pod) is not QoSClass.GUARANTEED:
        return {}
    return amounts((pod.spec.get("resources") or {}).get("requests"))


def left_by_init_containers(
    pod: Pod, container: str, held: Callable[[str], frozenset[T]]
) -> frozenset[T]:
    """Return the resources of init containers that have ended when a container starts.

    ``held``: the resources of a container, by its name.
    """
    ending = {each["name"] for each in pod.init_containers if not is_sidecar(each)}
    found: frozenset[T] = frozenset()
    for name in (each["name"] for each in containers_in_order(pod)):
        if name == container:
            break
        found = found | held(name) if name in ending else found - held(name)
    return found


def peak_requests(
    pod: Pod, requested: Callable[[api.Container], Mapping[str, int]]
) -> Counter[str]:
    """Return the most that a pod needs at once: init containers take turns, sidecars run on."""
    lasting, peak = Counter[str](), Counter[str]()
    for container in pod.init_containers:
        together = lasting + Counter(requested(container))
        peak |= together
        if is_sidecar(container):
            lasting = together
    for container in pod.containers:
        lasting.update(requested(container))
    return peak | lasting


def divide(pod: Pod, pool: Part, take: Callable[[api.Container, Part], Part]) -> Division[Part]:
    """Divide a pool among a pod's containers.

    Sidecars and regular containers keep their own parts, and share what nobody owns. A regular
    init container ends before regular containers start: it may have, or share, all that the
    sidecars before it do not own.

    Args:
        take: the own part of a container from what is left; empty: it shares.
    """
    parts: dict[str, Part] = {}
    own = set()
    left = pool
    for number, container in enumerate(containers_in_order(pod)):
        ends = number < len(pod.init_containers) and not is_sidecar(container)
        part = take(container, left)
        if part:
            own.add(container["name"])
            if not ends:
                left = left - part
        if part or ends:
            parts[container["name"]] = part or left
    for container in containers_in_order(pod):
        parts.setdefault(container["name"], left)
    return Division(parts, frozenset(own))


def check_pool(
    pod: Pod, pool: Counter[str], own: Callable[[api.Container], Mapping[str, int]]
) -> str:
    """Return why a pool is too small, or an empty text.

    It is too small if nothing is left of a resource that containers have to share. ``own``: what a
    container would own of the pool.
    """
    division = divide(pod, pool, lambda container, left: +Counter(own(container)))
    for name, part in division.parts.items():
        for resource in sorted(pool.keys() - part.keys()):
            if name not in division.own:
                return (
                    f"pod rejected, its exclusive containers request all {resource} of the pod: "
                    f"none is left for container {name}"
                )
    return ""


def _limits_are_requests(container: api.Container) -> bool:
    requests = container_amounts(container, "requests")
    limits = container_amounts(container, "limits")
    return all(requests.get(name) and requests[name] == limits.get(name) for name in COMPUTE)


# The memory to book for containers and pods.

MEMORY = "memory"
HUGE = "hugepages-"


def requested_memory(
    pod: Pod, container: api.Container, *, pod_level: bool = False
) -> dict[str, int]:
    """Return the memory to book for a container. Raises ValueError for an invalid quantity.

    ``pod_level``: whether anything is booked for containers of pods with pod-level resources.
    """
    if not may_have_own(pod, container, pod_level=pod_level):
        return {}
    return memory_types(container_amounts(container, "requests"))


def memory_types(requests: Amounts) -> dict[str, int]:
    """Return the requested bytes of each type of memory, in the order of names."""
    found = {
        name: whole(amount)
        for name, amount in requests.items()
        if name == MEMORY or name.startswith(HUGE)
    }
    return {name: size for name, size in sorted(found.items()) if size > 0}


def peak_memory_requests(pod: Pod) -> dict[str, int]:
    """Return the memory that a pod needs at once."""
    return dict(sorted(peak_requests(pod, partial(requested_memory, pod)).items()))
