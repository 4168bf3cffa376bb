"""``memory_manager_state``: which NUMA nodes containers have memory on, in the kubelet's form.

Pure. Source: docs/reference/behaviour-resources.md, rs, rx.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kubeletpy.base.structs import Struct, field
from kubeletpy.resources.placement import go_dump
from kubeletpy.resources.placement.state_json import StateError, read_maps, read_object, write_state

TYPE = "*state.MemoryManagerCheckpoint"
_TABLE = (
    ("total", "TotalMemSize"),
    ("systemReserved", "SystemReserved"),
    ("allocatable", "Allocatable"),
    ("reserved", "Reserved"),
    ("free", "Free"),
)


class Table(Struct, frozen=True):
    """Bytes of one type of memory in one NUMA node."""

    total: int = 0
    system_reserved: int = 0
    allocatable: int = 0
    reserved: int = 0
    free: int = 0

    def numbers(self) -> tuple[int, ...]:
        """All numbers, as in the file."""
        return self.total, self.system_reserved, self.allocatable, self.reserved, self.free


class NodeMemory(Struct, frozen=True):
    """One NUMA node.

    Attributes:
        assignments: how many blocks are on it.
        tables: by type: ``memory``, ``hugepages-2Mi``.
        cells: the nodes that its blocks span, in the order of ids.
    """

    assignments: int
    tables: Mapping[str, Table]
    cells: tuple[int, ...] | None


class Block(Struct, frozen=True):
    """Memory of one container: bytes of a type, somewhere in these nodes."""

    nodes: tuple[int, ...] | None
    type: str
    size: int


Blocks = Mapping[str, Mapping[str, Sequence[Block]]]
"""Blocks by uid of the pod and name of the container."""


class MemoryState(Struct, frozen=True):
    """Which container has which memory.

    Attributes:
        entries: a container's own blocks, or its part of its pod's pool.
        pools: the blocks of a pod that is placed as one, by uid. The nodes count these alone.
    """

    policy: str
    nodes: Mapping[int, NodeMemory] = field(default_factory=lambda: MappingProxyType({}))
    entries: Blocks = field(default_factory=lambda: MappingProxyType({}))
    pools: Mapping[str, Sequence[Block]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing."""
        return not self.nodes and not self.entries and not self.pools

    def container_blocks(self, uid: str, container: str) -> Sequence[Block] | None:
        """A container's blocks; None: it has none."""
        return self.entries.get(uid, {}).get(container)

    def booked_blocks(self, uid: str) -> Sequence[Block]:
        """The blocks of a pod that its nodes count."""
        if (pool := self.pools.get(uid)) is not None:
            return pool
        return [block for blocks in self.entries.get(uid, {}).values() for block in blocks]


def write_memory_state(state: MemoryState) -> str:
    """The file's text."""
    entries = {
        uid: {name: _written(blocks) for name, blocks in of_pod.items()}
        for uid, of_pod in state.entries.items()
        if of_pod
    }
    return write_state(
        {
            "policyName": state.policy,
            "machineState": {
                str(node): {
                    "numberOfAssignments": of_node.assignments,
                    "memoryMap": {
                        kind: dict(zip((key for key, _ in _TABLE), table.numbers(), strict=True))
                        for kind, table in sorted(of_node.tables.items())
                    },
                    "cells": _listed(of_node.cells),
                }
                for node, of_node in sorted(state.nodes.items())
            },
            **({"entries": entries} if entries else {}),
        },
        memory_checksum(state),
        {uid: {"memoryBlocks": _written(blocks)} for uid, blocks in state.pools.items()},
    )


