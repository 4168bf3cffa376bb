"""The state files of the CPU and memory managers, in the kubelet's form. Pure.

Their JSON is read defensively and written without spaces. A checksum is FNV-1a of a dump of the Go
value, so a reader or writer has to reproduce the dump to the letter. The device manager's file has
such a checksum, too. Source: docs/reference/behaviour-resources.md, rs, rx.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.pods.pod import fnv1a_32
from kubeletpy.resources.placement.model import format_ids, parse_ids

# Dumps of Go values. Types are written as the file's owner names them.

NIL = "<nil>"
Field = tuple[str, str, object]
"""Name, Go type and value; a value is a number or a dump."""


def checksum(type_name: str, fields: Iterable[Field]) -> int:
    """Return the checksum of a complete file, with the checksum field set to 0."""
    return fnv1a_32(f"({type_name}){dump_struct(fields)}".encode("utf-8", "surrogateescape"))


def checksum_of_text(text: str) -> int:
    """Return the checksum of a string, such as the ``data`` of a file."""
    return fnv1a_32(b"(string)" + text.encode("utf-8", "surrogateescape"))


def dump_struct(fields: Iterable[Field]) -> str:
    """Dump a struct inside a map or a list, or after the name of its type."""
    return "{" + " ".join(f"{name}:({type_}){value}" for name, type_, value in fields) + "}"


def dump_pointer(value: str) -> str:
    """Dump a pointer inside a map: its target, marked."""
    return f"<*>{value}"


def dump_text_map(values: Mapping[str, object]) -> str:
    """Dump a map with text keys."""
    return _map((key, values[key]) for key in sorted(values, key=_bytes))


def dump_number_map(values: Mapping[int, object]) -> str:
    """Dump a map with numeric keys."""
    return _map((key, values[key]) for key in sorted(values))


def dump_list(values: Iterable[object] | None) -> str:
    """Dump a list; None is the nil list, which differs from the empty one."""
    return NIL if values is None else "[" + " ".join(str(value) for value in values) + "]"


def _map(pairs: Iterable[tuple[object, object]]) -> str:
    return "map[" + " ".join(f"{key}:{value}" for key, value in pairs) + "]"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# The JSON of the files.


class StateError(ValueError):
    """A state file can't be used; the message states what is wrong with it."""


@contextmanager
def reading(problem: str = "it is not a state file") -> Iterator[None]:
    """Raise StateError for whatever a malformed file makes its reader raise."""
    try:
        yield
    except StateError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StateError(f"{problem}: {type(error).__name__}: {error}") from error


def unseal(text: str | bytes, checksum: Callable[[Any], int], data: str, total: str) -> Any:
    """Return the contents of a file that has its checksum beside them. Use it in ``reading``.

    Args:
        checksum: computes that of the contents.
        data: the key of the contents, ``total`` that of their checksum.
    """
    document = json.loads(text)
    if document[total] != checksum(document[data]):
        raise StateError("its checksum is not that of its data")
    return document[data]


class StateObject(Struct, frozen=True):
    """The object in a state file."""

    values: Mapping[str, Any]

    def text(self, key: str) -> str:
        """Return a text, or an empty one if it is missing. Raises StateError."""
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
        """Return the object in ``data``, which kubelets write from 1.37 on, or None.

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
    """Return the object in a file, keys in any order. Raises StateError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"it is not JSON: {str(error)[:200]}") from error
    if not isinstance(found, dict):
        raise StateError("it is not a JSON object")
    return StateObject(found)


def write_object(values: Mapping[str, Any]) -> str:
    """Return an object as text, its keys in their order."""
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def write_state(
    values: Mapping[str, Any], checksum: int, of_pods: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return the text of a state file.

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
    """Return a map of maps of texts; None is the empty one. Raises StateError."""
    maps = read_maps(found, what)
    for of_pod in maps.values():
        if not all(isinstance(text, str) for text in of_pod.values()):
            raise StateError(f"{what} holds what is not a string")
    return maps


def read_maps(found: Any, what: str) -> dict[str, dict[str, Any]]:
    """Return a map of maps; None is the empty one. Raises StateError."""
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(of, dict) for of in found.values()):
        raise StateError(f"{what} has a form that this version does not support")
    return found


# ``cpu_manager_state``: the CPUs of containers.

CPU_TYPE = "*state.CPUManagerCheckpoint"
Parts = Mapping[str, frozenset[int]]
"""CPUs by name of the container."""
Entries = Mapping[str, Parts]
"""CPUs by uid of the pod and name of the container."""


