"""Limits as properties of systemd units: the calls made, and the effect of a failed one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from dbus_fast import Variant

from kubeletpy.base.host.errors import DBusError
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.cgroups.filesystem import as_requested
from kubeletpy.resources.cgroups.tree import SliceUnits, SystemdFilesystem
from kubeletpy.resources.cgroups.values import (
    INFINITY,
    CgroupDriver,
    CgroupError,
    CgroupResources,
    PodCgroupNames,
    Properties,
    limit_properties,
    rounded_quota,
    unit_name,
)
from tests.kit.cgroups import LookAlike, container, fixed, pod, v2_machine
from tests.unit.resources.cgroups.test_pod_cgroups import Node

MI = 1 << 20
SYSTEMD = "org.freedesktop.systemd1"

PROPERTIES: list[tuple[int, CgroupResources, Properties]] = [
    (2, CgroupResources(), {}),
    (2, CgroupResources(shares=1024), {"CPUWeight": ("t", 39)}),
    (1, CgroupResources(shares=1024), {"CPUShares": ("t", 1024)}),
    (2, CgroupResources(memory=MI), {"MemoryMax": ("t", MI)}),
    (1, CgroupResources(memory=MI), {"MemoryLimit": ("t", MI)}),
    (2, CgroupResources(memory=-1), {"MemoryMax": ("t", INFINITY)}),
    (2, CgroupResources(pids=-1), {"TasksMax": ("t", INFINITY)}),
    (2, CgroupResources(pids=7), {"TasksMax": ("t", 7)}),
    (
        2,
        CgroupResources(memory_min=0, memory_low=MI),
        {"MemoryMin": ("t", 0), "MemoryLow": ("t", MI)},
    ),
    (2, CgroupResources(memory_high=MI), {"MemoryHigh": ("t", MI)}),
    (2, CgroupResources(memory_high=-1), {"MemoryHigh": ("t", INFINITY)}),
    (1, CgroupResources(memory_min=1, memory_low=1, memory_high=1), {}),
    (
        2,
        CgroupResources(quota_us=30_500, period_us=100_000),
        {"CPUQuotaPeriodUSec": ("t", 100_000), "CPUQuotaPerSecUSec": ("t", 310_000)},
    ),
    (
        2,
        CgroupResources(quota_us=-1, period_us=100_000),
        {"CPUQuotaPeriodUSec": ("t", 100_000), "CPUQuotaPerSecUSec": ("t", INFINITY)},
    ),
    (2, CgroupResources(quota_us=20_000), {"CPUQuotaPerSecUSec": ("t", 200_000)}),
    (2, CgroupResources(hugepages={"2MB": 5}), {}),
]


@pytest.mark.parametrize(("version", "resources", "properties"), PROPERTIES)
def test_limits_as_unit_properties(
    version: int, resources: CgroupResources, properties: Properties
) -> None:
    assert limit_properties(version, resources) == properties


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/kubepods.slice/kubepods-burstable.slice", "kubepods-burstable.slice"),
        ("/system.slice/kubelet.service", "kubelet.service"),
        ("/kubepods/burstable", None),
        ("/daemons", None),
    ],
)
def test_unit_of_a_cgroup(path: str, unit: str | None) -> None:
    assert unit_name(path) == unit


@pytest.mark.parametrize(
    ("quota", "period", "rounded"),
    [
        (20_000, 100_000, 20_000),
        (30_500, 100_000, 31_000),
        (1_000, 100_000, 1_000),
        (1_001, 100_000, 2_000),
        (-1, 100_000, -1),
        (2_500, 10_000, 2_500),
        (2_510, 10_000, 2_600),
    ],
)
def test_systemd_rounds_a_quota_up_to_a_percentage(quota: int, period: int, rounded: int) -> None:
    assert rounded_quota(quota, period) == rounded
    desired = CgroupResources(quota_us=quota, period_us=period)
    assert as_requested(2, CgroupResources(quota_us=rounded, period_us=period), desired) == desired


class FakeBus:
    """Records calls to systemd; raises the error that is set for a call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.errors: dict[str, Exception] = {}
        self.over = False
        self.connected = 0

    async def connect(self) -> Any:
        self.connected += 1
        self.over = False
        return self

    async def call(
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str,
        *supplied: Any,
    ) -> None:
        assert (destination, interface) == (SYSTEMD, f"{SYSTEMD}.Manager")
        if member in self.errors:
            raise self.errors[member]
        self.calls.append((member, *(_plain(each) for each in supplied)))

    async def close(self) -> None:
        self.over = True


def _plain(supplied: Any) -> Any:
    if isinstance(supplied, list) and supplied and isinstance(supplied[0], list):
        return {name: cast("Variant", held).value for name, held in supplied}
    return supplied


class LookAlikeOnSystemd(SystemdFilesystem, LookAlike):
    """Cgroup files whose limits are also set as systemd properties."""

    def __init__(self, files: LookAlike, slices: SliceUnits) -> None:
        super().__init__(files, slices)
        self.root = files.root


