"""The JSON of state files, read defensively and written without spaces. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.pods.pod import fnv1a_32
from kubeletpy.resources.placement.hints import format_ids, parse_ids

# The text of a Go value from which the kubelet computes the checksum of a state file.
#
# The checksums of the CPU, memory and device managers' files are FNV-1a of such a text, so a
# reader or writer has to reproduce it to the letter. Grammar and vectors:
# docs/reference/behaviour-resources.md, rx. Types are written as the file's owner names them.

NIL = "<nil>"
Field = tuple[str, str, object]
"""Name, Go type and value; a value is a text that is in the grammar already, or a number."""


def checksum(type_name: str, fields: Iterable[Field]) -> int:
    """The checksum of a whole file, with the checksum field set to 0."""
    return fnv1a_32(f"({type_name}){struct(fields)}".encode("utf-8", "surrogateescape"))


def checksum_of_text(text: str) -> int:
    """The checksum of a string, as of the ``data`` of a file."""
    return fnv1a_32(b"(string)" + text.encode("utf-8", "surrogateescape"))


def struct(fields: Iterable[Field]) -> str:
    """A struct inside a map or a list, or after the name of its type."""
    return "{" + " ".join(f"{name}:({type_}){value}" for name, type_, value in fields) + "}"


def pointer(value: str) -> str:
    """Formats a pointer inside a map: its target, marked."""
    return f"<*>{value}"


def text_map(values: Mapping[str, object]) -> str:
    """A map with text keys."""
    return _map((key, values[key]) for key in sorted(values, key=_bytes))


def number_map(values: Mapping[int, object]) -> str:
    """A map with numeric keys."""
    return _map((key, values[key]) for key in sorted(values))


def items(values: Iterable[object] | None) -> str:
    """A list; None is the nil list, which differs from the empty one."""
    return NIL if values is None else "[" + " ".join(str(value) for value in values) + "]"


def _map(pairs: Iterable[tuple[object, object]]) -> str:
    return "map[" + " ".join(f"{key}:{value}" for key, value in pairs) + "]"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class StateError(Exception):
    """A state file can't be used; the message states what is wrong with it."""


class StateObject(Struct, frozen=True):
    """The object in a state file."""

    values: Mapping[str, Any]

    def text(self, key: str) -> str:
        """A text; empty when it is missing. Raises StateError."""
        found = self.values.get(key, "")
        if not isinstance(found, str):
            raise StateError(f"{key} is not a string")
        return found

    def verify(self, computed: int, *others: int) -> None:
        """Compare the checksum with the file's, where 0 means none. Raises StateError.

        ``others``: the checksums that further versions compute of the same contents.
        """
        noted = self.values.get("checksum", 0)
        if not isinstance(noted, int) or noted not in (0, computed, *others):
            raise StateError(f"its checksum is {str(noted)[:20]}, the computed one is {computed}")

    def inner(self) -> StateObject | None:
        """The object in ``data``, as kubelets write it from 1.37 on; None: it has none.

        The other fields repeat it for earlier kubelets. They are not read when it is damaged, as by
        a kubelet 1.37: a state without what only ``data`` holds would be wrong. Raises StateError.
        """
        data, noted = self.text("data"), self.values.get("dataChecksum") or 0
        if not data and not noted:
            return None
        if noted != (computed := checksum_of_text(data)):
            raise StateError(f"its dataChecksum is {str(noted)[:20]}, that of its data {computed}")
        return read_object(data)


