"""memoryManagerPolicy Static: memory on certain NUMA nodes for Guaranteed pods. Pure.

Source: docs/reference/behaviour-resources.md, rs. A decision is a new :class:`MemoryState`, which
:mod:`kubeletpy.resources.placement.managers` keeps and writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, replace
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.resources.placement import model
from kubeletpy.resources.placement.state import Block, MemoryState, NodeMemory, Table

Amounts = Mapping[str, int]
"""Bytes by type."""
Nodes = Mapping[int, NodeMemory]
STATIC_MEMORY_POLICY = "Static"


# The free memory of NUMA nodes as blocks are booked and released.


def fits(nodes: Nodes, some: Sequence[int], amounts: Amounts, what: str) -> bool:
    """Whether these nodes together have the amounts; ``what``: free, or allocatable."""
    return all(
        sum(getattr(nodes[node].tables.get(name, Table()), what) for node in some) >= size
        for name, size in amounts.items()
    )


def may_group(nodes: Nodes, some: tuple[int, ...]) -> bool:
    """A node is used alone, or in one group of nodes: never in both ways."""
    return all(not nodes[each].assignments or nodes[each].cells == some for each in some)


def booked(nodes: Nodes, block: Block, size: int) -> Nodes:
    """Return the nodes after this much of a block is booked, from its nodes in turn."""
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


def released(nodes: Nodes, block: Block) -> Nodes:
    """Return the nodes after a block is released, to its nodes in turn."""
    after, size = dict(nodes), block.size
    for node in block.nodes or ():
        found = after[node]
        table = found.tables.get(block.type, Table())
        freed = min(size, table.reserved)
        size -= freed
        table = replace(table, reserved=table.reserved - freed, free=table.free + freed)
        count = found.assignments - 1
        cells = found.cells if count else (node,)
        after[node] = NodeMemory(count, {**found.tables, block.type: table}, cells)
    return after


def shrunk(
    state: MemoryState, pod: Pod, container: str, taken: Sequence[Block]
) -> dict[str, Sequence[Block]]:
    """Return the pod's blocks, those of init containers without what a later one takes."""
    of_pod = dict(state.entries.get(pod.uid, {}))
    left = {block.type: block.size for block in taken}
    nodes = taken[0].nodes
    for each in pod.init_containers:
        if each["name"] == container:
            break
        if is_sidecar(each) or each["name"] not in of_pod:
            continue
        rest = []
        for block in of_pod[each["name"]]:
            room = left.get(block.type, 0)
            less = min(block.size, room) if block.nodes == nodes else 0
            left[block.type] = room - less
            rest.append(replace(block, size=block.size - less))
        of_pod[each["name"]] = tuple(rest)
    return of_pod


def difference(expected: Nodes, found: Nodes) -> str:
    """Return how a state's nodes differ from those that machine and assignments result in."""
    if expected.keys() != found.keys():
        return f"it is of a machine with the NUMA nodes {sorted(found)}, not {sorted(expected)}"
    for node, desired_node in expected.items():
        seen = found[node]
        if seen.assignments != desired_node.assignments or seen.cells != desired_node.cells:
            return f"the assignments of NUMA node {node} are not those of its containers"
        if seen.tables.keys() != desired_node.tables.keys():
            return f"NUMA node {node} has other types of memory"
        for kind, table in desired_node.tables.items():
            if table.numbers()[:3] != seen.tables[kind].numbers()[:3]:
                return f"{kind} of NUMA node {node}, or what is reserved of it, has changed"
            group = desired_node.cells or ()
            for what in ("free", "reserved"):
                sums = [
                    sum(getattr(side[each].tables.get(kind, Table()), what) for each in group)
                    for side in (expected, found)
                ]
                if sums[0] != sums[1]:
                    return f"{what} {kind} of NUMA node {node} is not what its containers leave"
    return ""


