"""Values written into cgroups: conversions, pods, groups, the node."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.resources import shares_to_weight, weight_to_shares
from kubeletpy.resources.cgroups.values import (
    HUGEPAGES_UNBOUNDED,
    CgroupResources,
    PodCgroupSettings,
    burstable_cpu,
    kubepods_group,
    memory_kept,
    pod_resources,
    qos_group,
    reserved_group,
    v1_files,
    v2_files,
)
from tests.unit.resources.cgroups.pods import container, fixed, pod

MI = 1 << 20


@pytest.mark.parametrize(
    ("shares", "weight"), [(2, 1), (0, 1), (1024, 39), (512, 20), (262144, 10000), (262143, 9999)]
)
def test_shares_become_a_weight(shares: int, weight: int) -> None:
    assert shares_to_weight(shares) == weight
    assert abs(weight_to_shares(weight) - max(shares, 2)) < 28


R = CgroupResources
FILES = [
    (R(shares=512), [("cpu.shares", "512")], [("cpu.weight", "20")]),
    (
        R(quota_us=50_000, period_us=100_000),
        [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "50000")],
        [("cpu.max", "50000 100000")],
    ),
    (
        R(quota_us=-1, period_us=100_000),
        [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "-1")],
        [("cpu.max", "max 100000")],
    ),
    (R(quota_us=0, period_us=1000), [("cpu.cfs_period_us", "1000")], [("cpu.max", "max 1000")]),
    (R(quota_us=50_000), [("cpu.cfs_quota_us", "50000")], [("cpu.max", "50000")]),
    (R(period_us=1000), [("cpu.cfs_period_us", "1000")], [("cpu.max", "max 1000")]),
    (R(memory=MI), [("memory.limit_in_bytes", "1048576")], [("memory.max", "1048576")]),
    (R(memory=-1), [("memory.limit_in_bytes", "-1")], [("memory.max", "max")]),
    (R(memory=0), [], []),
    (R(pids=7), [("pids.max", "7")], [("pids.max", "7")]),
    (R(pids=-1), [("pids.max", "max")], [("pids.max", "max")]),
    (
        R(hugepages={"2MB": 4 * MI, "1GB": 0}),
        [("hugetlb.2MB.limit_in_bytes", "4194304"), ("hugetlb.1GB.limit_in_bytes", "0")],
        [("hugetlb.2MB.max", "4194304"), ("hugetlb.1GB.max", "0")],
    ),
    (R(), [], []),
]


@pytest.mark.parametrize(("resources", "v1", "v2"), FILES)
def test_the_files_of_both_versions(
    resources: CgroupResources, v1: list[tuple[str, str]], v2: list[tuple[str, str]]
) -> None:
    assert [(file, text) for _, file, text in v1_files(resources)] == v1
    assert [(file, text) for _, file, text in v2_files(resources)] == v2


INIT: dict[str, Any] = {"initContainers": [fixed("2", "10Mi")]}
SIDECAR: dict[str, Any] = {"initContainers": [container("1", "1Mi", restartPolicy="Always")]}
PODS: list[tuple[str, Any, CgroupResources]] = [
    ("best effort", pod(), R(shares=2)),
    ("best effort, whatever its overhead", pod(overhead={"cpu": "500m"}), R(shares=2)),
    (
        "guaranteed",
        pod(fixed("500m", "64Mi")),
        R(shares=512, quota_us=50_000, period_us=100_000, memory=64 * MI),
    ),
    (
        "the sum of the containers",
        pod(fixed("500m", "64Mi"), fixed("1", "1Mi")),
        R(shares=1536, quota_us=150_000, period_us=100_000, memory=65 * MI),
    ),
    ("requests only", pod(container("250m", "64Mi")), R(shares=256)),
    ("one container has no limit", pod(container("1", limit_cpu="2"), container()), R(shares=1024)),
    (
        "every container is limited in memory",
        pod(container(limit_memory="1Mi"), container("1", limit_memory="2Mi")),
        R(shares=1024, memory=3 * MI),
    ),
    (
        "an init container without limits counts too",
        pod(container("1", limit_cpu="2"), initContainers=[container()]),
        R(shares=1024),
    ),
    (
        "an init container may be the peak",
        pod(fixed("1", "20Mi"), **INIT),
        R(shares=2048, quota_us=200_000, period_us=100_000, memory=20 * MI),
    ),
    ("sidecars are added", pod(container("1"), **SIDECAR), R(shares=2048)),
    (
        "overhead is added",
        pod(fixed("1", "1Mi"), overhead={"cpu": "500m", "memory": "1Mi"}),
        R(shares=1536, quota_us=150_000, period_us=100_000, memory=2 * MI),
    ),
    (
        "pod-level values replace the sums",
        pod(
            container("1"),
            resources={"requests": {"cpu": "2", "memory": "8Mi"}, "limits": {"cpu": "4"}},
        ),
        R(shares=2048, quota_us=400_000, period_us=100_000),
    ),
    (
        "a tiny limit has the least quota",
        pod(container("1m", limit_cpu="1m")),
        R(shares=2, quota_us=1000, period_us=100_000),
    ),
]


@pytest.mark.parametrize(("what", "of", "desired"), PODS, ids=[what for what, _, _ in PODS])
def test_a_pods_cgroup(what: str, of: Any, desired: CgroupResources) -> None:
    assert pod_resources(of, PodCgroupSettings()) == desired


@pytest.mark.parametrize(
    ("of", "kept"),
    [
        (pod(fixed("1", "1Mi")), (MI, 0)),
        (pod(container("1", "1Mi")), (0, MI)),
        (pod(container("1")), (0, 0)),
        (pod(), (0, 0)),
    ],
)
def test_memory_that_a_pod_adds_to_its_groups(of: Any, kept: tuple[int, int]) -> None:
    assert memory_kept(of) == kept


def test_the_settings_of_pods_cgroups() -> None:
    settings = PodCgroupSettings(cpu_cfs_quota=False, pids_limit=100, hugepage_sizes=("2MB", "1GB"))
    plain = pod_resources(pod(fixed("1", "1Mi")), settings)
    assert (plain.quota_us, plain.pids) == (-1, 100)
    assert plain.hugepages == {"2MB": 0, "1GB": 0}
    big = fixed("1", "1Mi")
    for which in ("requests", "limits"):
        big["resources"][which]["hugepages-2Mi"] = "4Mi"
    assert pod_resources(pod(big), settings).hugepages == {"2MB": 4 * MI, "1GB": 0}
    assert pod_resources(pod(), settings) == R(shares=2, pids=100, hugepages={"2MB": 0, "1GB": 0})


def test_the_groups() -> None:
    assert qos_group(0) == R(shares=2)
    assert qos_group(1500, ("2MB",)) == R(shares=1536, hugepages={"2MB": HUGEPAGES_UNBOUNDED})
    assert qos_group(0, ("2MB",)) == R(shares=2, hugepages={"2MB": HUGEPAGES_UNBOUNDED})
    assert burstable_cpu(pod(container("250m"))) == 250
    assert burstable_cpu(pod(fixed("1", "1Mi"))) == 0
    assert burstable_cpu(pod()) == 0


CAPACITY = {"cpu": "4", "memory": "1024Mi", "ephemeral-storage": "9Gi", "hugepages-2Mi": "0"}
RESERVED = ({"cpu": "500m", "memory": "24Mi", "pid": "1000"}, {"cpu": "500m"})


@pytest.mark.parametrize(
    ("enforce", "cpus", "desired"),
    [
        (True, 0, R(shares=3072, memory=1000 * MI, pids=31_000, hugepages={"2MB": 0})),
        (True, 3, R(shares=1024, memory=1000 * MI, pids=31_000, hugepages={"2MB": 0})),
        (False, 3, R(shares=4096, memory=1024 * MI, pids=32_000, hugepages={"2MB": 0})),
    ],
)
def test_the_node(enforce: bool, cpus: int, desired: CgroupResources) -> None:
    supplied = kubepods_group(
        CAPACITY,
        RESERVED,
        max_pids=32_000,
        reserved_cpus=cpus,
        enforce=enforce,
        hugepage_sizes=("2MB",),
    )
    assert supplied == desired


def test_more_reserved_than_capacity() -> None:
    supplied = kubepods_group(CAPACITY, [{"cpu": "9", "memory": "9Gi"}], max_pids=0, enforce=True)
    assert supplied == R(shares=2, memory=0)


def test_reserved_cgroups() -> None:
    reserved = {"cpu": "2", "memory": "1Mi", "pid": "5"}
    assert reserved_group(reserved, compressible=False) == R(shares=2048, memory=MI, pids=5)
    assert reserved_group(reserved, compressible=True) == R(shares=2048)
    assert reserved_group({}, compressible=True) == R()
    kept = reserved_group(reserved, compressible=False, keep_memory=True)
    assert kept == R(shares=2048, memory=MI, memory_min=MI, pids=5)
