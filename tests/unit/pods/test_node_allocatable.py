"""Resources that claims add to a pod, and where they count (docs/reference/behaviour.md, k5)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from kubeletpy.base.api.quantity import parse, parse_quantity
from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import ContainerKind, Pod
from kubeletpy.pods.resources import (
    FIELD,
    MemoryQoS,
    QoSClass,
    added_to_container,
    added_to_pod,
    changed_limits,
    compute_qos_class,
    is_critical,
    is_node_critical,
    memory_share,
    pod_limits,
    pod_requests,
    qos_class,
    raised_by_claims,
    requests_in_force,
    same_size,
    size_limits,
    with_size_limits,
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
from tests.kit.records import container, make_pod, sidecar

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


# How large a pod may be while it is resized (docs/reference/behaviour.md, c10; KEP-1287).

INFEASIBLE = {"type": "PodResizePending", "reason": "Infeasible"}


def in_force_sized(requests: dict[str, str] | None) -> dict[str, Any]:
    return {} if requests is None else {"resources": {"requests": requests}}


def status(
    name: str, actual: dict[str, str] | None, allocated: dict[str, str] | None = None
) -> dict[str, Any]:
    reported: dict[str, Any] = {"name": name}
    if actual is not None:
        reported["resources"] = {"requests": actual}
    if allocated is not None:
        reported["allocatedResources"] = allocated
    return reported


def with_status(pod: Pod, **of: Any) -> Pod:
    return Pod({**pod.object, "status": of})  # type: ignore[typeddict-item]


def amounts(**of: int) -> dict[str, Decimal]:
    return {name.replace("_", "/"): Decimal(amount) for name, amount in of.items()}


@pytest.mark.parametrize(
    ("requested", "reported", "conditions", "expected"),
    [
        # the greatest of the requested, allocated and actual amounts
        ({"cpu": "1"}, status("app", {"cpu": "2"}, {"cpu": "3"}), [], {"cpu": 3}),
        ({"cpu": "1"}, status("app", {"cpu": "2"}, {"cpu": "1"}), [], {"cpu": 2}),
        ({"cpu": "4"}, status("app", {"cpu": "2"}, {"cpu": "3"}), [], {"cpu": 4}),
        ({"cpu": "1"}, status("app", {"cpu": "1000m"}), [], {"cpu": 1}),
        ({}, status("app", {"cpu": "1", "memory": "0"}), [], {"cpu": 1, "memory": 0}),
        (None, status("app", {"cpu": "1"}), [], {"cpu": 1}),
        (None, status("app", {}), [], {}),
        (
            {"cpu": "1", "memory": "9"},
            status("app", {"cpu": "2", "memory": "5"}),
            [],
            {"cpu": 2, "memory": 9},
        ),
        # only cpu and memory can be resized
        ({"x/gpu": "1"}, status("app", {"x/gpu": "2"}), [], {"x_gpu": 1}),
        # requests that an infeasible resize raised do not count, other resources do
        (
            {"cpu": "4", "x/gpu": "1"},
            status("app", {"cpu": "2"}, {"cpu": "1"}),
            [INFEASIBLE],
            {"cpu": 2, "x_gpu": 1},
        ),
        (
            {"cpu": "4"},
            status("app", {"cpu": "2"}),
            [{**INFEASIBLE, "reason": "Deferred"}, {**INFEASIBLE, "type": "Other"}],
            {"cpu": 4},
        ),
        # what is allocated is in effect as far as is known
        ({"cpu": "1"}, status("app", None, {"cpu": "3"}), [], {"cpu": 3}),
        # its actual resources are unknown
        ({"cpu": "1"}, status("other", {"cpu": "3"}), [], {"cpu": 1}),
        ({"cpu": "1"}, status("other", {"cpu": "3"}), [INFEASIBLE], {"cpu": 1}),
    ],
)
def test_a_container(
    requested: dict[str, str] | None, reported: Any, conditions: list[Any], expected: dict[str, int]
) -> None:
    pod = make_pod(container("app", **in_force_sized(requested)))
    supplied = with_status(pod, containerStatuses=[reported], conditions=conditions)
    assert requests_in_force(supplied) == amounts(**expected)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # the second gets what the first gives up: neither sum is larger than 3
        (status("a", {"cpu": "2"}, {"cpu": "1"}), status("b", {"cpu": "1"}, {"cpu": "2"}), 3),
        # both shrink, but the runtime has not applied it yet
        (status("a", {"cpu": "2"}, {"cpu": "1"}), status("b", {"cpu": "4"}, {"cpu": "2"}), 6),
    ],
)
def test_sums_of_containers_are_compared(first: Any, second: Any, expected: int) -> None:
    pod = make_pod(
        container("a", **in_force_sized({"cpu": "1"})),
        container("b", **in_force_sized({"cpu": "2"})),
    )
    supplied = with_status(pod, containerStatuses=[first, second])
    assert requests_in_force(supplied) == amounts(cpu=expected)


def test_statuses_belong_to_init_containers_or_to_others() -> None:
    pod = make_pod(
        container("app", **in_force_sized({"cpu": "1"})),
        init=[
            container("first", **in_force_sized({"cpu": "1"})),
            sidecar("side", **in_force_sized({"cpu": "1"})),
        ],
    )
    supplied = with_status(
        pod,
        containerStatuses=[status("app", {"cpu": "1"}), status("side", {"cpu": "9"})],
        initContainerStatuses=[status("first", {"cpu": "2"}), status("side", {"cpu": "3"})],
    )
    assert requests_in_force(supplied) == amounts(cpu=4)
    larger = [status("first", {"cpu": "5"}), status("side", {"cpu": "3"})]
    assert requests_in_force(with_status(pod, initContainerStatuses=larger)) == amounts(cpu=5)


@pytest.mark.parametrize(
    ("requested", "reported", "allocated", "expected"),
    [
        ({"cpu": "1"}, {"requests": {"cpu": "2"}}, None, {"cpu": 2}),
        ({"cpu": "1"}, {"requests": {"cpu": "2"}}, {"cpu": "3"}, {"cpu": 3}),
        ({"cpu": "1"}, {"limits": {}}, {"cpu": "3"}, {"cpu": 3}),
        ({"cpu": "1"}, {"requests": {"memory": "2"}}, None, {"cpu": 1}),
        ({"cpu": "1"}, None, {"cpu": "3"}, {"cpu": 1}),
        ({}, {"requests": {"cpu": "2"}}, None, {}),
    ],
)
def test_pod_level_resources(
    requested: dict[str, str], reported: Any, allocated: Any, expected: dict[str, int]
) -> None:
    pod = make_pod("app", resources={"requests": requested, "limits": {"cpu": "8"}})
    of = {"containerStatuses": [status("app", None)], "resources": reported}
    supplied = with_status(pod, **of, allocatedResources=allocated)
    assert requests_in_force(supplied) == amounts(**expected)


# The QoS class by the spec (docs/reference/behaviour.md, k1).

QOS_BOTH = {"cpu": "1", "memory": "1Gi"}


def resources(requests: Any = None, limits: Any = None) -> dict[str, Any]:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}}


ROWS = [
    ("nothing", [{}], "BestEffort"),
    ("zero-is-nothing", [resources({"cpu": "0"}, {"memory": "0"})], "BestEffort"),
    ("other-resources-do-not-count", [resources({"example.com/gpu": "1"})], "BestEffort"),
    ("equal", [resources(QOS_BOTH, QOS_BOTH)], "Guaranteed"),
    (
        "equal-in-other-words",
        [resources({"cpu": "1000m", "memory": "1024Mi"}, QOS_BOTH)],
        "Guaranteed",
    ),
    ("only-limits-without-defaulting", [resources({}, QOS_BOTH)], "Burstable"),
    ("request-below-limit", [resources({"cpu": "500m", "memory": "1Gi"}, QOS_BOTH)], "Burstable"),
    ("only-cpu", [resources({"cpu": "1"}, {"cpu": "1"})], "Burstable"),
    ("one-of-two", [resources(QOS_BOTH, QOS_BOTH), {}], "Burstable"),
    ("the-other-of-two", [{}, resources(QOS_BOTH, QOS_BOTH)], "Burstable"),
    ("two-of-two", [resources(QOS_BOTH, QOS_BOTH), resources(QOS_BOTH, QOS_BOTH)], "Guaranteed"),
    ("only-a-request", [resources({"memory": "1"})], "Burstable"),
]


@pytest.mark.parametrize(("specs", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_class_by_containers(specs: list[dict[str, Any]], expected: str) -> None:
    pod = make_pod(*(container(f"c{i}", **spec) for i, spec in enumerate(specs)))
    assert compute_qos_class(pod) == expected


def test_init_containers_count() -> None:
    full = container("app", **resources(QOS_BOTH, QOS_BOTH))
    assert compute_qos_class(make_pod(full, init=("init",))) is QoSClass.BURSTABLE
    init = container("init", **resources(QOS_BOTH, QOS_BOTH))
    assert compute_qos_class(make_pod(full, init=(init,))) is QoSClass.GUARANTEED


@pytest.mark.parametrize(
    ("pod_level", "expected"),
    [
        ({"requests": QOS_BOTH, "limits": QOS_BOTH}, "Guaranteed"),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"memory": "1Gi"}}, "Burstable"),
        # an entry without amounts does not decide: the container requests cpu
        ({}, "Burstable"),
        ({"requests": {}}, "Burstable"),
        ({"limits": {}, "requests": None}, "Burstable"),
        ({"requests": {"example.com/gpu": "1"}}, "Burstable"),
        # huge pages alone do not raise the class above BestEffort
        ({"limits": {"hugepages-2Mi": "2Mi"}}, "BestEffort"),
    ],
)
def test_pod_level_resources_stand_alone(pod_level: dict[str, Any], expected: str) -> None:
    pod = make_pod(container("app", **resources({"cpu": "1"})), resources=pod_level)
    assert compute_qos_class(pod) == expected


def test_a_settled_class_is_kept_and_nonsense_is_not() -> None:
    pod = make_pod()
    pod.object["status"] = {"qosClass": "Guaranteed"}
    assert qos_class(pod) is QoSClass.GUARANTEED
    pod.object["status"] = {"qosClass": "Platinum"}
    assert qos_class(pod) is QoSClass.BEST_EFFORT


def test_malformed_quantity() -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        compute_qos_class(make_pod(container("app", **resources({"cpu": "lots"}))))


def test_critical_pods() -> None:
    assert is_critical(make_pod(priority=2_000_000_000))
    assert not is_critical(make_pod(priority=1_999_999_999))
    static = {"annotations": {"kubernetes.io/config.source": "file"}}
    assert is_critical(make_pod(metadata=static))
    assert is_critical(make_pod(metadata={"annotations": {"kubernetes.io/config.mirror": "h"}}))
    node_class: dict[str, Any] = {"priorityClassName": "system-node-critical"}
    assert is_node_critical(make_pod(priority=2_000_001_000, **node_class))
    assert not is_node_critical(make_pod(priority=5, **node_class))
    assert not is_node_critical(make_pod(priority=2_000_001_000))


# Sizes of volumes in memory: which are limited, what changes, and pods with other sizes.


def volume(name: str, **source: Any) -> Any:
    return {"name": name, "emptyDir": source}


def pod(*volumes: Any) -> Pod:
    metadata: Any = {"name": "p", "namespace": "n", "uid": "u"}
    return Pod(
        {"metadata": metadata, "spec": {"containers": [{"name": "c"}], "volumes": list(volumes)}}
    )


@pytest.mark.parametrize(
    ("one", "limited"),
    [
        (volume("v", medium="Memory", sizeLimit="1Gi"), True),
        (volume("v", medium="Memory"), False),
        (volume("v", medium="Memory", sizeLimit="0"), False),
        (volume("v", medium="Memory", sizeLimit=None), False),
        (volume("v", sizeLimit="1Gi"), False),
        (volume("v", medium="HugePages", sizeLimit="1Gi"), False),
        ({"name": "v", "configMap": {"name": "c"}}, False),
    ],
)
def test_only_volumes_in_memory_with_a_limit_count(one: JSON, limited: bool) -> None:
    assert size_limits(pod(one)) == ({"v": "1Gi"} if limited else {})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("1Gi", "1Gi", True), ("1Gi", "1024Mi", True), ("1Gi", "1G", False), ("x", "1", False)],
)
def test_sizes_are_compared_by_amount(one: str, other: str, same: bool) -> None:
    assert same_size(one, other) is same


def test_only_volumes_of_both_pods_change() -> None:
    before, after = {"a": "1Mi", "b": "1Mi", "c": "1Mi"}, {"a": "2Mi", "b": "1024Ki", "d": "1"}
    assert changed_limits(before, after) == {"a": "2Mi"}


def test_a_pod_with_other_sizes_shares_the_rest() -> None:
    memory, disk = volume("m", medium="Memory", sizeLimit="1Mi"), volume("d", sizeLimit="1Mi")
    one = pod(memory, disk)
    made = with_size_limits(one, {"m": "2Mi", "d": "2Mi", "gone": "1"})
    assert made == [volume("m", medium="Memory", sizeLimit="2Mi"), disk]
    assert made is not None
    assert made[1] is disk
    assert memory["emptyDir"]["sizeLimit"] == "1Mi"
    assert with_size_limits(one, {"m": "1024Ki"}) is None
    assert with_size_limits(one, {}) is None