def read_memory_state(text: str) -> MemoryState:
    """The state in a file.

    Raises:
        StateError: it can't be used; the message contains the reason.
    """
    outer = read_object(text)
    inner = outer.inner()
    found = outer if inner is None else inner
    nodes = read_maps(found.values.get("machineState"), "machineState")
    entries = read_maps(found.values.get("entries"), "entries")
    of_pods = read_maps(found.values.get("podEntries"), "podEntries")
    try:
        state = MemoryState(
            found.text("policyName"),
            {int(node): _node(of_node) for node, of_node in nodes.items()},
            {
                uid: {name: tuple(map(_block, blocks)) for name, blocks in of_pod.items()}
                for uid, of_pod in entries.items()
            },
            {
                uid: tuple(map(_block, entry.get("memoryBlocks") or ()))
                for uid, entry in of_pods.items()
            },
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StateError(f"it has a form that this version does not support: {error!r}") from error
    if inner is None:
        found.verify(
            *([] if state.pools else [memory_checksum(state)]),
            memory_checksum(state, with_pools=True),
        )
    return state


def memory_checksum(state: MemoryState, *, with_pools: bool = False) -> int:
    """The checksum of a file with this state.

    ``with_pools``: of a file of 1.36 with the gate PodLevelResourceManagers.
    """
    of_pods = {
        uid: go_dump.struct((("MemoryBlocks", "[]state.Block", _all_dumped(blocks)),))
        for uid, blocks in state.pools.items()
    }
    pods = (
        (("PodEntries", "state.PodMemoryAssignments", go_dump.text_map(of_pods)),)
        if with_pools
        else ()
    )
    nodes = {
        node: go_dump.pointer(
            go_dump.struct(
                (
                    ("NumberOfAssignments", "int", of_node.assignments),
                    ("MemoryMap", "map[v1.ResourceName]*state.MemoryTable", _tables(of_node)),
                    ("Cells", "[]int", go_dump.items(of_node.cells)),
                )
            )
        )
        for node, of_node in state.nodes.items()
    }
    entries = {
        uid: go_dump.text_map({name: _all_dumped(blocks) for name, blocks in of_pod.items()})
        for uid, of_pod in state.entries.items()
        if of_pod
    }
    return go_dump.checksum(
        TYPE,
        (
            ("PolicyName", "string", state.policy),
            ("MachineState", "state.NUMANodeMap", go_dump.number_map(nodes)),
            ("Entries", "state.ContainerMemoryAssignments", go_dump.text_map(entries)),
            *pods,
            ("Checksum", "checksum.Checksum", 0),
        ),
    )


def _tables(node: NodeMemory) -> str:
    return go_dump.text_map(
        {
            kind: go_dump.pointer(
                go_dump.struct(
                    (name, "uint64", number)
                    for (_, name), number in zip(_TABLE, table.numbers(), strict=True)
                )
            )
            for kind, table in node.tables.items()
        }
    )


def _all_dumped(blocks: Sequence[Block]) -> str:
    return go_dump.items(map(_dumped, blocks))


def _dumped(block: Block) -> str:
    return go_dump.struct(
        (
            ("NUMAAffinity", "[]int", go_dump.items(block.nodes)),
            ("Type", "v1.ResourceName", block.type),
            ("Size", "uint64", block.size),
        )
    )


def _node(found: dict[str, Any]) -> NodeMemory:
    tables = {
        str(kind): Table(*(int(table.get(key, 0)) for key, _ in _TABLE))
        for kind, table in (found.get("memoryMap") or {}).items()
    }
    return NodeMemory(int(found.get("numberOfAssignments", 0)), tables, _ids(found.get("cells")))


def _block(found: dict[str, Any]) -> Block:
    return Block(_ids(found.get("numaAffinity")), str(found["type"]), int(found["size"]))


def _written(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    return [{"numaAffinity": _listed(b.nodes), "type": b.type, "size": b.size} for b in blocks]


def _ids(found: Any) -> tuple[int, ...] | None:
    return None if found is None else tuple(int(each) for each in found)


def _listed(ids: tuple[int, ...] | None) -> list[int] | None:
    return None if ids is None else list(ids)
