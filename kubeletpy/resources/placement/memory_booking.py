"""Computes the free memory of NUMA nodes as blocks are booked and released. Pure.

Source: docs/reference/behaviour-resources.md, rs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.resources.placement.memory_state import Block, MemoryState, NodeMemory, Table

Amounts = Mapping[str, int]
"""Bytes by type."""
Nodes = Mapping[int, NodeMemory]


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
    """Book this much of a block, from its nodes in turn."""
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
    """Give a block back to its nodes in turn."""
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


def shrunk(
    state: MemoryState, pod: Pod, container: str, taken: Sequence[Block]
) -> dict[str, Sequence[Block]]:
    """The pod's blocks, those of init containers without what a later one takes from them."""
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
    """How a state's nodes differ from what follows from the machine and the assignments."""
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
