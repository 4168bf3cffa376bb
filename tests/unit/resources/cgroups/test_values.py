"""Values written into cgroups: conversions, pods, groups, the node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.pods.resources import (
    MAX_SHARES,
    MIN_SHARES,
    QoSClass,
    amounts,
    shares_to_weight,
    weight_to_shares,
)
from kubeletpy.resources.cgroups.values import (
    HUGEPAGES_UNBOUNDED,
    NO_LIMIT,
    CgroupDriver,
    CgroupResources,
    InvalidCgroupName,
    PodCgroupNames,
    PodCgroupSettings,
    burstable_cpu,
    kubepods_group,
    memory_kept,
    milli,
    parse_existing,
    parse_root,
    pod_resources,
    qos_group,
    reserved_group,
    to_systemd,
    v1_files,
    v2_files,
)
from tests.kit.cgroups import container, fixed, pod

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


# Values of cgroups at their bounds.


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(-5, 1), (1, 1), (2, 1), (3, 1), (28, 1), (29, 2), (262_143, 9_999), (262_145, 10_000)],
)
def test_weights_at_their_bounds(shares: int, weight: int) -> None:
    assert shares_to_weight(shares) == weight


@pytest.mark.parametrize(("weight", "shares"), [(1, 2), (2, 28), (39, 998), (10_000, 262_144)])
def test_shares_of_weights(weight: int, shares: int) -> None:
    assert weight_to_shares(weight) == shares


@given(st.integers(MIN_SHARES, MAX_SHARES - 1), st.integers(1, 1000))
def test_more_shares_are_never_less_weight(shares: int, more: int) -> None:
    weight = shares_to_weight(shares)
    assert 1 <= weight <= shares_to_weight(min(shares + more, MAX_SHARES)) <= 10_000
    assert weight_to_shares(weight) <= shares < weight_to_shares(weight + 1) + 1


@pytest.mark.parametrize(("limit", "pids"), [(-1, None), (0, None), (1, 1), (7, 7)])
def test_a_pids_limit_below_one_sets_no_limit(limit: int, pids: int | None) -> None:
    assert pod_resources(pod(), PodCgroupSettings(pids_limit=limit)).pids == pids
    assert pod_resources(pod(fixed("1", "1Mi")), PodCgroupSettings(pids_limit=limit)).pids == pids


def test_the_defaults() -> None:
    assert PodCgroupSettings() == PodCgroupSettings(True, 100_000, -1, ())
    assert (NO_LIMIT, HUGEPAGES_UNBOUNDED) == (-1, 2**62)


@pytest.mark.parametrize(
    ("max_pids", "reserved", "pids"),
    [(0, "0", None), (1, "0", 1), (1, "1", 0), (1, "2", 0), (-1, "0", None), (5, "2", 3)],
)
def test_pids_of_the_node(max_pids: int, reserved: str, pids: int | None) -> None:
    capacity = {"cpu": "1", "memory": "1Mi"}
    group = kubepods_group(capacity, [{"pid": reserved}], max_pids=max_pids, enforce=True)
    assert group.pids == pids


@pytest.mark.parametrize(
    ("memory", "left"), [("1Mi", 0), ("1048575", 1), ("1048577", 0), ("0", 1 << 20)]
)
def test_memory_of_the_node(memory: str, left: int) -> None:
    capacity = {"cpu": "1", "memory": "1Mi", "hugepages-2Mi": "4Mi"}
    group = kubepods_group(
        capacity, [{"memory": memory}], max_pids=0, enforce=True, hugepage_sizes=("2MB", "1GB")
    )
    assert (group.memory, group.shares) == (left, 1024)
    assert group.hugepages == {"2MB": 4 << 20, "1GB": 0}


def test_unreserved_resources_are_not_limited() -> None:
    group = reserved_group(
        {"hugepages-2Mi": "2Mi"}, compressible=False, hugepage_sizes=("2MB", "1GB")
    )
    assert (group.shares, group.memory, group.pids) == (None, None, None)
    assert group.hugepages == {"2MB": 2 << 20, "1GB": 0}


def test_thousandths_are_rounded_up() -> None:
    supplied = amounts({"cpu": "1.5m"})
    assert (milli(supplied, "cpu"), milli(supplied, "memory")) == (2, 0)


# Paths of pod cgroups for both drivers, and names that are refused in a path.

UID = "8a1f-22"
TABLE = [
    ("cgroupfs", "/", QoSClass.GUARANTEED, "/kubepods/pod8a1f-22"),
    ("cgroupfs", "", QoSClass.BURSTABLE, "/kubepods/burstable/pod8a1f-22"),
    ("cgroupfs", "/a/b", QoSClass.BEST_EFFORT, "/a/b/kubepods/besteffort/pod8a1f-22"),
    ("systemd", "/", QoSClass.GUARANTEED, "/kubepods.slice/kubepods-pod8a1f_22.slice"),
    (
        "systemd",
        "/",
        QoSClass.BURSTABLE,
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8a1f_22.slice",
    ),
    (
        "systemd",
        "/my-nodes",
        QoSClass.BEST_EFFORT,
        "/my_nodes.slice/my_nodes-kubepods.slice/my_nodes-kubepods-besteffort.slice"
        "/my_nodes-kubepods-besteffort-pod8a1f_22.slice",
    ),
]


@pytest.mark.parametrize(("driver", "root", "quality", "path"), TABLE)
def test_the_path_of_a_pod_by_driver_and_class(
    driver: str, root: str, quality: QoSClass, path: str
) -> None:
    names = PodCgroupNames(CgroupDriver(driver), parse_root(root))
    assert names.pod(UID, quality) == path
    assert path.startswith(f"{names.group(quality)}/")
    assert names.pod_uid(path.rpartition("/")[2]) == UID


def test_names_the_groups() -> None:
    assert PodCgroupNames().kubepods == "/kubepods"
    assert PodCgroupNames(CgroupDriver.SYSTEMD).kubepods == "/kubepods.slice"
    assert to_systemd(()) == "/"


@pytest.mark.parametrize(
    "uid", ["", "..", "../x", "a/b", "a b", "a_b", "\0", "x" * 300, "-a", ".a"]
)
def test_a_hostile_uid_is_refused(uid: str) -> None:
    for driver in CgroupDriver:
        with pytest.raises(InvalidCgroupName):
            PodCgroupNames(driver).pod(uid, QoSClass.BURSTABLE)


@pytest.mark.parametrize("root", ["/..", "/a/../b", "/a b", "/x.slice"])
def test_an_invalid_root_is_refused(root: str) -> None:
    with pytest.raises(InvalidCgroupName):
        parse_root(root)


@pytest.mark.parametrize("path", ["", "/", "/..", "/a/../../b", "a/./b", "/a/b\0c"])
def test_a_reserved_cgroup_stays_in_the_hierarchy(path: str) -> None:
    with pytest.raises(InvalidCgroupName):
        parse_existing(path)
    assert parse_existing("system.slice/x") == "/system.slice/x"


@pytest.mark.parametrize(
    ("driver", "directory"),
    [
        ("cgroupfs", "burstable"),
        ("cgroupfs", "pod"),
        ("cgroupfs", "pod..%2f"),
        ("systemd", "kubepods-burstable.slice"),
        ("systemd", "kubepods-podX"),
        ("systemd", "crio-abc.scope"),
    ],
)
def test_other_directories_are_not_pod_cgroups(driver: str, directory: str) -> None:
    assert PodCgroupNames(CgroupDriver(driver)).pod_uid(directory) is None
