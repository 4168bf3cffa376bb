"""Sums of requests and limits (docs/reference/behaviour.md, k3; KEP-753, KEP-2837, KEP-688)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from kubeletpy.pods.resources import (
    MemoryQoS,
    Protection,
    QoSClass,
    container_files,
    cpu_quota,
    cpu_shares,
    default_weight_to_shares,
    hugepage_limits,
    limited,
    livelock_risk,
    memory_protection,
    pod_level_requests_set,
    pod_level_set,
    pod_limits,
    pod_requests,
    resource_levels,
    shares_of_container,
    shares_to_default_weight,
    shares_to_weight,
    throttled_from,
)
from tests.kit.records import container, make_pod, sidecar


def cpu(amount: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": amount}, "limits": {"cpu": amount}}}


ROWS = [
    ("sum-of-regular", ("1", "2"), (), "3"),
    ("one-big-init", ("1",), (("init", "5"),), "5"),
    ("small-init", ("2",), (("init", "1"),), "2"),
    ("sidecar-adds", ("1",), (("side", "2"),), "3"),
    ("init-runs-beside-earlier-sidecar", ("1",), (("side", "2"), ("init", "4")), "6"),
    ("init-before-sidecar", ("1",), (("init", "4"), ("side", "2")), "4"),
    ("sidecars-add-up", ("1",), (("side", "2"), ("side", "3")), "6"),
]


@pytest.mark.parametrize(
    ("regular", "init", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_sums(regular: tuple[str, ...], init: tuple[Any, ...], expected: str) -> None:
    pod = make_pod(
        *(container(f"c{i}", **cpu(amount)) for i, amount in enumerate(regular)),
        init=tuple(
            (sidecar if kind == "side" else container)(f"i{i}", **cpu(amount))
            for i, (kind, amount) in enumerate(init)
        ),
    )
    assert pod_requests(pod) == {"cpu": Decimal(expected)}
    assert pod_limits(pod) == {"cpu": Decimal(expected)}


def test_overhead_is_added_to_requests_and_to_limits_that_there_are() -> None:
    only_request = container("app", resources={"requests": {"cpu": "1"}})
    pod = make_pod(only_request, overhead={"cpu": "250m", "memory": "1Ki"})
    assert pod_requests(pod) == {"cpu": Decimal("1.25"), "memory": Decimal(1024)}
    assert pod_requests(pod, overhead=False) == {"cpu": Decimal(1)}
    assert pod_limits(pod) == {}
    limited = make_pod(container("app", **cpu("1")), overhead={"cpu": "250m"})
    assert pod_limits(limited) == {"cpu": Decimal("1.25")}
    assert pod_limits(limited, overhead=False) == {"cpu": Decimal(1)}


@pytest.mark.parametrize(
    ("resources", "of_requests", "of_any"),
    [
        ({}, False, False),
        ({"requests": {"cpu": "1"}}, True, True),
        ({"limits": {"memory": "1Gi"}}, False, True),
        ({"requests": {"hugepages-2Mi": "4Mi"}}, True, True),
        ({"requests": {"example.com/x": "1"}, "limits": {"example.com/x": "1"}}, False, False),
    ],
)
def test_which_resources_are_of_the_pod(
    resources: dict[str, Any], of_requests: bool, of_any: bool
) -> None:
    pod = make_pod(container("app"), resources=resources)
    assert (pod_level_requests_set(pod), pod_level_set(pod)) == (of_requests, of_any)


SOME: dict[str, Any] = {"requests": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("of_pod", "regular", "init", "levels"),
    [
        (None, {}, {}, ""),
        ({}, {"requests": {}}, {}, ""),
        (SOME, {}, {}, "pod_level"),
        ({"requests": {"example.com/x": "1"}}, {}, {}, ""),
        (None, {"limits": {"memory": "1"}}, {}, "container_level"),
        (None, {}, SOME, "container_level"),
        (SOME, {}, SOME, "pod_and_container_level"),
        (SOME, SOME, {}, "pod_and_container_level"),
    ],
)
def test_resource_levels_name_where_resources_are_stated(
    of_pod: Any, regular: dict[str, Any], init: dict[str, Any], levels: str
) -> None:
    spec = {} if of_pod is None else {"resources": of_pod}
    pod = make_pod(
        container("app", resources=regular), init=(container("i", resources=init),), **spec
    )
    assert resource_levels(pod) == levels


def test_pod_level_values_replace_sums() -> None:
    pod = make_pod(
        container("app", **cpu("1")),
        resources={"requests": {"cpu": "3"}, "limits": {"memory": "1Gi", "example.com/x": "1"}},
    )
    assert pod_requests(pod) == {"cpu": Decimal(3)}
    assert pod_limits(pod) == {"cpu": Decimal(1), "memory": Decimal(2**30)}


@pytest.mark.parametrize(
    ("of_pod", "of_containers", "expected"),
    [
        ({}, ({"cpu": "1"}, {"cpu": "1"}), True),
        ({}, ({"cpu": "1"}, {}), False),
        ({}, ({"cpu": "1"}, {"cpu": "0"}), False),
        ({"cpu": "2"}, ({}, {}), True),
        ({"memory": "1Gi"}, ({}, {}), False),
    ],
)
def test_whether_all_containers_are_limited(
    of_pod: dict[str, str], of_containers: tuple[dict[str, str], ...], expected: bool
) -> None:
    first, second = (container("c", resources={"limits": of}) for of in of_containers)
    for regular, init in (((first, second), ()), ((first,), (second,))):
        pod = make_pod(*regular, init=init, resources={"limits": of_pod})
        assert limited(pod, "cpu") is expected


# Memory settings in the cgroups of pods and containers.

GI = 1 << 30
TIERED, NONE = MemoryQoS(tiered=True, allocatable=8 * GI), MemoryQoS(allocatable=8 * GI)


@pytest.mark.parametrize(
    ("qos", "quality", "request_", "desired"),
    [
        (TIERED, QoSClass.GUARANTEED, GI, Protection(minimum=GI)),
        (TIERED, QoSClass.BURSTABLE, GI, Protection(low=GI)),
        (TIERED, QoSClass.BURSTABLE, 0, Protection()),
        (TIERED, QoSClass.BURSTABLE, 1, Protection(low=1)),
        (TIERED, QoSClass.BEST_EFFORT, 0, Protection()),
        (NONE, QoSClass.GUARANTEED, GI, Protection()),
        (None, QoSClass.GUARANTEED, GI, Protection()),
    ],
)
def test_pods(qos: MemoryQoS | None, quality: QoSClass, request_: int, desired: Protection) -> None:
    assert memory_protection(qos, quality, request_) == desired


@pytest.mark.parametrize(
    ("factor", "allocatable", "request_", "limit", "high"),
    [
        # request + factor * (limit - request), in whole pages
        (0.9, 0, GI, 2 * GI, 2040107008),
        (0.5, 0, 4096, 12288 + 4095, 8192),
        (1.0, 0, 0, GI, GI),
        # no limit: what pods may have on the node
        (0.9, 10 * GI, 0, 0, 9663676416),
        (0.9, 10 * GI, GI, 0, 9771048960),
        (0.9, 0, GI, 0, 0),
        # no factor
        (None, 10 * GI, GI, 2 * GI, 0),
        # the request is the limit, or there is nothing between them
        (0.9, 10 * GI, GI, GI, 0),
        (0.9, GI, 2 * GI, 0, 0),
        (0.001, 0, GI, GI + 4096, 0),
    ],
)
def test_throttling(
    factor: float | None, allocatable: int, request_: int, limit: int, high: int
) -> None:
    qos = MemoryQoS(throttling_factor=factor, allocatable=allocatable)
    files = container_files(qos, QoSClass.BURSTABLE, request_, limit)
    assert files.get("memory.high", "0") == str(high)
    assert throttled_from(qos, request_, limit or allocatable) == high


def test_the_pod_throttles_containers_without_a_limit_of_their_own() -> None:
    def high(limit: int, pod_limit: int) -> str | None:
        files = container_files(NONE, QoSClass.BURSTABLE, GI, limit, pod_limit=pod_limit)
        return files.get("memory.high")

    assert (high(0, GI), high(0, 0)) == (None, "7838314496")
    assert high(2 * GI, 4 * GI) == high(2 * GI, 0) == "2040107008"


@pytest.mark.parametrize(
    ("factor", "kernel", "risky"),
    [
        (0.9, "5.8.18-1-amd64", True),
        (0.9, "4.19.0", True),
        (0.9, "5.9.0", False),
        (0.9, "6.1.0-13-amd64", False),
        (0.9, "", False),
        (None, "5.4.0", False),
    ],
)
def test_kernels_that_may_hang_at_the_threshold(
    factor: float | None, kernel: str, *, risky: bool
) -> None:
    assert livelock_risk(MemoryQoS(throttling_factor=factor), kernel) is risky
    assert not livelock_risk(None, kernel)


@pytest.mark.parametrize(
    ("qos", "quality", "request_", "limit", "files"),
    [
        (None, QoSClass.BURSTABLE, GI, 2 * GI, {"memory.high": "max"}),
        (TIERED, QoSClass.GUARANTEED, GI, GI, {"memory.min": str(GI)}),
        (
            TIERED,
            QoSClass.BURSTABLE,
            GI,
            2 * GI,
            {"memory.low": str(GI), "memory.high": "2040107008"},
        ),
        (
            NONE,
            QoSClass.BURSTABLE,
            GI,
            2 * GI,
            {"memory.min": "0", "memory.low": "0", "memory.high": "2040107008"},
        ),
        *(
            (
                TIERED,
                quality,
                0,
                0,
                {"memory.min": "0", "memory.low": "0", "memory.high": "7730937856"},
            )
            for quality in (QoSClass.BURSTABLE, QoSClass.BEST_EFFORT)
        ),
        (NONE, QoSClass.GUARANTEED, GI, GI, {"memory.min": "0", "memory.low": "0"}),
    ],
)
def test_containers(
    qos: MemoryQoS | None, quality: QoSClass, request_: int, limit: int, files: dict[str, str]
) -> None:
    assert container_files(qos, quality, request_, limit) == files


# Amounts in the units of cgroups.


@pytest.mark.parametrize(
    ("millicores", "shares"),
    [
        (0, 2),
        (1, 2),
        (2, 2),
        (3, 3),
        (100, 102),
        (1000, 1024),
        (256_000, 262_144),
        (10**9, 262_144),
    ],
)
def test_shares(millicores: int, shares: int) -> None:
    assert cpu_shares(millicores) == shares


@pytest.mark.parametrize(
    ("millicores", "period", "quota"),
    [
        (-1, 100_000, 0),
        (0, 100_000, 0),
        (1, 100_000, 1000),
        (10, 100_000, 1000),
        (11, 100_000, 1100),
        (500, 100_000, 50_000),
        (500, 10_000, 5000),
        (2**62, 10**6, 2**63 - 1),
    ],
)
def test_quota(millicores: int, period: int, quota: int) -> None:
    assert cpu_quota(millicores, period) == quota


@pytest.mark.parametrize(
    ("size", "name"),
    [
        ("1Gi", "1GB"),
        ("2Mi", "2MB"),
        ("64Ki", "64KB"),
        ("1536Mi", "1536MB"),
        ("1023Mi", "1023MB"),
        ("1Ki", "1KB"),
        ("1023", "1023B"),
        ("0", "0B"),
    ],
)
def test_pages(size: str, name: str) -> None:
    supplied = {f"hugepages-{size}": Decimal(5), "memory": Decimal(1)}
    assert hugepage_limits(supplied) == {name: 5}


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(0, 1), (2, 1), (3, 2), (102, 17), (512, 59), (1024, 100), (2048, 174), (262_144, 10_000)],
)
def test_weights_of_runc_1_3_2(shares: int, weight: int) -> None:
    assert shares_to_default_weight(shares) == weight


@pytest.mark.parametrize("millicores", [1, 10, 100, 250, 1000, 1500, 4000, 64_000, 300_000])
def test_shares_of_a_weight_by_either_conversion(millicores: int) -> None:
    shares = cpu_shares(millicores)
    for convert in (shares_to_weight, shares_to_default_weight):
        assert shares_of_container(convert(shares), [shares]) == shares
    known = default_weight_to_shares(shares_to_default_weight(shares))
    assert abs(known - shares) <= max(5, shares * 0.05)