def read_object(text: str) -> StateObject:
    """The object in a file, keys in any order. Raises StateError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"it is not JSON: {str(error)[:200]}") from error
    if not isinstance(found, dict):
        raise StateError("it is not a JSON object")
    return StateObject(found)


def write_object(values: Mapping[str, Any]) -> str:
    """An object as text, its keys in the order given."""
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def write_state(
    values: Mapping[str, Any], checksum: int, of_pods: Mapping[str, Mapping[str, Any]]
) -> str:
    """The text of a state file.

    Every version reads the form without ``of_pods``. With them it is the form of 1.37: they are
    only in ``data``, and earlier versions read the rest.

    Args:
        checksum: that of the values.
        of_pods: what pods have that are placed as one, by uid.
    """
    more: dict[str, Any] = {}
    if of_pods:
        data = write_object({**values, "podEntries": of_pods})
        more = {"data": data, "dataChecksum": checksum_of_text(data)}
    return write_object({**values, "checksum": checksum, **more})


def read_text_maps(found: Any, what: str) -> dict[str, dict[str, str]]:
    """A map of maps of texts; None is the empty one. Raises StateError."""
    maps = read_maps(found, what)
    for of_pod in maps.values():
        if not all(isinstance(text, str) for text in of_pod.values()):
            raise StateError(f"{what} holds what is not a string")
    return maps


def read_maps(found: Any, what: str) -> dict[str, dict[str, Any]]:
    """A map of maps; None is the empty one. Raises StateError."""
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(of, dict) for of in found.values()):
        raise StateError(f"{what} has a form that this version does not support")
    return found


# ``cpu_manager_state``: which container has which CPUs, in the kubelet's form.
#
# Source: docs/reference/behaviour-resources.md, rx.

CPU_TYPE = "*state.CPUManagerCheckpoint"
Parts = Mapping[str, frozenset[int]]
"""CPUs by name of the container."""
Entries = Mapping[str, Parts]
"""CPUs by uid of the pod and name of the container."""


class CpuState(Struct, frozen=True):
    """Which container has which CPUs.

    Attributes:
        policy: the cpuManagerPolicy by which they were assigned.
        pool: the CPUs of all containers that have none of their own.
        entries: a container's own CPUs, or its part of its pod's pool.
        pools: the CPUs of a pod that is placed as one, by uid.
    """

    policy: str
    pool: frozenset[int] = frozenset()
    entries: Entries = field(default_factory=lambda: MappingProxyType({}))
    pools: Mapping[str, frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing."""
        return not self.pool and not self.entries and not self.pools

    def container_cpus(self, uid: str, container: str) -> frozenset[int] | None:
        """A container's own, or its part of its pod's pool; None: it has none."""
        return self.entries.get(uid, {}).get(container)

    def pod_cpus(self, uid: str) -> frozenset[int]:
        """All CPUs of a pod: its pool, or what its containers have."""
        found = self.pools.get(uid)
        return frozenset().union(*self.entries.get(uid, {}).values()) if found is None else found

    def with_container(self, uid: str, container: str, cpus: frozenset[int]) -> CpuState:
        """The state after CPUs move from the pool to a container."""
        mine = {**self.entries.get(uid, {}), container: cpus}
        return replace(self, pool=self.pool - cpus, entries={**self.entries, uid: mine})

    def with_pool(self, uid: str, cpus: frozenset[int], parts: Parts) -> CpuState:
        """The state after CPUs move from the pool to a pod, and parts of them to its containers."""
        return CpuState(
            self.policy,
            self.pool - cpus,
            {**self.entries, uid: parts},
            {**self.pools, uid: cpus},
        )

    def without_container(self, uid: str, container: str) -> CpuState:
        """The state without a container: CPUs that no other of its pod has return to the pool.

        The pool of a pod returns with its last container.
        """
        others = {k: v for k, v in self.entries.get(uid, {}).items() if k != container}
        if not others:
            return self.without_all_but({*self.entries, *self.pools} - {uid})
        before = self.pod_cpus(uid)
        after = replace(self, entries={**self.entries, uid: others})
        return replace(after, pool=self.pool | (before - after.pod_cpus(uid)))

    def without_all_but(self, uids: Collection[str]) -> CpuState:
        """The state after all other pods give back what they had; itself if they had nothing."""
        removed = {*self.entries, *self.pools} - set(uids)
        if not removed:
            return self
        after = replace(
            self,
            entries={uid: of_pod for uid, of_pod in self.entries.items() if uid not in removed},
            pools={uid: cpus for uid, cpus in self.pools.items() if uid not in removed},
        )
        return replace(after, pool=self.pool | (self.exclusive - after.exclusive))

    @property
    def exclusive(self) -> frozenset[int]:
        """All CPUs that are exclusive to a container or a pod."""
        return frozenset().union(*map(self.pod_cpus, {*self.entries, *self.pools}))


def write_cpu_state(state: CpuState) -> str:
    """The file's text."""
    entries = {
        uid: {name: format_ids(cpus) for name, cpus in of_pod.items()}
        for uid, of_pod in state.entries.items()
        if of_pod
    }
    pool = format_ids(state.pool)
    return write_state(
        {
            "policyName": state.policy,
            "defaultCpuSet": pool,
            **({"entries": entries} if entries else {}),
        },
        cpu_checksum(state.policy, pool, entries),
        {uid: {"cpuSet": format_ids(cpus)} for uid, cpus in state.pools.items()},
    )