class StaticMemory(Struct, frozen=True):
    """The policy on one machine.

    Attributes:
        nodes: every NUMA node with nothing booked.
        pod_level: what pods with pod-level resources get.
    """

    nodes: Nodes
    pod_level: model.PodLevelPlacement = model.PodLevelPlacement.NOTHING

    def initial(self) -> MemoryState:
        """The state with nothing booked."""
        return MemoryState(STATIC_MEMORY_POLICY, self.nodes)

    def problem(self, state: MemoryState) -> str:
        """Return why a state that was read cannot be used; empty if it can."""
        if not state.nodes:
            return "" if state.is_empty else "it has assignments and no NUMA nodes"
        expected: Nodes = self.nodes
        for uid in {**state.entries, **state.pools}:
            for block in state.booked_blocks(uid):
                if not set(block.nodes or ()) <= expected.keys():
                    return f"it has memory of NUMA nodes that are not there: {block.nodes}"
                expected = booked(expected, block, block.size)
        return difference(expected, state.nodes)

    def requested(self, pod: Pod, container: api.Container) -> dict[str, int]:
        """The memory to book for a container. Raises ValueError."""
        allowed = self.pod_level is not model.PodLevelPlacement.NOTHING
        return model.requested_memory(pod, container, pod_level=allowed)

    # -- hints --------------------------------------------------------------------------------

    def hints(self, state: MemoryState, pod: Pod, container: api.Container | None) -> model.Hints:
        """Return where the memory could be; ``container`` None stands for the whole pod."""
        if container is None:
            return self._pod_hints(state, pod)
        amounts = self.requested(pod, container)
        held = state.container_blocks(pod.uid, container["name"])
        if not amounts:
            return {}
        if held is not None:
            shrinks = any(
                each["name"] == container["name"] and not is_sidecar(each)
                for each in pod.init_containers
            )
            return _hints_of(held, amounts, sizes=not shrinks)
        return dict.fromkeys(amounts, self._masks(state, amounts, pod, container))

    def _pod_hints(self, state: MemoryState, pod: Pod) -> model.Hints:
        pools = self.pod_level.pools(pod)
        amounts = (
            model.memory_types(model.pool_requests(pod))
            if pools
            else model.peak_memory_requests(pod)
        )
        if not amounts:
            return {}
        if pools and self._check_pool(pod, amounts):
            return dict.fromkeys(amounts, ())
        masks = {block.nodes for block in state.booked_blocks(pod.uid)}
        if masks:
            # what it has stays where it is; if that is in several positions there is no preference
            only = next(iter(masks)) if len(masks) == 1 else None
            return {
                name: None if only is None else (model.Hint(model.mask_of(only), True),)
                for name in amounts
            }
        return dict.fromkeys(amounts, self._masks(state, amounts, pod, None))

    def _masks(
        self, state: MemoryState, amounts: Amounts, pod: Pod, container: api.Container | None
    ) -> tuple[model.Hint, ...]:
        nodes, narrowest, found = sorted(state.nodes), len(state.nodes), []
        tables = {
            name: [state.nodes[n].tables.get(name, Table()) for n in nodes] for name in amounts
        }
        could = [
            (model.sums(t.allocatable for t in tables[name]), size)
            for name, size in amounts.items()
        ]
        free = [
            (name, model.sums(t.free for t in tables[name]), size) for name, size in amounts.items()
        ]
        busy = {node.cells for node in state.nodes.values() if node.assignments}
        in_use = sum(
            1 << position for position, n in enumerate(nodes) if state.nodes[n].assignments
        )
        as_mask = model.masks(nodes)
        for index, positions in model.subsets(len(nodes)):
            if any(total[index] < size for total, size in could):
                continue
            narrowest = min(narrowest, len(positions))
            some = tuple(nodes[position] for position in positions)
            if len(some) > 1 and index & in_use and some not in busy:
                continue  # one of its nodes is used in another way
            if not may_group(state.nodes, some):
                continue
            reusable = self.reusable(state, pod, container, some)
            if all(of[index] >= size - reusable.get(name, 0) for name, of, size in free):
                found.append(as_mask[index])
        return tuple(model.Hint(mask, mask.bit_count() == narrowest) for mask in found)

    def reusable(
        self, state: MemoryState, pod: Pod, container: api.Container | None, nodes: tuple[int, ...]
    ) -> dict[str, int]:
        """Memory on these nodes that ended init containers leave to the one that starts now.

        Blocks of init containers shrink by what later containers take from them: the rest can be
        reused.
        """
        found: dict[str, int] = {}
        for each in pod.init_containers:
            if container is not None and each["name"] == container["name"]:
                break
            if not is_sidecar(each):
                for block in state.container_blocks(pod.uid, each["name"]) or ():
                    if block.nodes == nodes:
                        found[block.type] = found.get(block.type, 0) + block.size
        return found

    # -- allocation ---------------------------------------------------------------------------

    def allocate(
        self, state: MemoryState, pod: Pod, container: api.Container, hint: model.Hint
    ) -> MemoryState:
        """The state after a container's memory is booked.

        Raises:
            AllocationRefused: there is not that much, or only where it must not be mixed.
        """
        amounts, name = self.requested(pod, container), container["name"]
        if not amounts or state.container_blocks(pod.uid, name) is not None:
            return state
        nodes = self._chosen(state, amounts, pod, container, hint)
        reusable = self.reusable(state, pod, container, nodes)
        left: Nodes = state.nodes
        blocks = _blocks(nodes, amounts)
        for block in blocks:
            left = booked(left, block, max(block.size - reusable.get(block.type, 0), 0))
        of_pod = {**shrunk(state, pod, name, blocks), name: blocks}
        return replace(state, nodes=left, entries={**state.entries, pod.uid: of_pod})

    def allocate_pool(self, state: MemoryState, pod: Pod, hint: model.Hint) -> MemoryState:
        """The state after a pod's pool is booked; a pod keeps what it has.

        A pool that was recorded without all parts, by a kubelet that was interrupted, is divided
        again.

        Raises:
            AllocationRefused: there is not that much, or none is left to share.
        """
        amounts = model.memory_types(model.pool_requests(pod))
        pool = state.pools.get(pod.uid)
        have = state.entries.get(pod.uid, {}).keys()
        every = {container["name"] for container in model.containers_in_order(pod)}
        if not amounts or every <= have or (have and pool is None):
            return state
        if why := self._check_pool(pod, amounts):
            raise model.AllocationRefused(why, model.EMPTY_POOL)
        left: Nodes = state.nodes
        if pool is None:
            nodes = self._chosen(state, amounts, pod, None, hint)
            pool = _blocks(nodes, amounts)
            for block in pool:
                left = booked(left, block, block.size)
        else:
            nodes = pool[0].nodes or ()
        parts = self.divide(pod, amounts).parts
        of_pod = {name: _blocks(nodes, part) for name, part in parts.items()}
        return MemoryState(
            state.policy, left, {**state.entries, pod.uid: of_pod}, {**state.pools, pod.uid: pool}
        )

    def divide(self, pod: Pod, pool: Amounts) -> model.Division[Counter[str]]:
        """The bytes of a pod's pool, divided among its containers."""
        return model.divide(
            pod, Counter(pool), lambda each, left: Counter(self.requested(pod, each))
        )

    def _check_pool(self, pod: Pod, amounts: Amounts) -> str:
        return model.check_pool(pod, Counter(amounts), lambda each: self.requested(pod, each))

    def _chosen(
        self,
        state: MemoryState,
        amounts: Amounts,
        pod: Pod,
        container: api.Container | None,
        hint: model.Hint,
    ) -> tuple[int, ...]:
        best = hint
        if best.mask is None:
            offered = self._masks(state, amounts, pod, container)
            if not offered:
                raise _refused(
                    "failed to get the default NUMA affinity, no NUMA nodes with enough memory "
                    "is available"
                )
            best = _best(offered)
            if hint.preferred and not best.preferred:
                raise _refused("failed to find the default preferred hint")
        mask = _mask(best)
        if not fits(state.nodes, model.nodes_of(mask), amounts, "free"):
            offered = self._masks(state, amounts, pod, container)
            wider = [each for each in offered if mask & ~_mask(each) == 0]
            if not wider:
                raise _refused("failed to find NUMA nodes to extend the current topology hint")
            extended = _best(wider)
            if best.preferred and not extended.preferred:
                raise _refused("failed to find the extended preferred hint")
            mask = _mask(extended)
        nodes = model.nodes_of(mask)
        if len(nodes) > 1 and not may_group(state.nodes, nodes):
            raise _refused("preferred hint violates NUMA node allocation")
        return nodes

    def without_all_but(self, state: MemoryState, uids: Collection[str]) -> MemoryState:
        """The state after all other pods give back what they had; itself if they had nothing."""
        removed = {*state.entries, *state.pools} - set(uids)
        if not removed:
            return state
        nodes: Nodes = state.nodes
        for uid in sorted(removed):
            for block in state.booked_blocks(uid):
                nodes = released(nodes, block)
        kept = {uid: of_pod for uid, of_pod in state.entries.items() if uid not in removed}
        pools = {uid: blocks for uid, blocks in state.pools.items() if uid not in removed}
        return MemoryState(state.policy, nodes, kept, pools)


def _blocks(nodes: tuple[int, ...], amounts: Amounts) -> tuple[Block, ...]:
    return tuple(Block(nodes, kind, amounts[kind]) for kind in sorted(amounts))


def _refused(why: str) -> model.AllocationRefused:
    return model.AllocationRefused(
        f"Allocate failed due to [memorymanager] {why}, which is unexpected"
    )


def _mask(hint: model.Hint) -> int:
    assert hint.mask is not None, "it names nodes"
    return hint.mask


def _best(hints: Sequence[model.Hint]) -> model.Hint:
    return min(hints, key=lambda each: (not each.preferred, _mask(each).bit_count()))


def _hints_of(held: Sequence[Block], amounts: Amounts, *, sizes: bool) -> model.Hints:
    """The hints for what a container has; none when that differs from its requests."""
    found = {block.type: block.size for block in held}
    if found.keys() != amounts.keys() or (sizes and found != dict(amounts)):
        return {}
    return {block.type: (model.Hint(model.mask_of(block.nodes or ()), True),) for block in held}
