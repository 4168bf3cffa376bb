"""Resource limits in CRI terms (docs/reference/behaviour.md, k2; docs/reference/constants.csv:
resources)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import ContainerKind, Placement
from kubeletpy.pods.resources import MemoryQoS, amounts, cpu_quota, cpu_shares, hugepage_limits
from kubeletpy.runtime_manager.config.resources import (
    container_resources,
    has_swap,
    oom_score_adj,
    placed,
)
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from tests.kit.records import container, make_pod, sidecar

GIB = 2**30
SETTINGS = RuntimeSettings(memory_capacity=10 * GIB)
REGULAR, INIT = ContainerKind.REGULAR, ContainerKind.INIT


def with_resources(requests: Any = None, limits: Any = None) -> dict[str, Any]:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}}


def of(settings: RuntimeSettings = SETTINGS, pod_level: Any = None, **fields: Any) -> Any:
    spec = {} if pod_level is None else {"resources": pod_level}
    pod = make_pod(container("app", **fields), **spec)
    return container_resources(pod, pod.containers[0], REGULAR, settings)


@pytest.mark.parametrize(
    ("milli", "shares"), [(0, 2), (1, 2), (2, 2), (3, 3), (100, 102), (1000, 1024), (10**9, 262144)]
)
def test_shares(milli: int, shares: int) -> None:
    assert cpu_shares(milli) == shares


@pytest.mark.parametrize(
    ("milli", "period", "quota"),
    [
        (0, 100_000, 0),
        (1, 100_000, 1000),
        (100, 100_000, 10_000),
        (1500, 100_000, 150_000),
        (500, 5_000, 2_500),
        (2**63 - 1, 100_000, 2**63 - 1),
    ],
)
def test_quota(milli: int, period: int, quota: int) -> None:
    assert cpu_quota(milli, period) == quota


CPU_ROWS = [
    ("nothing", with_resources(), None, (2, 0)),
    ("request", with_resources({"cpu": "250m"}), None, (256, 0)),
    ("limit-stands-for-request", with_resources({}, {"cpu": "1"}), None, (1024, 100_000)),
    ("both", with_resources({"cpu": "250m"}, {"cpu": "500m"}), None, (256, 50_000)),
    ("zero-request-counts", with_resources({"cpu": "0"}, {"cpu": "1"}), None, (2, 100_000)),
    ("pod-limit", with_resources(), {"limits": {"cpu": "2"}}, (2048, 200_000)),
    (
        "own-limit-before-pods",
        with_resources({}, {"cpu": "1"}),
        {"limits": {"cpu": "2"}},
        (1024, 100_000),
    ),
]


@pytest.mark.parametrize(
    ("fields", "pod_level", "expected"), [r[1:] for r in CPU_ROWS], ids=[r[0] for r in CPU_ROWS]
)
def test_cpu(fields: dict[str, Any], pod_level: Any, expected: tuple[int, int]) -> None:
    resources = of(pod_level=pod_level, **fields)
    assert (resources.cpu_shares, resources.cpu_quota) == expected
    assert resources.cpu_period == 100_000


def test_quota_can_be_off() -> None:
    resources = of(replace(SETTINGS, cpu_cfs_quota=False), **with_resources({}, {"cpu": "1"}))
    assert (resources.cpu_quota, resources.cpu_period, resources.cpu_shares) == (0, 0, 1024)


def test_memory() -> None:
    assert of().memory_limit_in_bytes == 0
    assert of(**with_resources({}, {"memory": "64Mi"})).memory_limit_in_bytes == 64 * 2**20
    assert of(pod_level={"limits": {"memory": "1Gi"}}).memory_limit_in_bytes == GIB


def test_group_kill_on_cgroup_v2() -> None:
    assert not of().unified
    v2 = replace(SETTINGS, cgroup_v2=True)
    assert dict(of(v2).unified) == {"memory.oom.group": "1", "memory.high": "max"}
    single = of(replace(v2, single_process_oom_kill=True))
    assert dict(single.unified) == {"memory.high": "max"}


def test_hugepages_are_zero_unless_limited() -> None:
    settings = replace(SETTINGS, hugepage_sizes=("2MB", "1GB"))
    resources = of(
        settings,
        {"limits": {"hugepages-1Gi": "2Gi"}},
        **with_resources({}, {"hugepages-2Mi": "4Mi"}),
    )
    limits = {limit.page_size: limit.limit for limit in resources.hugepage_limits}
    assert limits == {"2MB": 4 * 2**20, "1GB": 2 * GIB}
    assert {limit.limit for limit in of(settings).hugepage_limits} == {0}
    assert hugepage_limits(amounts({"hugepages-64Ki": "1Mi"})) == {"64KB": 2**20}


MEMORY_1G = {"memory": "1Gi"}
FULL = {"cpu": "1", "memory": "1Gi"}
OOM_ROWS = [
    ("guaranteed", with_resources(FULL, FULL), {}, -997),
    ("best-effort", {}, {}, 1000),
    ("burstable-tenth", with_resources(MEMORY_1G), {}, 900),
    ("burstable-no-memory", with_resources({"cpu": "1"}), {}, 999),
    ("burstable-nearly-all", with_resources({"memory": "10Gi"}), {}, 3),
    (
        "node-critical",
        {},
        {"priority": 2_000_001_000, "priorityClassName": "system-node-critical"},
        -997,
    ),
    (
        "pod-level-share",
        with_resources(MEMORY_1G),
        {"resources": {"requests": {"memory": "3Gi"}}},
        700,
    ),
    (
        "pod-level-share-of-two",
        with_resources(MEMORY_1G),
        {"resources": {"requests": {"memory": "3Gi"}}, "init": (container("init"),)},
        800,
    ),
]


@pytest.mark.parametrize(
    ("fields", "spec", "expected"), [r[1:] for r in OOM_ROWS], ids=[r[0] for r in OOM_ROWS]
)
def test_oom_score(fields: dict[str, Any], spec: dict[str, Any], expected: int) -> None:
    pod = make_pod(container("app", **fields), **spec)
    assert oom_score_adj(pod, pod.containers[0], REGULAR, 10 * GIB) == expected


@pytest.mark.parametrize(
    ("memory", "of_pod", "capacity", "expected"),
    [
        ("9009", None, 10_000, 100),
        ("9010", None, 10_000, 99),
        ("9009", "9009", 10_000, 100),
        # more than its pod has: refused elsewhere
        ("9010", "9000", 10_000, 99),
        ("1", None, 1, 3),
    ],
)
def test_oom_score_to_the_byte(
    memory: str, of_pod: str | None, capacity: int, expected: int
) -> None:
    spec: Any = {} if of_pod is None else {"resources": {"requests": {"memory": of_pod}}}
    pod = make_pod(container("app", **with_resources({"memory": memory})), **spec)
    assert oom_score_adj(pod, pod.containers[0], REGULAR, capacity) == expected


def test_oom_score_of_sidecars_is_no_higher_than_that_of_regular_containers() -> None:
    pod = make_pod(
        container("big", **with_resources({"memory": "3Gi"})),
        container("small", **with_resources({"memory": "2Gi"})),
        init=(
            sidecar("side", **with_resources(MEMORY_1G)),
            container("init", **with_resources(MEMORY_1G)),
        ),
    )
    side, init = pod.init_containers
    assert oom_score_adj(pod, side, INIT, 10 * GIB) == 800
    assert oom_score_adj(pod, init, INIT, 10 * GIB) == 900


SWAP_V2 = replace(
    SETTINGS,
    swap_controller=True,
    cgroup_v2=True,
    limited_swap=True,
    swap_capacity=GIB,
    single_process_oom_kill=True,
)
SWAP_ROWS = [
    ("no-controller", replace(SWAP_V2, swap_controller=False), with_resources(MEMORY_1G), {}, None),
    ("not-limited", replace(SWAP_V2, limited_swap=False), with_resources(MEMORY_1G), {}, "0"),
    ("share", SWAP_V2, with_resources(MEMORY_1G), {}, str(GIB // 10)),
    ("best-effort", SWAP_V2, {}, {}, "0"),
    ("guaranteed", SWAP_V2, with_resources(FULL, FULL), {}, "0"),
    ("request-is-limit", SWAP_V2, with_resources(MEMORY_1G, MEMORY_1G), {}, "0"),
    ("critical", SWAP_V2, with_resources(MEMORY_1G), {"priority": 2_000_000_000}, "0"),
    ("more-than-the-node", SWAP_V2, with_resources({"memory": "20Gi"}), {}, "0"),
    ("all-of-the-node", SWAP_V2, with_resources({"memory": "10Gi"}), {}, str(GIB)),
    (
        "one-byte",
        replace(SWAP_V2, memory_capacity=10, swap_capacity=100),
        with_resources({"memory": "1"}),
        {},
        "10",
    ),
    (
        "no-request-of-a-node-without-a-known-capacity",
        replace(SWAP_V2, memory_capacity=0),
        with_resources({"memory": "0"}, MEMORY_1G),
        {},
        "0",
    ),
]


@pytest.mark.parametrize(
    ("settings", "fields", "spec", "expected"),
    [r[1:] for r in SWAP_ROWS],
    ids=[r[0] for r in SWAP_ROWS],
)
def test_swap(settings: RuntimeSettings, fields: Any, spec: Any, expected: str | None) -> None:
    pod = make_pod(container("app", **fields), **spec)
    resources = container_resources(pod, pod.containers[0], REGULAR, settings)
    assert resources.unified.get("memory.swap.max") == expected


@pytest.mark.parametrize(
    ("settings", "spec", "expected"),
    [
        (SWAP_V2, {}, True),
        (replace(SWAP_V2, swap_controller=False), {}, False),
        (replace(SWAP_V2, cgroup_v2=False), {}, False),
        (replace(SWAP_V2, limited_swap=False), {}, False),
        # at pod level the pod is Guaranteed
        (SWAP_V2, {"resources": {"requests": FULL, "limits": FULL}}, False),
    ],
)
def test_containers_that_may_swap(settings: RuntimeSettings, spec: Any, expected: bool) -> None:
    pod = make_pod(container("app", **with_resources({"memory": "1Mi"})), **spec)
    assert has_swap(pod, pod.containers[0], settings) is expected


@pytest.mark.parametrize(
    ("settings", "placement", "expected"),
    [
        (SETTINGS, Placement("1-2", "0"), ("1-2", "0", 100_000)),
        (SETTINGS, Placement("1-2", "0", no_cfs_quota=True), ("1-2", "0", -1)),
        (replace(SETTINGS, cpu_cfs_quota=False), Placement("3", no_cfs_quota=True), ("3", "", 0)),
    ],
)
def test_on_cpus_of_its_own(
    settings: RuntimeSettings, placement: Placement, expected: tuple[str, str, int]
) -> None:
    found = placed(of(settings, **with_resources({}, {"cpu": "1"})), placement)
    assert (found.cpuset_cpus, found.cpuset_mems, found.cpu_quota) == expected


def test_swap_on_cgroup_v1_is_the_memory_limit() -> None:
    v1 = replace(SETTINGS, swap_controller=True)
    assert of(v1, **with_resources({}, MEMORY_1G)).memory_swap_limit_in_bytes == GIB
    assert of(v1).memory_swap_limit_in_bytes == 0


def test_memory_qos() -> None:
    fields = with_resources({"memory": "1Gi"}, {"memory": "2Gi"})
    v2 = replace(SETTINGS, cgroup_v2=True, memory_qos=MemoryQoS(tiered=True))
    assert dict(of(v2, **fields).unified) == {
        "memory.oom.group": "1",
        "memory.low": str(GIB),
        "memory.high": "2040107008",
    }
    off = of(replace(v2, memory_qos=None), **fields).unified
    assert dict(off) == {"memory.oom.group": "1", "memory.high": "max"}
    assert "memory.high" not in of(SETTINGS, **fields).unified
    pod_limit = of(v2, {"limits": {"memory": "2Gi"}}, **with_resources({"memory": "1Gi"}, {}))
    assert "memory.high" not in pod_limit.unified