def read_cpu_state(text: str) -> CpuState:
    """The state in a file.

    Raises:
        StateError: it can't be used; the message contains the reason.
    """
    outer = read_object(text)
    inner = outer.inner()
    found = outer if inner is None else inner
    policy, pool = found.text("policyName"), found.text("defaultCpuSet")
    entries = read_text_maps(found.values.get("entries"), "entries")
    of_pods = read_text_maps(found.values.get("podEntries"), "podEntries")
    try:
        pools = {uid: parse_ids(entry.get("cpuSet", "")) for uid, entry in of_pods.items()}
        if inner is None:
            found.verify(
                *([] if pools else [cpu_checksum(policy, pool, entries)]),
                cpu_checksum(policy, pool, entries, pools),
            )
        return CpuState(
            policy,
            parse_ids(pool),
            {
                uid: {name: parse_ids(cpus) for name, cpus in of_pod.items()}
                for uid, of_pod in entries.items()
            },
            pools,
        )
    except ValueError as error:
        raise StateError(f"a set of CPUs can't be read: {error}") from error


def cpu_checksum(
    policy: str,
    pool: str,
    entries: Mapping[str, Mapping[str, str]],
    pools: Mapping[str, frozenset[int]] | None = None,
) -> int:
    """The checksum of a file with these texts in it.

    ``pools``: set for a file of 1.36 with the gate PodLevelResourceManagers.
    """
    of_pods = {uid: _dumped_cpus(cpus) for uid, cpus in (pools or {}).items()}
    pods = () if pools is None else (("PodEntries", "state.PodCPUAssignments", text_map(of_pods)),)
    return checksum(
        CPU_TYPE,
        (
            ("PolicyName", "string", policy),
            ("DefaultCPUSet", "string", pool),
            (
                "Entries",
                "map[string]map[string]string",
                text_map({uid: text_map(of) for uid, of in entries.items()}),
            ),
            *pods,
            ("Checksum", "checksum.Checksum", 0),
        ),
    )


def _dumped_cpus(cpus: frozenset[int]) -> str:
    ids = number_map(dict.fromkeys(cpus, "{}")) if cpus else NIL
    elements = struct((("elems", "map[int]struct {}", ids),))
    return struct((("CPUSet", "cpuset.CPUSet", elements),))


# ``memory_manager_state``: which NUMA nodes containers have memory on, in the kubelet's form.
#
#  Source: docs/reference/behaviour-resources.md, rs, rx.

MEMORY_TYPE = "*state.MemoryManagerCheckpoint"
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
        uid: struct((("MemoryBlocks", "[]state.Block", _all_dumped(blocks)),))
        for uid, blocks in state.pools.items()
    }
    pods = (("PodEntries", "state.PodMemoryAssignments", text_map(of_pods)),) if with_pools else ()
    nodes = {
        node: pointer(
            struct(
                (
                    ("NumberOfAssignments", "int", of_node.assignments),
                    ("MemoryMap", "map[v1.ResourceName]*state.MemoryTable", _tables(of_node)),
                    ("Cells", "[]int", items(of_node.cells)),
                )
            )
        )
        for node, of_node in state.nodes.items()
    }
    entries = {
        uid: text_map({name: _all_dumped(blocks) for name, blocks in of_pod.items()})
        for uid, of_pod in state.entries.items()
        if of_pod
    }
    return checksum(
        MEMORY_TYPE,
        (
            ("PolicyName", "string", state.policy),
            ("MachineState", "state.NUMANodeMap", number_map(nodes)),
            ("Entries", "state.ContainerMemoryAssignments", text_map(entries)),
            *pods,
            ("Checksum", "checksum.Checksum", 0),
        ),
    )


def _tables(node: NodeMemory) -> str:
    return text_map(
        {
            kind: pointer(
                struct(
                    (name, "uint64", number)
                    for (_, name), number in zip(_TABLE, table.numbers(), strict=True)
                )
            )
            for kind, table in node.tables.items()
        }
    )


def _all_dumped(blocks: Sequence[Block]) -> str:
    return items(map(_dumped_block, blocks))


def _dumped_block(block: Block) -> str:
    return struct(
        (
            ("NUMAAffinity", "[]int", items(block.nodes)),
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
