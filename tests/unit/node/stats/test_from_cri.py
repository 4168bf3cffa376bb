"""Usage from CRI stats: a value that the runtime leaves out stays unknown."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.node.stats.usage import (
    GroupStats,
    Interface,
    Layer,
    Psi,
    PsiLine,
    from_containers,
    from_sandboxes,
)
from kubeletpy.remote.generated import api_pb2 as cri


def amount(value: int) -> cri.UInt64Value:
    return cri.UInt64Value(value=value)


def container(**fields: Any) -> Any:
    attributes = cri.ContainerAttributes(id="c")
    supplied = from_containers([cri.ContainerStats(attributes=attributes, **fields)])
    return supplied.containers["c"]


def sandbox(**fields: Any) -> Any:
    linux = cri.LinuxPodSandboxStats(**fields)
    attributes = cri.PodSandboxAttributes(id="s")
    each = cri.PodSandboxStats(attributes=attributes, linux=linux)
    return from_sandboxes([each]).sandboxes["s"]


def test_empty_stats_leave_everything_unknown() -> None:
    assert (container().stats, container().layer) == (GroupStats(at=0), None)
    assert (sandbox().network, sandbox().processes) == (None, None)


def test_no_processes_are_none_and_no_number_is_unknown() -> None:
    assert sandbox(process=cri.ProcessUsage(process_count=amount(0))).processes == 0
    assert sandbox(process=cri.ProcessUsage()).processes is None


@pytest.mark.parametrize(
    ("available", "reported"),
    [(0, None), (1, 1), ((1 << 60) - 1, (1 << 60) - 1), (1 << 60, None), (1 << 63, None)],
)
def test_an_absurd_limit_is_none(available: int, reported: int | None) -> None:
    memory = cri.MemoryUsage(available_bytes=amount(available))
    assert container(memory=memory).stats.available == reported


@pytest.mark.parametrize(
    ("used", "left", "limit"), [(1, 2, 3), (0, 0, 0), (1, None, None), (None, 2, None)]
)
def test_the_limit_of_swap(used: int | None, left: int | None, limit: int | None) -> None:
    swap = cri.SwapUsage()
    if used is not None:
        swap.swap_usage_bytes.value = used
    if left is not None:
        swap.swap_available_bytes.value = left
    stats = container(swap=swap).stats
    assert (stats.swap, stats.swap_limit) == (used, limit)


def test_pressure() -> None:
    psi = cri.PsiStats(
        Full=cri.PsiData(Total=1, Avg10=1.5, Avg60=2.5, Avg300=3.5), Some=cri.PsiData(Total=2)
    )
    stats = container(cpu=cri.CpuUsage(psi=psi)).stats
    assert stats.cpu_psi == Psi(PsiLine(2, 0.0, 0.0, 0.0), PsiLine(1, 1.5, 2.5, 3.5))
    assert (stats.memory_psi, stats.io_psi) == (None, None)


@pytest.mark.parametrize(("own", "of_cpu", "at"), [(5, 7, 5), (0, 7, 7), (5, 0, 5)])
def test_a_layer_has_the_time_of_its_container_at_least(own: int, of_cpu: int, at: int) -> None:
    usage = cri.FilesystemUsage(
        timestamp=own,
        used_bytes=amount(3),
        fs_id=cri.FilesystemIdentifier(mountpoint="/m"),
    )
    of = container(writable_layer=usage, cpu=cri.CpuUsage(timestamp=of_cpu))
    assert of.layer == Layer(at, 3, None, "/m", uncounted=not own)


@pytest.mark.parametrize(("of_cpu", "of_memory", "at"), [(1, 2, 1), (0, 2, 2)])
def test_when_it_was_read(of_cpu: int, of_memory: int, at: int) -> None:
    of = container(cpu=cri.CpuUsage(timestamp=of_cpu), memory=cri.MemoryUsage(timestamp=of_memory))
    assert of.stats.at == at


def interface(name: str, count: int = 0) -> Any:
    return cri.NetworkInterfaceUsage(name=name, rx_bytes=amount(count))


@pytest.mark.parametrize(
    ("default", "others", "names"),
    [
        ("eth0", [], ["eth0"]),
        ("eth0", ["eth0", "eth1"], ["eth0", "eth1"]),
        ("eth0", ["eth1", "eth0"], ["eth1", "eth0"]),
        ("eth0", ["eth1"], ["eth0", "eth1"]),
        ("", ["eth1"], ["eth1"]),
        ("", [], []),
    ],
)
def test_the_default_interface_is_one_of_them(
    default: str, others: list[str], names: list[str]
) -> None:
    usage = cri.NetworkUsage(
        default_interface=interface(default, 5), interfaces=[interface(n) for n in others]
    )
    network = sandbox(network=usage).network
    assert [each.name for each in network.interfaces] == names
    assert network.default == default
    if default and default not in others:
        assert network.interfaces[0] == Interface("eth0", rx_bytes=5)
