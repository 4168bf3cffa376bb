"""Resources that claims add to a pod, and where they count (docs/reference/behaviour.md, k5)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from kubeletpy.base.api.quantity import parse, parse_quantity
from kubeletpy.pods.pod import ContainerKind, Pod
from kubeletpy.pods.resources import (
    FIELD,
    MemoryQoS,
    QoSClass,
    added_to_container,
    added_to_pod,
    memory_share,
    pod_limits,
    pod_requests,
    qos_class,
    raised_by_claims,
    requests_in_force,
    without_claims,
)
from kubeletpy.resources.admission.checks import pod_needs
from kubeletpy.resources.allocation.resources import reported_resources
from kubeletpy.resources.cgroups.values import (
    PodCgroupSettings,
    burstable_cpu,
    memory_kept,
    pod_resources,
)
from kubeletpy.runtime_manager.config.resources import container_resources, oom_score_adj
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.status.generate import pod_level_resources
from kubeletpy.syncloop.merge import Merge
from tests.unit.runtime_manager.pods_and_records import container, make_pod

MI, GI = 1 << 20, 1 << 30
PAGES = "hugepages-2Mi"
SETTINGS = RuntimeSettings(memory_capacity=10 * GI, hugepage_sizes=("2MB",))
REGULAR = ContainerKind.REGULAR


def claim(
    *containers: str,
    mapping: dict[str, str] | None = None,
    per_pod: dict[str, str] | None = None,
    per_container: dict[str, str] | None = None,
    name: str = "gpu",
) -> dict[str, Any]:
    per_pod, per_container = per_pod or {}, per_container or {}
    overhead = [
        {
            "name": each,
            **({"perPod": per_pod[each]} if each in per_pod else {}),
            **({"perContainer": per_container[each]} if each in per_container else {}),
        }
        for each in {**per_pod, **per_container}
    ]
    return {
        "resourceClaimName": name,
        "containers": list(containers),
        "mapping": [{"name": n, "quantity": q} for n, q in (mapping or {}).items()],
        "overhead": overhead,
    }


def sized(name: str, requests: Any = None, limits: Any = None) -> dict[str, Any]:
    return container(name, resources={"requests": requests or {}, "limits": limits or {}})


def pod_with(claims: list[Any], *containers: Any, status: Any = None, **spec: Any) -> Pod:
    made = make_pod(*containers, **spec)
    whole: Any = {**made.object, "status": {**(status or {}), FIELD: claims}}
    return Pod(whole)


BOTH = claim("a", "b", mapping={"cpu": "1"}, per_pod={"cpu": "200m"}, per_container={"cpu": "50m"})
ALONE = claim("a", mapping={"memory": "1Gi"}, per_container={"memory": "10Mi"}, name="fpga")
NOBODY = claim(per_pod={"memory": "5Mi"}, per_container={"memory": "7Mi"}, name="unused")
BARE = {"resourceClaimName": "nothing"}


def numbers(**texts: str) -> dict[str, Decimal]:
    return {name.replace("_", "-"): parse(text) for name, text in texts.items()}


@pytest.mark.parametrize(
    ("claims", "of_pod", "of_a", "of_b"),
    [
        ([], {}, {}, {}),
        ([BARE], {}, {}, {}),
        ([BOTH], {"cpu": "1300m"}, {"cpu": "1250m"}, {"cpu": "1250m"}),
        ([ALONE], {"memory": "1034Mi"}, {"memory": "1034Mi"}, {}),
        ([NOBODY], {"memory": "5Mi"}, {}, {}),
        (
            [BOTH, ALONE, NOBODY],
            {"cpu": "1300m", "memory": "1039Mi"},
            {"cpu": "1250m", "memory": "1034Mi"},
            {"cpu": "1250m"},
        ),
    ],
)
def test_resources_that_claims_add(claims: Any, of_pod: Any, of_a: Any, of_b: Any) -> None:
    pod = pod_with(claims, "a", "b")
    assert added_to_pod(pod, parse) == numbers(**of_pod)
    assert {n: str(q) for n, q in added_to_pod(pod, parse_quantity).items()} == of_pod
    assert added_to_container(pod, "a") == numbers(**of_a)
    assert added_to_container(pod, "b") == numbers(**of_b)
    assert raised_by_claims(pod, "b") is (BOTH in claims)


def test_containers_share_the_memory_of_their_claim_for_the_oom_score() -> None:
    shared = claim(
        "a",
        "b",
        mapping={"memory": "2000Mi"},
        per_pod={"memory": "100Mi"},
        per_container={"memory": "10Mi", "cpu": "1"},
    )
    pod = pod_with([shared, ALONE], "a", "b", "c")
    assert memory_share(pod, "a") == (1000 + 50 + 10 + 1024 + 10) * MI
    assert memory_share(pod, "b") == (1000 + 50 + 10) * MI
    assert memory_share(pod, "c") == 0


def test_only_requests_and_limits_that_count_claims_contain_them() -> None:
    pod = pod_with([BOTH, ALONE], sized("a", {"cpu": "1"}, {"cpu": "2"}), "b")
    assert pod_requests(pod) == numbers(cpu="1")
    assert pod_requests(pod, with_claims=True) == numbers(cpu="2300m", memory="1034Mi")
    assert pod_limits(pod) == numbers(cpu="2")
    # no container has a limit of memory: the pod has none, whatever its claims add
    assert pod_limits(pod, with_claims=True) == numbers(cpu="3300m")


def test_pod_level_values_replace_what_claims_add() -> None:
    whole = {"requests": {"cpu": "4"}, "limits": {"memory": "9Gi"}}
    pod = pod_with([BOTH, ALONE], sized("a", {"cpu": "1"}, {"memory": "1Gi"}), resources=whole)
    assert pod_requests(pod, with_claims=True) == numbers(cpu="4", memory="1034Mi")
    assert pod_limits(pod, with_claims=True) == numbers(memory="9Gi")


def test_huge_pages_of_claims_are_limits_of_their_own() -> None:
    pod = pod_with([claim("a", mapping={PAGES: "4Mi"})], sized("a", {"cpu": "1"}))
    assert pod_limits(pod, with_claims=True) == {PAGES: parse("4Mi")}
    assert pod_resources(pod, PodCgroupSettings(hugepage_sizes=("2MB",))).hugepages == {
        "2MB": 4 * MI
    }


# -- the pod's cgroup ------------------------------------------------------------------------

FULL = {"cpu": "1", "memory": "1Gi"}


def test_the_cgroup_of_a_guaranteed_pod_is_raised_and_stays_guaranteed() -> None:
    pod = pod_with([BOTH, ALONE], sized("a", FULL, FULL), sized("b", FULL, FULL))
    assert qos_class(pod) is QoSClass.GUARANTEED
    found = pod_resources(pod, PodCgroupSettings(memory_qos=MemoryQoS(tiered=True)))
    assert found.shares == 3300 * 1024 // 1000
    assert found.quota_us == 330_000
    assert found.memory == found.memory_min == (2048 + 1034) * MI
    assert memory_kept(pod) == ((2048 + 1034) * MI, 0)


def test_the_cgroup_of_a_best_effort_pod_gets_huge_pages_only() -> None:
    pod = pod_with([BOTH, claim("a", mapping={PAGES: "2Mi"}, name="pages")], "a", "b")
    found = pod_resources(pod, PodCgroupSettings(hugepage_sizes=("2MB",)))
    assert (found.shares, found.quota_us, found.memory) == (2, None, None)
    assert found.hugepages == {"2MB": 2 * MI}


def test_claims_count_in_the_group_of_burstable_pods() -> None:
    pod = pod_with([BOTH], sized("a", {"cpu": "1"}), "b")
    assert burstable_cpu(pod) == 2300


# -- containers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requests", "limits", "whole", "expected"),
    [
        ({"cpu": "500m"}, {"cpu": "1", "memory": "1Gi"}, None, (512, 225_000, 2058 * MI)),
        # without a request the limit counts, but not what the claim adds to it
        ({}, {"cpu": "1"}, None, (1024, 225_000, 0)),
        ({"cpu": "500m"}, {}, None, (512, 0, 0)),
        # limits that a container inherits from the pod are not raised
        ({"cpu": "500m"}, {}, {"cpu": "4", "memory": "4Gi"}, (512, 400_000, 4096 * MI)),
        ({"cpu": "500m"}, {"cpu": "1"}, {"memory": "4Gi"}, (512, 225_000, 4096 * MI)),
    ],
)
def test_limits_of_a_container(
    requests: Any, limits: Any, whole: Any, expected: tuple[int, int, int]
) -> None:
    spec = {} if whole is None else {"resources": {"limits": whole}}
    pod = pod_with([BOTH, ALONE], sized("a", requests, limits), "b", **spec)
    found = container_resources(pod, pod.containers[0], REGULAR, SETTINGS)
    assert (found.cpu_shares, found.cpu_quota, found.memory_limit_in_bytes) == expected


def test_a_resize_does_not_raise_limits_that_a_container_has_from_its_pod() -> None:
    whole = {"limits": {"cpu": "4"}}
    pod = pod_with([BOTH], sized("a", {"cpu": "1"}), "b", resources=whole)
    inherited: Any = sized("a", {"cpu": "1"}, {"cpu": "4"})
    found = container_resources(pod, inherited, REGULAR, SETTINGS)
    assert found.cpu_quota == 400_000


@pytest.mark.parametrize(
    ("own", "of_pod", "expected"),
    [(None, None, 4), ("6Mi", None, 10), (None, "8Mi", 8), ("6Mi", "8Mi", 10)],
)
def test_huge_pages_of_a_container(own: str | None, of_pod: str | None, expected: int) -> None:
    spec = {} if of_pod is None else {"resources": {"limits": {PAGES: of_pod}}}
    limits = {} if own is None else {PAGES: own}
    pod = pod_with([claim("a", mapping={PAGES: "4Mi"})], sized("a", {}, limits), **spec)
    found = container_resources(pod, pod.containers[0], REGULAR, SETTINGS)
    assert [each.limit for each in found.hugepage_limits] == [expected * MI]


@pytest.mark.parametrize(
    ("request_", "limit", "high"),
    [("1Gi", "2Gi", (1024 + 3082) * MI // 2), ("1Gi", "1Gi", None), (None, None, 4 * GI)],
)
def test_throttling_of_a_container(request_: str | None, limit: str | None, high: Any) -> None:
    qos = MemoryQoS(tiered=True, throttling_factor=0.5, allocatable=8 * GI)
    settings = RuntimeSettings(memory_capacity=10 * GI, cgroup_v2=True, memory_qos=qos)
    requests = {"cpu": "1", **({"memory": request_} if request_ else {})}
    pod = pod_with([ALONE], sized("a", requests, {"memory": limit} if limit else {}))
    files = container_resources(pod, pod.containers[0], REGULAR, settings).unified
    assert files.get("memory.high") == (None if high is None else str(high // 4096 * 4096))
    assert files["memory.low"] == (str(GI) if request_ else "0")


# -- OOM score -------------------------------------------------------------------------------


def score(pod: Pod, index: int = 0) -> int:
    return oom_score_adj(pod, pod.containers[index], REGULAR, 10 * GI)


def test_oom_score_counts_the_memory_of_claims() -> None:
    shared = claim("a", "b", mapping={"memory": "2Gi"})
    pod = pod_with([shared], sized("a", {"memory": "1Gi"}), sized("b", {"cpu": "1"}))
    assert (score(pod), score(pod, 1)) == (800, 900)
    assert score(make_pod(sized("a", {"memory": "1Gi"}))) == 900


def test_memory_of_claims_is_not_left_to_spread_over_containers() -> None:
    shared = claim("a", mapping={"memory": "2Gi"})
    whole = {"requests": {"memory": "5Gi"}}
    pod = pod_with([shared], sized("a", {"memory": "1Gi"}), "b", resources=whole)
    # 5 Gi without the 1 + 2 of a: each of the two gets one more
    assert (score(pod), score(pod, 1)) == (600, 900)


# -- admission, resizes, status --------------------------------------------------------------


def test_claims_count_where_a_pod_must_fit() -> None:
    pod = pod_with([BOTH], sized("a", {"cpu": "1"}), "b")
    assert pod_needs(pod) == {"cpu": 2300}


def test_claims_count_during_a_resize() -> None:
    reported = {"name": "a", "resources": {"requests": {"cpu": "3"}}}
    status = {"containerStatuses": [reported]}
    pod = pod_with([BOTH], sized("a", {"cpu": "1"}), "b", status=status)
    assert requests_in_force(pod) == numbers(cpu="4300m")


def running(name: str, limits: dict[str, str], requests: dict[str, str]) -> Any:
    resources = {"limits": limits, "requests": requests}
    return {"name": name, "state": {"running": {}}, "resources": resources}


def test_the_status_of_the_pod_contains_claims_once() -> None:
    one = {"cpu": "1", "memory": "1Gi"}
    pod = pod_with([BOTH], sized("a", one, one), sized("b", one, one))
    raised = {"cpu": "2250m", "memory": "1Gi"}  # as the runtime reports each container's limits
    statuses = {name: running(name, raised, one) for name in "ab"}
    supplied: Any = {name: {"requests": one, "limits": one} for name in "ab"}
    expected = {"cpu": "3300m", "memory": "2Gi"}
    for phase in ("Pending", "Running"):
        made = pod_level_resources(pod, statuses, None, phase, supplied)
        assert made["allocatedResources"] == expected
        assert made["resources"] == {"requests": expected, "limits": expected}


def test_the_status_of_a_best_effort_pod_shows_no_cpu_in_effect() -> None:
    pod = pod_with([BOTH, ALONE], "a", "b")
    made = pod_level_resources(pod, {}, None, "Running")
    assert made["allocatedResources"] == {"cpu": "1300m", "memory": "1034Mi"}
    assert made["resources"] == {"requests": {"memory": "1034Mi"}}


def test_limits_in_effect_are_not_taken_for_what_is_allocated() -> None:
    one = {"cpu": "1"}
    raised = running("a", {"cpu": "2250m"}, one)
    plain = running("c", {"cpu": "2"}, one)
    status = {"containerStatuses": [raised, plain]}
    pod = pod_with([BOTH], sized("a", one, one), sized("c", one, one), status=status)
    found = reported_resources(pod)
    assert found.containers["a"].get("limits") == one
    assert found.containers["c"].get("limits") == {"cpu": "2"}


# -- the gate --------------------------------------------------------------------------------


def test_without_the_gate_pods_arrive_without_the_field() -> None:
    obj = pod_with([BOTH], "a", status={"phase": "Running"}).object
    for events in (False, True):
        merge = Merge(claims_count=False)
        if events:
            merge.apply_event("api", "ADDED", obj, 1.0)
        else:
            merge.set_pods("api", [obj], 1.0)
        (pod,) = merge.pods("api").values()
        assert pod.status == {"phase": "Running"}
    kept = Merge()
    kept.set_pods("api", [obj], 1.0)
    assert [pod.status for pod in kept.pods("api").values()] == [obj["status"]]


@pytest.mark.parametrize("obj", [None, {}, {"status": None}, {"status": {"phase": "Running"}}])
def test_objects_without_the_field_are_left_alone(obj: Any) -> None:
    assert without_claims(obj) is obj
