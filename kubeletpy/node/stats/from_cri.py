"""Converts the runtime's stats of containers and sandboxes to this package's types. Pure.

For containers whose cgroups are not on this machine (sandboxes that are virtual machines), for
writable layers, which only the runtime has, and for everything when configured so.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.structs import Struct
from kubeletpy.node.stats.usage import GroupStats, Interface, Network, Psi, PsiLine
from kubeletpy.remote.generated import api_pb2 as cri


class Layer(Struct, frozen=True):
    """A writable layer; ``mountpoint``: of its file system.

    ``uncounted``: the runtime has not measured it yet.
    """

    at: int
    used: int | None
    inodes: int | None
    mountpoint: str
    uncounted: bool = False


class CriContainer(Struct, frozen=True):
    """One container."""

    stats: GroupStats
    layer: Layer | None


class CriSandbox(Struct, frozen=True):
    """One sandbox."""

    stats: GroupStats
    network: Network | None
    processes: int | None


class CriStats(Struct, frozen=True):
    """Everything that the runtime reported, by id."""

    containers: dict[str, CriContainer]
    sandboxes: dict[str, CriSandbox]


def from_containers(stats: Iterable[cri.ContainerStats]) -> CriStats:
    """The answer of ListContainerStats."""
    return CriStats({each.attributes.id: _container(each) for each in stats}, {})


def from_sandboxes(stats: Iterable[cri.PodSandboxStats]) -> CriStats:
    """The answer of ListPodSandboxStats."""
    found = CriStats({}, {})
    for each in stats:
        linux = each.linux
        found.sandboxes[each.attributes.id] = CriSandbox(
            _stats(linux),
            _network(linux.network) if linux.HasField("network") else None,
            _value(linux.process, "process_count") if linux.HasField("process") else None,
        )
        for container in linux.containers:
            found.containers[container.attributes.id] = _container(container)
    return found


def _container(stats: cri.ContainerStats) -> CriContainer:
    layer = None
    if stats.HasField("writable_layer"):
        given = stats.writable_layer
        used, inodes = _value(given, "used_bytes"), _value(given, "inodes_used")
        # a layer that was not measured yet has no timestamp
        at = given.timestamp or stats.cpu.timestamp
        layer = Layer(at, used, inodes, given.fs_id.mountpoint, uncounted=not given.timestamp)
    return CriContainer(_stats(stats), layer)


def _stats(usage: cri.ContainerStats | cri.LinuxPodSandboxStats) -> GroupStats:
    cpu, memory = usage.cpu, usage.memory
    swap = usage.swap if isinstance(usage, cri.ContainerStats) else None
    used = _value(swap, "swap_usage_bytes") if swap is not None else None
    swap_left = _value(swap, "swap_available_bytes") if swap is not None else None
    return GroupStats(
        at=cpu.timestamp or memory.timestamp,
        cpu_ns=_value(cpu, "usage_core_nano_seconds"),
        memory=_value(memory, "usage_bytes"),
        working_set=_value(memory, "working_set_bytes"),
        rss=_value(memory, "rss_bytes"),
        # a runtime without a limit reports 0 or the remainder of an absurdly large one
        available=_plausible(_value(memory, "available_bytes")),
        faults=_value(memory, "page_faults"),
        major_faults=_value(memory, "major_page_faults"),
        swap=used,
        swap_limit=None if swap_left is None or used is None else swap_left + used,
        cpu_psi=_psi(cpu),
        memory_psi=_psi(memory),
        io_psi=_psi(usage.io),
    )


def _plausible(value: int | None) -> int | None:
    return value if value and value < 1 << 60 else None


def _value(message: object, field: str) -> int | None:
    has = message.HasField(field)  # type: ignore[attr-defined]
    return int(getattr(message, field).value) if has else None


def _psi(usage: cri.CpuUsage | cri.MemoryUsage | cri.IoUsage) -> Psi | None:
    if not usage.HasField("psi"):
        return None
    return Psi(_line(usage.psi.Some), _line(usage.psi.Full))


def _line(data: cri.PsiData) -> PsiLine:
    return PsiLine(data.Total, data.Avg10, data.Avg60, data.Avg300)


def _network(usage: cri.NetworkUsage) -> Network:
    found = [_interface(each) for each in usage.interfaces]
    default = usage.default_interface.name
    if default and all(each.name != default for each in found):
        found.insert(0, _interface(usage.default_interface))
    return Network(usage.timestamp, tuple(found), default)


def _interface(usage: cri.NetworkInterfaceUsage) -> Interface:
    return Interface(
        usage.name,
        rx_bytes=usage.rx_bytes.value,
        rx_errors=usage.rx_errors.value,
        tx_bytes=usage.tx_bytes.value,
        tx_errors=usage.tx_errors.value,
    )