class CpuState(Struct, frozen=True):
    """The CPUs of containers and pods.

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
            self.policy, self.pool - cpus, {**self.entries, uid: parts}, {**self.pools, uid: cpus}
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
    """Return the text of ``cpu_manager_state``."""
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
    """Return the state in a file.

    Raises:
        StateError: it can't be used; the message contains the reason.
    """
    outer = read_object(text)
    inner = outer.inner()
    found = outer if inner is None else inner
    policy, pool = found.text("policyName"), found.text("defaultCpuSet")
    entries = read_text_maps(found.values.get("entries"), "entries")
    of_pods = read_text_maps(found.values.get("podEntries"), "podEntries")
    with reading("a set of CPUs can't be read"):
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


def cpu_checksum(
    policy: str,
    pool: str,
    entries: Mapping[str, Mapping[str, str]],
    pools: Mapping[str, frozenset[int]] | None = None,
) -> int:
    """Return the checksum of a file with these texts in it.

    ``pools``: set for a file of 1.36 with the gate PodLevelResourceManagers.
    """
    of_pods = {uid: _dump_cpus(cpus) for uid, cpus in (pools or {}).items()}
    pods = (
        ()
        if pools is None
        else (("PodEntries", "state.PodCPUAssignments", dump_text_map(of_pods)),)
    )
    return checksum(
        CPU_TYPE,
        (
            ("PolicyName", "string", policy),
            ("DefaultCPUSet", "string", pool),
            (
                "Entries",
                "map[string]map[string]string",
                dump_text_map({uid: dump_text_map(of) for uid, of in entries.items()}),
            ),
            *pods,
            ("Checksum", "checksum.Checksum", 0),
        ),
    )


def _dump_cpus(cpus: frozenset[int]) -> str:
    ids = dump_number_map(dict.fromkeys(cpus, "{}")) if cpus else NIL
    elements = dump_struct((("elems", "map[int]struct {}", ids),))
    return dump_struct((("CPUSet", "cpuset.CPUSet", elements),))


# ``memory_manager_state``: the NUMA nodes that containers have memory on.

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
        """Return all numbers, in the order of the file."""
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
    """The memory of containers and pods, and of each NUMA node.

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
    """Return the text of ``memory_manager_state``."""
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
    """Return the state in a file.

    Raises:
        StateError: it can't be used; the message contains the reason.
    """
    outer = read_object(text)
    inner = outer.inner()
    found = outer if inner is None else inner
    nodes = read_maps(found.values.get("machineState"), "machineState")
    entries = read_maps(found.values.get("entries"), "entries")
    of_pods = read_maps(found.values.get("podEntries"), "podEntries")
    with reading("it has a form that this version does not support"):
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
    if inner is None:
        found.verify(
            *([] if state.pools else [memory_checksum(state)]),
            memory_checksum(state, with_pools=True),
        )
    return state


def memory_checksum(state: MemoryState, *, with_pools: bool = False) -> int:
    """Return the checksum of a file with this state.

    ``with_pools``: of a file of 1.36 with the gate PodLevelResourceManagers.
    """
    of_pods = {
        uid: dump_struct((("MemoryBlocks", "[]state.Block", _dump_blocks(blocks)),))
        for uid, blocks in state.pools.items()
    }
    pods = (
        (("PodEntries", "state.PodMemoryAssignments", dump_text_map(of_pods)),)
        if with_pools
        else ()
    )
    nodes = {
        node: dump_pointer(
            dump_struct(
                (
                    ("NumberOfAssignments", "int", of_node.assignments),
                    ("MemoryMap", "map[v1.ResourceName]*state.MemoryTable", _dump_tables(of_node)),
                    ("Cells", "[]int", dump_list(of_node.cells)),
                )
            )
        )
        for node, of_node in state.nodes.items()
    }
    entries = {
        uid: dump_text_map({name: _dump_blocks(blocks) for name, blocks in of_pod.items()})
        for uid, of_pod in state.entries.items()
        if of_pod
    }
    return checksum(
        MEMORY_TYPE,
        (
            ("PolicyName", "string", state.policy),
            ("MachineState", "state.NUMANodeMap", dump_number_map(nodes)),
            ("Entries", "state.ContainerMemoryAssignments", dump_text_map(entries)),
            *pods,
            ("Checksum", "checksum.Checksum", 0),
        ),
    )


def _dump_tables(node: NodeMemory) -> str:
    return dump_text_map(
        {
            kind: dump_pointer(
                dump_struct(
                    (name, "uint64", number)
                    for (_, name), number in zip(_TABLE, table.numbers(), strict=True)
                )
            )
            for kind, table in node.tables.items()
        }
    )


def _dump_blocks(blocks: Sequence[Block]) -> str:
    return dump_list(map(_dump_block, blocks))


def _dump_block(block: Block) -> str:
    return dump_struct(
        (
            ("NUMAAffinity", "[]int", dump_list(block.nodes)),
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