class Machine:
    """A cgroup v2 node whose slices belong to systemd."""

    def __init__(self, root: Path) -> None:
        self.bus = FakeBus()
        self.node = Node(v2_machine(root))
        self.files = LookAlikeOnSystemd(self.node.files, SliceUnits(2, self.bus.connect))
        self.node.tree.files = self.files
        self.node.tree.names = PodCgroupNames(CgroupDriver.SYSTEMD)
        self.node.tree.prepare()

    def calls(self) -> list[tuple[Any, ...]]:
        made, self.bus.calls = self.bus.calls, []
        return made

    def memory(self, of: Pod) -> str:
        return self.node.file("memory", self.node.tree.pod_path(of), "memory.max")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "fs")


POD_SLICE = "kubepods-burstable-poda.slice"


async def test_a_pod_has_a_slice_with_its_limits_for_its_life(machine: Machine) -> None:
    await machine.files.settle()
    assert [call[:3] for call in machine.calls()] == [
        ("StartTransientUnit", "kubepods.slice", "replace"),
        ("StartTransientUnit", "kubepods-besteffort.slice", "replace"),
        ("StartTransientUnit", "kubepods-burstable.slice", "replace"),
    ]
    made = await machine.node.add(pod(container("500m", "64Mi"), uid="a"))
    start = machine.calls()
    assert [call[:2] for call in start] == [("StartTransientUnit", POD_SLICE)]
    assert start[0][3] | {"MemoryAccounting": True, "CPUWeight": 20, "TasksMax": 50} == start[0][3]
    await machine.node.cgroups.ensure(made)
    await machine.files.settle()
    assert machine.calls() == [
        ("SetUnitProperties", "kubepods-burstable.slice", True, {"CPUWeight": 20})
    ]
    machine.node.pods.clear()
    await machine.node.cgroups.destroy(made)
    assert machine.calls() == [("StopUnit", POD_SLICE, "replace")]
    assert not machine.node.cgroups.exists(made)


async def test_limits_of_another_unit_are_set_but_it_is_not_created(machine: Machine) -> None:
    await machine.files.settle()
    machine.calls()
    (machine.node.files.root / "system.slice").mkdir()
    (machine.node.files.root / "system.slice" / "memory.max").write_text("max")
    machine.files.write("/system.slice", CgroupResources(memory=MI))
    await machine.files.settle()
    assert machine.calls() == [("SetUnitProperties", "system.slice", True, {"MemoryMax": MI})]


async def test_a_running_pod_keeps_its_limits_when_adopted(machine: Machine) -> None:
    lost = await machine.node.add(pod(fixed("250m", "64Mi"), uid="a"))
    resizing = await machine.node.add(pod(fixed("250m", "64Mi"), uid="b"))
    for each, held in ((lost, "max"), (resizing, str(32 * MI))):
        machine.node.tree.files.write(
            machine.node.tree.pod_path(each),
            CgroupResources(memory=-1 if held == "max" else int(held)),
        )
    again = Machine.__new__(Machine)
    again.bus, again.node = FakeBus(), machine.node
    again.files = LookAlikeOnSystemd(machine.node.files, SliceUnits(2, again.bus.connect))
    again.node.tree.files = again.files
    again.node.cgroups._limited.clear()
    again.bus.errors["StartTransientUnit"] = DBusError("there", f"{SYSTEMD}.UnitExists")
    for each, memory in ((lost, 64 * MI), (resizing, 32 * MI)):
        await again.node.cgroups.ensure(each)
        name = again.node.tree.pod_path(each).rpartition("/")[2]
        called = [call for call in again.calls() if call[1] == name]
        assert [(call[0], call[3]["MemoryMax"]) for call in called] == [
            ("SetUnitProperties", memory)
        ]
        assert again.memory(each) == str(memory)
    again.node.pods.clear()
    await again.node.cgroups.destroy(lost)
    assert again.calls()[:2] == [
        ("StopUnit", "kubepods-poda.slice", "replace"),
        ("RevertUnitFiles", ["kubepods-poda.slice"]),
    ]


async def test_a_lost_bus_is_reported_and_reconnected(machine: Machine) -> None:
    machine.bus.errors["StartTransientUnit"] = OSError("Connection refused")
    with pytest.raises(CgroupError, match=r"systemd did not take the limits of kubepods\.slice"):
        await machine.files.settle()
    desired = pod(fixed("500m", "64Mi"), uid="a")
    with pytest.raises(CgroupError, match=r"which therefore do not last: Connection refused"):
        await machine.node.add(desired)
    machine.bus.errors.clear()
    machine.bus.over = True
    connected = machine.bus.connected
    await machine.node.cgroups.ensure(desired)
    await machine.files.settle()
    assert {call[1] for call in machine.calls()} >= {"kubepods-poda.slice", "kubepods.slice"}
    assert machine.bus.connected == connected + 1


async def test_an_absent_slice_counts_as_stopped(machine: Machine) -> None:
    made = await machine.node.add(pod(container("500m"), uid="a"))
    machine.bus.errors["StopUnit"] = DBusError("none", f"{SYSTEMD}.NoSuchUnit")
    await machine.node.cgroups.destroy(made)
    machine.bus.errors["StopUnit"] = TimeoutError()
    with pytest.raises(CgroupError, match="no answer in time"):
        await machine.node.cgroups.destroy(pod(fixed("1", "1Mi"), uid="b"))
