"""The cgroup tree that follows from the configuration and the machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.config import load_document, parse_flags
from kubeletpy.pods.resources import MemoryQoS
from kubeletpy.remote.errors import Unimplemented
from kubeletpy.resources.cgroups import setup
from kubeletpy.resources.cgroups.setup import KernelFacts, read_kernel_facts
from kubeletpy.resources.cgroups.tree import CgroupTree
from kubeletpy.resources.cgroups.values import (
    CgroupDriver,
    CgroupError,
    CgroupResources,
    ReservedMemory,
)
from tests.kit.cgroups import LookAlike, v1_machine, v2_machine

KERNEL = KernelFacts(hugepage_sizes=("2MB",), max_pids=1000)
CAPACITY = {"cpu": "2", "memory": "1Gi", "pods": "110"}


def settings(**document: Any) -> Any:
    base = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    return load_document({**base, **document}, parse_flags([])).settings


@pytest.fixture
def look_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    root = v1_machine(tmp_path / "fs")
    monkeypatch.setattr(setup, "detect", LookAlike.at)
    return root


def make(root: Path, driver: str = "cgroupfs", **document: Any) -> CgroupTree | None:
    return setup.make_tree(
        settings(**document),
        KERNEL,
        driver,
        capacity=CAPACITY,
        mount_point=root,
        systemd_runs=root / "systemd-runs",
    )


def test_the_tree_of_a_configuration(look_alike: Path) -> None:
    tree = make(
        look_alike,
        cgroupRoot="/a",
        podPidsLimit=9,
        cpuCFSQuota=False,
        enforceNodeAllocatable=["pods", "kube-reserved"],
        kubeReserved={"cpu": "500m", "pid": "100"},
        kubeReservedCgroup="/kube.slice",
    )
    assert tree is not None
    assert tree.names.kubepods == "/a/kubepods"
    for group in ("", "/burstable", "/besteffort"):
        assert tree.files.exists(f"/a/kubepods{group}")
    options = tree.options
    assert (options.pods.pids_limit, options.pods.cpu_cfs_quota) == (9, False)
    assert options.kubepods == CgroupResources(
        shares=1536, memory=1 << 30, pids=900, hugepages={"2MB": 0}
    )
    (reserved,) = options.reserved
    assert (reserved.what, reserved.path) == ("Kube Reserved", "/kube.slice")
    assert reserved.resources == CgroupResources(shares=512, pids=100, hugepages={"2MB": 0})


def test_memory_of_better_pods(look_alike: Path) -> None:
    gates = {"QOSReserved": True, "MemoryQoS": True}
    tree = make(
        look_alike,
        featureGates=gates,
        qosReserved={"memory": "50%"},
        systemReserved={"memory": "256Mi"},
    )
    assert tree is not None
    assert tree.options.memory == ReservedMemory(50, 768 << 20)
    assert tree.options.pods.memory_qos is None  # this is cgroup v1
    for without in (make(look_alike), make(look_alike, featureGates=gates)):
        assert without is not None
        assert without.options.memory is None


@pytest.mark.parametrize(
    ("gate", "v2", "policy", "desired"),
    [
        (True, True, "TieredReservation", MemoryQoS(True, 0.8, 7)),
        (True, True, "None", MemoryQoS(False, 0.8, 7)),
        (True, False, "None", None),
        (False, True, "None", None),
    ],
)
def test_memory_qos(gate: bool, v2: bool, policy: str, desired: MemoryQoS | None) -> None:
    supplied = settings(
        featureGates={"MemoryQoS": gate},
        memoryReservationPolicy=policy,
        memoryThrottlingFactor=0.8 if gate else None,
    )
    assert setup.memory_qos(supplied, cgroup_v2=v2, allocatable=7) == desired


def test_no_tree_without_cgroups_per_qos(look_alike: Path) -> None:
    assert make(look_alike, cgroupsPerQOS=False, enforceNodeAllocatable=["none"]) is None


def test_the_systemd_driver_needs_a_running_systemd(look_alike: Path) -> None:
    with pytest.raises(CgroupError, match="systemd does not run here"):
        make(look_alike, "systemd")
    (look_alike / "systemd-runs").mkdir()
    tree = make(look_alike, "systemd")
    assert tree is not None
    assert tree.names.driver is CgroupDriver.SYSTEMD
    assert tree.files.exists("/kubepods.slice/kubepods-burstable.slice")


def test_invalid_roots(look_alike: Path) -> None:
    with pytest.raises(CgroupError, match="cgroupRoot"):
        make(look_alike, cgroupRoot="/../x")


def test_the_driver_comes_from_the_runtime(
    look_alike: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[str] = []
    monkeypatch.setattr(setup, "make_tree", lambda s, k, driver, **more: requested.append(driver))

    async def reported_driver(runtime: Any, losing_support: Any) -> str | None:
        return str(runtime) if runtime else None

    monkeypatch.setattr(setup, "cgroup_driver", reported_driver)
    for runtime in ("systemd", ""):
        asyncio.run(setup.set_up(settings(), KERNEL, runtime, capacity=CAPACITY))  # type: ignore[arg-type]
    assert requested == ["systemd", "cgroupfs"]

    async def fails(runtime: Any, losing_support: Any) -> str | None:
        raise Unimplemented("RuntimeConfig", "broken")

    monkeypatch.setattr(setup, "cgroup_driver", fails)
    with pytest.raises(CgroupError, match="does not report"):
        asyncio.run(setup.set_up(settings(), KERNEL, None, capacity=CAPACITY))  # type: ignore[arg-type]


def files(root: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = root / name.replace("__", "/").replace("DASH", "-").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_kernels_facts(tmp_path: Path) -> None:
    assert read_kernel_facts(tmp_path) == KernelFacts()
    first = tmp_path / "1"
    v1_machine(first / "sys/fs/cgroup")
    files(
        first,
        sys__fs__cgroup__memory__memoryDOTmemswDOTlimit_in_bytes="1",
        sys__kernel__mm__hugepages__hugepagesDASH2048kB__nr_hugepages="0",
        sys__kernel__mm__hugepages__hugepagesDASH1048576kB__nr_hugepages="0",
        sys__devices__system__cpu__cpu0__thermal_throttle__x="",
        sys__module__apparmor__parameters__enabled="Y\n",
        proc__sys__kernel__pid_max="100\n",
    )
    files(first, **{"proc/sys/kernel/threads-max": "90\n"})
    assert read_kernel_facts(first) == KernelFacts(
        cgroup_v2=False,
        swap_controller=True,
        hugepage_sizes=("2MB", "1GB"),
        thermal_throttle_paths=("/sys/devices/system/cpu/cpu0/thermal_throttle",),
        max_pids=90,
        apparmor=True,
    )
    second = tmp_path / "2"
    v2_machine(second / "sys/fs/cgroup", "cpu memory")
    files(
        second,
        sys__fs__cgroup__initDOTscope__memoryDOTswapDOTmax="max",
        sys__kernel__mm__hugepages__hugepagesDASH2048kB__nr_hugepages="0",
    )
    assert read_kernel_facts(second) == KernelFacts(cgroup_v2=True, swap_controller=True)
