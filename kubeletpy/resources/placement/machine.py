"""Reads the machine's CPUs, NUMA nodes and their memory from sysfs.

The root is an argument, so that a tree of files can stand in for another machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kubeletpy.base.host.machine import huge_pages
from kubeletpy.base.structs import Struct
from kubeletpy.resources.placement.model import Cpu, CpuTopology, Distances, NumaNode, parse_ids

SYS = Path("/sys")
L3 = "3"


class TopologyUnknown(Exception):
    """The kernel does not describe the machine's topology; the message states what is missing."""


class MachineTopology(Struct, frozen=True):
    """The CPUs, NUMA nodes and distances of a machine."""

    cpus: CpuTopology
    nodes: Mapping[int, NumaNode]
    distances: Distances


def read_machine(sys: Path = SYS) -> MachineTopology:
    """Return the topology of the machine whose sysfs this is.

    Raises:
        TopologyUnknown: a file is missing or malformed.
    """
    try:
        return _read(sys / "devices/system")
    except (OSError, ValueError) as error:
        raise TopologyUnknown(f"the machine can't be known from {sys}: {error}") from error


def _read(system: Path) -> MachineTopology:
    online = parse_ids(_text(system / "cpu/online"))
    node_list = system / "node/online"
    node_ids = sorted(parse_ids(_text(node_list))) if node_list.exists() else []
    node_of: dict[int, int] = {}
    nodes: dict[int, NumaNode] = {}
    distances: dict[int, tuple[int, ...]] = {}
    for node in node_ids:
        directory = system / f"node/node{node}"
        for cpu in parse_ids(_text(directory / "cpulist")):
            node_of[cpu] = node
        nodes[node] = NumaNode(_memory(directory), huge_pages(directory / "hugepages"))
        distances[node] = tuple(map(int, _text(directory / "distance").split()))
    cpus = {each: _cpu(system / f"cpu/cpu{each}", each, node_of.get(each, 0)) for each in online}
    return MachineTopology(CpuTopology(dict(sorted(cpus.items()))), nodes, distances)


def _cpu(directory: Path, each: int, node: int) -> Cpu:
    # some machines (ARM, virtual ones) report no sockets: -1
    socket = max(int(_text(directory / "topology/physical_package_id")), 0)
    siblings = parse_ids(_text(directory / "topology/thread_siblings_list"))
    return Cpu(each, min(siblings | {each}), socket, node, _cache(directory, socket))


def _cache(directory: Path, socket: int) -> int:
    for index in sorted((directory / "cache").glob("index*")):
        try:
            if _text(index / "level") == L3:
                return int(_text(index / "id"))
        except OSError:
            continue
    return socket


def _memory(directory: Path) -> int:
    for line in (directory / "meminfo").read_text().splitlines():
        parts = line.split()
        if "MemTotal:" in parts:
            return int(parts[parts.index("MemTotal:") + 1]) * 1024
    raise ValueError(f"{directory}/meminfo has no MemTotal")


def _text(path: Path) -> str:
    return path.read_text().strip()
