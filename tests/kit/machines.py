"""Simulated machines: CPU topologies, copies of their sysfs trees, and pods for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeletpy.node.facts import MachineFacts
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.placement.model import Cpu, CpuTopology, format_ids

FACTS = MachineFacts(
    hostname="host-1",
    architecture="amd64",
    kernel_version="6.1.0",
    os_image="Debian",
    machine_id="id",
    system_uuid="uuid",
    boot_id="boot",
    cpu_count=4,
    memory_bytes=8 << 30,
    swap_bytes=0,
    root_storage_bytes=100 * 2**30,
)


def machine(
    sockets: int = 1, nodes: int = 1, cores: int = 4, threads: int = 1, caches: int = 0
) -> CpuTopology:
    """CPUs numbered as Linux does on x86: first one thread of each core, then the second ones.

    Args:
        nodes: NUMA nodes of each socket.
        cores: of each NUMA node.
        caches: L3 caches of each NUMA node; 0: not known.
    """
    every = sockets * nodes * cores
    found = {}
    for number in range(every * threads):
        core = number % every
        node = core // cores
        socket = node // nodes
        cache = node * caches + core % cores * caches // cores if caches else socket
        found[number] = Cpu(number, core, socket, node, cache)
    return CpuTopology(found)


def one_node_of_two_sockets() -> CpuTopology:
    """More sockets than NUMA nodes, as virtual machines have it."""
    return CpuTopology({i: Cpu(i, i, i // 2, 0, i // 2) for i in range(4)})


def write_sysfs(root: Path, topology: CpuTopology, memory: int = 1 << 30) -> None:
    """The files of sysfs in which a machine shows this."""
    system = root / "devices/system"

    def put(path: str, text: object) -> None:
        file = system / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    put("cpu/online", format_ids(topology.ids))
    for each in topology.cpus.values():
        of_cpu = f"cpu/cpu{each.id}"
        put(f"{of_cpu}/topology/physical_package_id", each.socket)
        put(f"{of_cpu}/topology/thread_siblings_list", format_ids(topology.cores[each.core]))
        for index, level in enumerate((1, 1, 2, 3)):
            put(f"{of_cpu}/cache/index{index}/level", level)
            put(f"{of_cpu}/cache/index{index}/id", each.uncore if level == 3 else each.core)
    put("node/online", format_ids(topology.nodes))
    for node, members in topology.nodes.items():
        put(f"node/node{node}/cpulist", format_ids(members))
        put(f"node/node{node}/meminfo", f"Node {node} MemTotal:  {memory >> 10} kB\nNode 0 X: 1 kB")
        distances = (10 if other == node else 20 for other in topology.nodes)
        put(f"node/node{node}/distance", " ".join(map(str, distances)))
        put(f"node/node{node}/hugepages/hugepages-2048kB/nr_hugepages", 3)


def sized(name: str, cpu: str | None = "1", memory: str | None = "1Mi", **more: Any) -> Any:
    """A container whose limits are its requests."""
    amounts = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v is not None}
    return {
        "name": name,
        "image": "i",
        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
        **more,
    }


def pod_of(*containers: Any, uid: str = "uid-1", **spec: Any) -> Pod:
    """A pod of the API."""
    found: Any = {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"containers": list(containers), **spec},
    }
    return Pod(found)
