"""memoryManagerPolicy Static: memory of certain NUMA nodes for Guaranteed pods. Pure.

Source: docs/reference/behaviour-resources.md, rs. A decision is a new :class:`MemoryState`; it is
kept and written by :mod:`kubeletpy.placement.memory_manager`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from kubeletpy.api import types as api
from kubeletpy.api.quantity import whole
from kubeletpy.placement.hints import Hint, Hints, mask_of, nodes_of
from kubeletpy.placement.memory_state import Block, MemoryState, NodeMemory, Table
from kubeletpy.placement.refusal import AllocationRefused
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.qos import QoSClass, qos_class
from kubeletpy.pods.resources import container_amounts, pod_level_set

STATIC = "Static"
MEMORY = "memory"
HUGE = "hugepages-"
Amounts = Mapping[str, int]
"""Bytes by type."""
Nodes = Mapping[int, NodeMemory]


def wanted(pod: Pod, container: api.Container) -> dict[str, int]:
    """What a container has booked. Raises ValueError for what is not a quantity."""
    if qos_class(pod) is not QoSClass.GUARANTEED or pod_level_set(pod):
        return {}
    found = {
        name: whole(amount)
        for name, amount in container_amounts(container, "requests").items()
        if name == MEMORY or name.startswith(HUGE)
    }
    return {name: size for name, size in sorted(found.items()) if size > 0}


def wanted_of_pod(pod: Pod) -> dict[str, int]:
    """What a pod needs at once: init containers take turns, sidecars stay."""
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.init_containers:
        for name, size in wanted(pod, container).items():
            together = sidecars.get(name, 0) + size
            if is_sidecar(container):
                sidecars[name] = together
            peak[name] = max(peak.get(name, 0), together)
    regular = dict(sidecars)
    for container in pod.containers:
        for name, size in wanted(pod, container).items():
            regular[name] = regular.get(name, 0) + size
    names = sorted(peak.keys() | regular.keys())
    return {name: max(peak.get(name, 0), regular.get(name, 0)) for name in names}


@dataclass(frozen=True)
class StaticMemory:
    """The policy on one machine.

    Attributes:
        nodes: every NUMA node with nothing booked.
    """

    nodes: Nodes

    def initial(self) -> MemoryState:
        """Nobody has booked anything."""
        return MemoryState(STATIC, self.nodes)

    def problem(self, state: MemoryState) -> str:
        """Why a state that was read cannot be gone on with; empty: it can."""
        if not state.nodes:
            return "it has assignments and no NUMA nodes" if state.entries else ""
        expected: Nodes = self.nodes
        for of_pod in state.entries.values():
            for block in (block for blocks in of_pod.values() for block in blocks):
                if not set(block.nodes or ()) <= expected.keys():
                    return f"it has memory of NUMA nodes that are not there: {block.nodes}"
                expected = _booked(expected, block, block.size)
        return _difference(expected, state.nodes)

    # -- hints --------------------------------------------------------------------------------

    def hints(self, state: MemoryState, pod: Pod, container: api.Container | None) -> Hints:
        """Where the memory could be; None for the container: that of the whole pod."""
        if container is None:
            return self._pod_hints(state, pod)
        amounts = wanted(pod, container)
        held = state.of(pod.uid, container["name"])
        if not amounts:
            return {}
        if held is not None:
            shrinks = any(
                each["name"] == container["name"] and not is_sidecar(each)
                for each in pod.init_containers
            )
            return _hints_of(held, amounts, sizes=not shrinks)
        return self._offered(state, amounts, pod, container)

    def _pod_hints(self, state: MemoryState, pod: Pod) -> Hints:
        amounts = wanted_of_pod(pod)
        if not amounts:
            return {}
        masks = {block.nodes for of in state.entries.get(pod.uid, {}).values() for block in of}
        if masks:
            # what it has stays where it is; over several places it is no preference
            only = next(iter(masks)) if len(masks) == 1 else None
            return {
                name: None if only is None else (Hint(mask_of(only), True),) for name in amounts
            }
        return self._offered(state, amounts, pod, None)

    def _offered(
        self, state: MemoryState, amounts: Amounts, pod: Pod, container: api.Container | None
    ) -> dict[str, tuple[Hint, ...]]:
        found = self._masks(state, amounts, pod, container)
        return dict.fromkeys(amounts, found)

    def _masks(
        self, state: MemoryState, amounts: Amounts, pod: Pod, container: api.Container | None
    ) -> tuple[Hint, ...]:
        nodes, narrowest, found = sorted(state.nodes), len(state.nodes), []
        for width in range(1, len(nodes) + 1):
            for some in combinations(nodes, width):
                if not _fits(state.nodes, some, amounts, "allocatable"):
                    continue
                narrowest = min(narrowest, width)
                reusable = self.reusable(state, pod, container, some)
                lacking = {name: size - reusable.get(name, 0) for name, size in amounts.items()}
                if _may_group(state.nodes, some) and _fits(state.nodes, some, lacking, "free"):
                    found.append(some)
        return tuple(Hint(mask_of(some), len(some) == narrowest) for some in found)

    def reusable(
        self,
        state: MemoryState,
        pod: Pod,
        container: api.Container | None,
        nodes: tuple[int, ...],
    ) -> dict[str, int]:
        """What init containers that have ended when this one starts have left, on these nodes.

        Blocks of init containers shrink by what later containers take of them: what they still
        have is what can be had of them.
        """
        found: dict[str, int] = {}
        for each in pod.init_containers:
            if container is not None and each["name"] == container["name"]:
                break
            if not is_sidecar(each):
                for block in state.of(pod.uid, each["name"]) or ():
                    if block.nodes == nodes:
                        found[block.type] = found.get(block.type, 0) + block.size
        return found

    # -- allocation ---------------------------------------------------------------------------

    def allocate(
        self, state: MemoryState, pod: Pod, container: api.Container, hint: Hint
    ) -> MemoryState:
        """The state after a container had its memory booked.

        Raises:
            AllocationRefused: there is not so much, or only where it must not be mixed.
        """
        amounts, name = wanted(pod, container), container["name"]
        if not amounts or state.of(pod.uid, name) is not None:
            return state
        nodes = self._chosen(state, amounts, pod, container, hint)
        reusable = self.reusable(state, pod, container, nodes)
        booked: Nodes = state.nodes
        blocks = tuple(Block(nodes, kind, size) for kind, size in amounts.items())
        for block in blocks:
            booked = _booked(booked, block, max(block.size - reusable.get(block.type, 0), 0))
        of_pod = {**_shrunk(state, pod, name, blocks), name: blocks}
        return MemoryState(state.policy, booked, {**state.entries, pod.uid: of_pod})

    def _chosen(
        self,
        state: MemoryState,
        amounts: Amounts,
        pod: Pod,
        container: api.Container,
        hint: Hint,
    ) -> tuple[int, ...]:
        offered = self._masks(state, amounts, pod, container)
        best = hint
        if best.mask is None:
            if not offered:
                raise _refused(
                    "failed to get the default NUMA affinity, no NUMA nodes with enough memory "
                    "is available"
                )
            best = _best(offered)
            if hint.preferred and not best.preferred:
                raise _refused("failed to find the default preferred hint")
        mask = best.mask or 0
        if not _fits(state.nodes, nodes_of(mask), amounts, "free"):
            wider = [each for each in offered if each.mask is not None and mask & ~each.mask == 0]
            if not wider:
                raise _refused("failed to find NUMA nodes to extend the current topology hint")
            extended = _best(wider)
            if best.preferred and not extended.preferred:
                raise _refused("failed to find the extended preferred hint")
            mask = extended.mask or 0
        nodes = nodes_of(mask)
        if len(nodes) > 1 and not _may_group(state.nodes, nodes):
            raise _refused("preferred hint violates NUMA node allocation")
        return nodes

    def without_all_but(self, state: MemoryState, uids: Collection[str]) -> MemoryState:
        """The state after all other pods gave back what they had; itself, if they had nothing."""
        gone = state.entries.keys() - set(uids)
        if not gone:
            return state
        nodes: Nodes = state.nodes
        for uid in sorted(gone):
            for block in (block for blocks in state.entries[uid].values() for block in blocks):
                nodes = _released(nodes, block)
        kept = {uid: of_pod for uid, of_pod in state.entries.items() if uid not in gone}
        return MemoryState(state.policy, nodes, kept)


def _refused(why: str) -> AllocationRefused:
    return AllocationRefused(f"Allocate failed due to [memorymanager] {why}, which is unexpected")


def _best(hints: Sequence[Hint]) -> Hint:
    return min(hints, key=lambda each: (not each.preferred, (each.mask or 0).bit_count()))


def _hints_of(held: Sequence[Block], amounts: Amounts, *, sizes: bool) -> Hints:
    """The hints of what a container has; none when it has something else than it asks for."""
    found = {block.type: block.size for block in held}
    if found.keys() != amounts.keys() or (sizes and found != dict(amounts)):
        return {}
    return {block.type: (Hint(mask_of(block.nodes or ()), True),) for block in held}


def _fits(nodes: Nodes, some: Sequence[int], amounts: Amounts, what: str) -> bool:
    return all(
        sum(getattr(nodes[node].tables.get(name, Table()), what) for node in some) >= size
        for name, size in amounts.items()
    )


def _may_group(nodes: Nodes, some: tuple[int, ...]) -> bool:
    """A node is used alone, or in one group of nodes: never in both ways."""
    if len(some) == 1:
        return len(nodes[some[0]].cells or ()) <= 1
    return all(not nodes[each].assignments or nodes[each].cells == some for each in some)


def _booked(nodes: Nodes, block: Block, size: int) -> Nodes:
    """Book so much of a block, from its nodes in turn."""
    after = dict(nodes)
    for node in block.nodes or ():
        found = after[node]
        table = found.tables.get(block.type, Table())
        taken = min(size, table.free)
        size -= taken
        table = replace(table, reserved=table.reserved + taken, free=table.free - taken)
        tables = {**found.tables, block.type: table}
        after[node] = NodeMemory(found.assignments + 1, tables, block.nodes)
    return after


def _released(nodes: Nodes, block: Block) -> Nodes:
    after, size = dict(nodes), block.size
    for node in block.nodes or ():
        found = after[node]
        table = found.tables.get(block.type, Table())
        given = min(size, table.reserved)
        size -= given
        table = replace(table, reserved=table.reserved - given, free=table.free + given)
        count = found.assignments - 1
        cells = found.cells if count else (node,)
        after[node] = NodeMemory(count, {**found.tables, block.type: table}, cells)
    return after


def _shrunk(
    state: MemoryState, pod: Pod, container: str, taken: Sequence[Block]
) -> dict[str, Sequence[Block]]:
    """The pod's blocks, those of init containers without what a later one takes of them."""
    of_pod = dict(state.entries.get(pod.uid, {}))
    left = {block.type: block.size for block in taken}
    nodes = taken[0].nodes
    for each in pod.init_containers:
        if each["name"] == container:
            break
        if is_sidecar(each) or each["name"] not in of_pod:
            continue
        shrunk = []
        for block in of_pod[each["name"]]:
            less = min(block.size, left.get(block.type, 0)) if block.nodes == nodes else 0
            left[block.type] = left.get(block.type, 0) - less
            shrunk.append(replace(block, size=block.size - less))
        of_pod[each["name"]] = tuple(shrunk)
    return of_pod


def _difference(expected: Nodes, found: Nodes) -> str:
    """Where the nodes of a state are not what machine and assignments make of them."""
    if expected.keys() != found.keys():
        return f"it is of a machine with the NUMA nodes {sorted(found)}, not {sorted(expected)}"
    for node, wanted_node in expected.items():
        seen = found[node]
        if seen.assignments != wanted_node.assignments or seen.cells != wanted_node.cells:
            return f"the assignments of NUMA node {node} are not those of its containers"
        if seen.tables.keys() != wanted_node.tables.keys():
            return f"NUMA node {node} has other types of memory"
        for kind, table in wanted_node.tables.items():
            if table.numbers()[:3] != seen.tables[kind].numbers()[:3]:
                return f"{kind} of NUMA node {node}, or what is reserved of it, has changed"
            group = wanted_node.cells or ()
            for what in ("free", "reserved"):
                sums = [
                    sum(getattr(side[each].tables.get(kind, Table()), what) for each in group)
                    for side in (expected, found)
                ]
                if sums[0] != sums[1]:
                    return f"{what} {kind} of NUMA node {node} is not what its containers leave"
    return ""
