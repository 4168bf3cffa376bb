"""Resources allocated to a pod, and the pod with an allocation applied."""

from __future__ import annotations

import copy
import json
from decimal import Decimal
from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.base.kubernetes_version import SUPPORTED, KubernetesVersion
from kubeletpy.config.load import default_settings
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import requests_in_force
from kubeletpy.resources.allocation import conditions
from kubeletpy.resources.allocation.conditions import DEFERRED, ERROR, INFEASIBLE, resize_message
from kubeletpy.resources.allocation.resources import (
    Infeasible,
    PodResources,
    ResizeRules,
    ResourceChange,
    WaitingResize,
    infeasible,
    never_resized,
    order_resizes,
    pod_level_changes,
    reported_resources,
    requested_resources,
    requests_more,
    resource_changes,
    same,
    with_resources,
)
from tests.kit.allocation import needs, pod
from tests.unit.resources.allocation.test_allocation_manager import SMALL, Node

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (None, None, True),
        (None, {}, True),
        ({}, needs(), True),
        (needs("cpu=1"), needs("cpu=1000m"), True),
        (needs("memory=1Gi"), needs("memory=1024Mi"), True),
        (needs("memory=1Gi"), needs("memory=1G"), False),
        (needs("cpu=1"), needs("cpu=2"), False),
        (needs("cpu=1"), needs("cpu=1 memory=1"), False),
        (needs("cpu=1"), needs("", "cpu=1"), False),
        (needs("cpu=x"), needs("cpu=y"), False),
    ],
)
def test_resources_are_compared_by_value(
    one: api.ResourceRequirements | None, other: api.ResourceRequirements | None, equal: bool
) -> None:
    assert same(one, other) is equal
    assert same(other, one) is equal


@pytest.mark.parametrize(
    ("supplied", "nothing"),
    [
        (pod(a={}), True),
        (pod(a=needs("ephemeral-storage=1Gi")), True),
        (pod(a={}, b=needs("cpu=1")), False),
        (pod(a=needs("", "memory=1Gi")), False),
        (pod(a={}, init={"i": needs("cpu=1")}), False),
        (pod(a={}, pod_level=needs("cpu=1")), False),
    ],
)
def test_a_pod_without_cpu_and_memory_is_never_resized(supplied: Pod, nothing: bool) -> None:
    assert never_resized(requested_resources(supplied)) is nothing


def test_a_pod_that_has_its_requests_is_not_copied() -> None:
    desired = pod(a=needs("cpu=1"), init={"i": needs("cpu=2")}, pod_level=needs("cpu=3"))
    assert with_resources(desired, requested_resources(desired)) is desired
    in_other_words = PodResources(
        {"a": needs("cpu=1000m"), "i": needs("cpu=2000m")}, needs("cpu=3000m")
    )
    assert with_resources(desired, in_other_words) is desired


def test_a_pod_has_its_allocation_instead_of_its_requests() -> None:
    desired = pod(
        a=needs("cpu=1", "memory=1Gi"),
        b=needs("cpu=5"),
        init={"i": needs("cpu=2")},
        more={"a": {"image": "x"}},
    )
    before = copy.deepcopy(desired.object)
    supplied = PodResources({"a": needs("cpu=500m"), "i": needs("cpu=4")}, None)
    made = with_resources(desired, supplied)
    assert [c["resources"] for c in made.containers] == [needs("cpu=500m"), needs("cpu=5")]
    assert made.init_containers[0]["resources"] == needs("cpu=4")
    assert made.containers[0]["image"] == "x"
    assert made.containers[1] is desired.containers[1]
    assert desired.object == before


@pytest.mark.parametrize("supplied", [None, needs("cpu=1")])
def test_pod_level_resources_are_those_allocated(supplied: api.ResourceRequirements | None) -> None:
    made = with_resources(pod(a={}, pod_level=needs("cpu=9")), PodResources({"a": {}}, supplied))
    assert made.spec.get("resources") == supplied
    assert ("resources" in made.spec) is (supplied is not None)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (needs("cpu=1"), needs("cpu=1000m"), []),
        (needs("cpu=1"), needs("cpu=2"), [ResourceChange("cpu", "requests", "increase")]),
        (needs("cpu=2"), needs("cpu=1"), [ResourceChange("cpu", "requests", "decrease")]),
        (needs("cpu=2"), needs("cpu=2", "memory=1"), [ResourceChange("memory", "limits", "add")]),
        (
            needs("cpu=2", "memory=1"),
            needs("cpu=2"),
            [ResourceChange("memory", "limits", "remove")],
        ),
        (needs("ephemeral-storage=1"), needs("ephemeral-storage=2"), []),
    ],
)
def test_resizes_requested_by_an_update(
    old: api.ResourceRequirements, new: api.ResourceRequirements, found: list[ResourceChange]
) -> None:
    assert list(resource_changes(pod(a=old, b={}), pod(a=new, b={}))) == found
    assert list(resource_changes(pod(a=old), pod(a=new, added=needs("cpu=1")))) == found


def test_a_change_of_pod_level_resources_is_detected() -> None:
    old = pod(a={}, pod_level=needs("cpu=1"))
    assert not pod_level_changes(old, pod(a={}, pod_level=needs("cpu=1000m")))
    assert pod_level_changes(old, pod(a={}, pod_level=needs("cpu=2")))


def test_the_allocation_is_read_from_the_status() -> None:
    desired = pod(
        a=needs("cpu=2 memory=2Gi", "cpu=3"),
        b=needs("cpu=5"),
        c=needs("cpu=1"),
        status={
            "containerStatuses": [
                {
                    "name": "a",
                    "allocatedResources": {"cpu": "1", "memory": "1Gi"},
                    "resources": needs("cpu=500m memory=1Gi", "cpu=2 memory=7Gi"),
                },
                {"name": "c", "resources": needs("cpu=2", "memory=9")},
                {"name": "gone", "resources": needs("cpu=9")},
            ]
        },
    )
    notified = reported_resources(desired)
    assert notified.containers == {
        "a": needs("cpu=1 memory=1Gi", "cpu=2"),
        "b": needs("cpu=5"),
        "c": needs("cpu=2"),
    }
    fresh = pod(a=needs("cpu=2"))
    assert with_resources(fresh, reported_resources(fresh)) is fresh


def test_events_contain_the_requested_resources() -> None:
    supplied = pod(a=needs("memory=1Gi cpu=1", "cpu=2"), b={}, init={"i": needs("cpu=1")})
    assert resize_message("Pod resize started", supplied, 4) == (
        'Pod resize started: {"initContainers":[{"name":"i","resources":{"requests":{"cpu":"1"}}}],'
        '"containers":[{"name":"a","resources":{"limits":{"cpu":"2"},'
        '"requests":{"cpu":"1","memory":"1Gi"}}},{"name":"b","resources":{}}],"generation":4}'
    )
    assert resize_message("W", pod(a={}), 1, 'no "room"').endswith(
        '"generation":1,"error":"no \\"room\\""}'
    )


METADATA: Any = {"name": "web", "namespace": "default", "uid": "u"}


def test_claims_and_init_containers_are_in_the_message_of_a_resize() -> None:
    resources: Any = {**needs("memory=1Gi cpu=1"), "claims": [{"name": "g"}]}
    claimed: Any = {"name": "c", "resources": resources}
    of = Pod({"metadata": METADATA, "spec": {"containers": [claimed]}})
    assert resize_message("Pod resize", of, 3, "no") == (
        'Pod resize: {"containers":[{"name":"c","resources":{"requests":{"cpu":"1",'
        '"memory":"1Gi"},"claims":[{"name":"g"}]}}],"generation":3,"error":"no"}'
    )
    init: Any = {**claimed, "name": "i"}
    both = Pod({"metadata": METADATA, "spec": {"containers": [claimed], "initContainers": [init]}})
    notified = json.loads(resize_message("x", both, 3).partition(": ")[2])
    assert list(notified) == ["initContainers", "containers", "generation"]


def test_pod_level_resources_are_read_from_the_status() -> None:
    def whole(status: Any) -> Any:
        spec: Any = {"containers": [{"name": "c"}], "resources": needs("cpu=1", "cpu=2 memory=1Gi")}
        return reported_resources(Pod({"metadata": METADATA, "spec": spec, "status": status})).pod

    reported = needs("cpu=500m memory=5Mi", "memory=512Mi")
    assert whole({}) == needs("cpu=1", "cpu=2 memory=1Gi")
    assert whole({"resources": reported}) == needs("cpu=500m", "cpu=2 memory=512Mi")
    unasked = reported_resources(pod(a={}, status={"resources": reported}))
    assert unasked.pod is None, "no resources are added"


def test_a_resize_of_the_pod_itself_is_named_with_its_values() -> None:
    desired: Any = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi", "cpu": "2"}}
    container: Any = {"name": "c"}
    spec: Any = {"containers": [container], "resources": desired}
    of = Pod({"metadata": METADATA, "spec": spec})
    notified = json.loads(resize_message("Pod resize completed", of, 3).partition(": ")[2])
    assert notified["resources"] == desired
    supplied = Pod({"metadata": METADATA, "spec": {"containers": [container]}})
    assert "resources" not in json.loads(resize_message("x", supplied, 3).partition(": ")[2])


# Tables: which resizes are infeasible, the order of retries, how conditions change.

SWAPPING = ResizeRules(may_swap=lambda pod, container: container["name"] == "swaps")
PINNED = ResizeRules(cpu_manager_policy="static", memory_manager_policy="Static")
BURST = needs("cpu=1 memory=1Gi", "cpu=2 memory=2Gi")
BOUNDED = ResizeRules(bound={"cpu": Decimal(2), "memory": Decimal(2**30)})
TWICE = needs("cpu=1 memory=2Gi")
FULL = needs("cpu=1 memory=1Gi", "cpu=1 memory=1Gi")


def policy(restart: str) -> dict[str, dict[str, object]]:
    return {"swaps": {"resizePolicy": [{"resourceName": "memory", "restartPolicy": restart}]}}


RESTARTS_FOR_MEMORY: dict[str, dict[str, object]] = {
    "swaps": {
        "resizePolicy": [
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "RestartContainer"},
        ]
    }
}


@pytest.mark.parametrize(
    ("rules", "allocated", "desired", "detail"),
    [
        (ResizeRules(), pod(a=BURST), pod(a=needs("cpu=5")), None),
        (ResizeRules(in_place=False), pod(a=BURST), pod(a=needs("cpu=5")), "feature_gate_off"),
        (
            ResizeRules(pod_level=False),
            pod(a={}, pod_level=needs("cpu=1")),
            pod(a={}, pod_level=needs("cpu=2")),
            "plr_feature_gate_off",
        ),
        (
            ResizeRules(pod_level=False),
            pod(a=needs("cpu=1"), pod_level=needs("cpu=1")),
            pod(a=needs("cpu=2"), pod_level=needs("cpu=1000m")),
            None,
        ),
        (
            ResizeRules(),
            pod(a={}, pod_level=needs("cpu=1")),
            pod(a={}, pod_level=needs("cpu=2")),
            None,
        ),
        (SWAPPING, pod(swaps=BURST), pod(swaps=needs("cpu=9 memory=1024Mi")), None),
        (SWAPPING, pod(swaps=BURST), pod(swaps=needs("cpu=1 memory=2Gi")), "swap_limitation"),
        (
            # only by what it is to have may it swap, or only by what it has
            ResizeRules(may_swap=lambda pod, container: container["resources"] == TWICE),
            pod(a=BURST),
            pod(a=TWICE),
            "swap_limitation",
        ),
        (
            ResizeRules(may_swap=lambda pod, container: container["resources"] == BURST),
            pod(a=BURST),
            pod(a=TWICE),
            "swap_limitation",
        ),
        (SWAPPING, pod(other=BURST), pod(other=needs("cpu=1 memory=2Gi")), None),
        (
            SWAPPING,
            pod(swaps=BURST, more=policy("RestartContainer")),
            pod(swaps=needs("memory=2Gi"), more=policy("RestartContainer")),
            None,
        ),
        (
            SWAPPING,
            pod(swaps=BURST, more=RESTARTS_FOR_MEMORY),
            pod(swaps=needs("memory=2Gi"), more=RESTARTS_FOR_MEMORY),
            None,
        ),
        (
            SWAPPING,
            pod(swaps=BURST, more=policy("NotRequired")),
            pod(swaps=needs("memory=2Gi"), more=policy("NotRequired")),
            "swap_limitation",
        ),
        (
            PINNED,
            pod(a=FULL),
            pod(a=needs("cpu=2 memory=1Gi", "cpu=2 memory=1Gi")),
            "guaranteed_pod_cpu_manager_static_policy",
        ),
        (
            PINNED,
            pod(a=FULL),
            pod(a=needs("cpu=1 memory=2Gi", "cpu=1 memory=2Gi")),
            "guaranteed_pod_memory_manager_static_policy",
        ),
        (PINNED, pod(a=BURST), pod(a=needs("cpu=2 memory=2Gi", "cpu=4 memory=4Gi")), None),
        (
            ResizeRules(cpu_manager_policy="static"),
            pod(a=FULL),
            pod(a=needs("cpu=1 memory=2Gi", "cpu=1 memory=2Gi")),
            None,
        ),
        (
            ResizeRules(memory_manager_policy="Static"),
            pod(a=FULL),
            pod(a=needs("cpu=2 memory=1Gi", "cpu=2 memory=1Gi")),
            None,
        ),
        (BOUNDED, pod(a=BURST), pod(a=needs("cpu=2 memory=1Gi")), None),
        (
            BOUNDED,
            pod(a=BURST, b=needs("cpu=1")),
            pod(a=needs("cpu=1001m"), b=needs("cpu=1")),
            "insufficient_node_allocatable",
        ),
    ],
)
def test_infeasible_resizes(
    rules: ResizeRules, allocated: Pod, desired: Pod, detail: str | None
) -> None:
    found = infeasible(desired, allocated, rules)
    assert (found.detail if found else None) == detail
    assert found is None or found.message


@pytest.mark.parametrize(
    ("desired", "message"),
    [
        ("cpu=4", "cpu, requested: 4000, capacity: 2000"),
        ("cpu=4 memory=1025Mi", "memory, requested: 1074790400, capacity: 1073741824"),
    ],
)
def test_the_text_of_a_resize_beyond_the_node(desired: str, message: str) -> None:
    found = infeasible(pod(a=needs(desired)), pod(a=BURST), BOUNDED)
    assert found is not None
    assert found.message == f"Node didn't have enough capacity: {message}"


def test_only_the_kubelet_of_1_35_compares_a_resize_with_the_node() -> None:
    def bounded(version: KubernetesVersion) -> bool:
        settings = default_settings(version)
        rules = ResizeRules.from_settings(settings, lambda *_: False, BOUNDED.bound, cgroup_v2=True)
        return bool(rules.bound)

    assert [str(each) for each in SUPPORTED if bounded(each)] == ["1.35"]


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        (needs(), needs("memory=1"), True),
        (needs("memory=1"), needs("memory=1"), False),
        (needs("memory=1"), needs(), False),
        (needs("cpu=2 memory=1"), needs("cpu=1 memory=2"), True),
    ],
)
def test_resizes_that_request_more(
    old: api.ResourceRequirements, new: api.ResourceRequirements, more: bool
) -> None:
    assert requests_more(pod(a=new), pod(a=old)) is more


def test_the_order_of_the_queue() -> None:
    has = needs("cpu=1 memory=1Gi", "cpu=4 memory=4Gi")
    full = needs("cpu=1 memory=1Gi", "cpu=1 memory=1Gi")

    def waits(
        uid: str, wants: str, since: str, priority: int = 0, guaranteed: bool = False
    ) -> WaitingResize:
        limits = wants if guaranteed else "cpu=4 memory=4Gi"
        new = pod(uid, priority=priority, a=needs(wants, limits))
        return WaitingResize(new, pod(uid, priority=priority, a=full if guaranteed else has), since)

    more, less = "cpu=2 memory=1Gi", "cpu=500m memory=1Gi"
    queue = [
        waits("new", more, ""),
        waits("late", more, "2026-01-01T00:00:02Z"),
        waits("early", more, "2026-01-01T00:00:01Z"),
        waits("guaranteed", more, "2026-01-01T00:00:09Z", guaranteed=True),
        waits("important", more, "", priority=5),
        waits("mixed", "cpu=500m memory=2Gi", "2026-01-01T00:00:00Z"),
        waits("less", less, "", priority=-5),
        waits("limits", "cpu=1 memory=1Gi", ""),
    ]
    assert [one.desired.uid for one in order_resizes(queue)] == [
        "limits",
        "less",
        "important",
        "guaranteed",
        "mixed",
        "early",
        "late",
        "new",
    ]


T1, T2 = "2001-09-09T01:46:40Z", "2001-09-09T01:46:50Z"
NOW1, NOW2 = 1_000_000_000.0, 1_000_000_010.0


def test_a_pending_resize_moves_when_its_reason_changes() -> None:
    first, changes = conditions.pending(None, DEFERRED, "no cpu", 2, now=NOW1)
    assert changes
    assert first == {
        "type": "PodResizePending",
        "status": "True",
        "reason": "Deferred",
        "message": "no cpu",
        "observedGeneration": 2,
        "lastProbeTime": T1,
        "lastTransitionTime": T1,
    }
    other_message, changes = conditions.pending(first, DEFERRED, "no memory", 2, now=NOW2)
    assert not changes
    assert (other_message["message"], other_message["lastTransitionTime"]) == ("no memory", T1)
    newer, changes = conditions.pending(first, DEFERRED, "no cpu", 3, now=NOW2)
    assert changes
    assert (newer["observedGeneration"], newer["lastTransitionTime"]) == (3, T1)
    never, changes = conditions.pending(first, INFEASIBLE, "never", 2, now=NOW2)
    assert changes
    assert never["lastTransitionTime"] == T2


def test_a_resize_in_progress_keeps_its_generation_and_its_error() -> None:
    began, changes = conditions.in_progress(None, "", "", 2, now=NOW1)
    assert changes
    assert "reason" not in began
    assert conditions.in_progress(began, "", "", 3, now=NOW2) == (began, False)
    failed, changes = conditions.in_progress(began, ERROR, "no", 3, now=NOW2)
    assert changes
    assert (failed["reason"], failed["message"]) == ("Error", "no")
    assert (failed["observedGeneration"], failed["lastTransitionTime"]) == (2, T2)
    assert conditions.in_progress(failed, "", "", 4, now=NOW2 + 9) == (failed, False)
    assert conditions.in_progress(failed, ERROR, "no", 4, now=NOW2 + 9) == (failed, False)
    again, changes = conditions.in_progress(failed, ERROR, "still no", 4, now=NOW2 + 9)
    assert changes
    assert again["lastTransitionTime"] == T2


def reported(**containers: tuple[api.ResourceRequirements, dict[str, str]]) -> dict[str, Any]:
    return {
        "containerStatuses": [
            {"name": name, "resources": actual, "allocatedResources": supplied}
            for name, (actual, supplied) in containers.items()
        ]
    }


@pytest.mark.parametrize(
    ("supplied", "cpu", "memory"),
    [
        (pod(a=needs("cpu=1 memory=2")), 1, 2),
        (pod(a=needs("cpu=1 memory=2"), status=reported(a=(needs("cpu=3 memory=1"), {}))), 3, 2),
        (
            pod(
                a=needs("cpu=1 memory=2"),
                status=reported(a=(needs("cpu=500m"), {"memory": "5", "cpu": "1000m"})),
            ),
            1,
            5,
        ),
        (pod(a=needs("cpu=1"), status=reported(a=({}, {"cpu": "9"}))), 9, 0),
        (
            pod(
                a=needs("cpu=64 memory=9"),
                status={
                    **reported(a=(needs("cpu=1 memory=1"), {"cpu": "2"})),
                    "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
                },
            ),
            2,
            1,
        ),
        (
            pod(
                a=needs("cpu=64"),
                status={
                    **reported(a=(needs("cpu=1"), {"cpu": "2"})),
                    "conditions": [{"type": "PodResizePending", "reason": "Deferred"}],
                },
            ),
            64,
            0,
        ),
        (pod(a={}, b=needs("cpu=1"), status=reported(a=(needs("cpu=2"), {}))), 3, 0),
        (
            pod(
                a={},
                pod_level=needs("cpu=2"),
                status={**reported(a=({}, {})), "resources": needs("cpu=4")},
            ),
            4,
            0,
        ),
    ],
)
def test_requests_in_force_are_the_highest_current_ones(
    supplied: Pod, cpu: int, memory: int
) -> None:
    found = requests_in_force(supplied)
    assert (found.get("cpu", 0), found.get("memory", 0)) == (cpu, memory)


# Resizes of volumes in memory: allocated with the rest of a resize, or infeasible on cgroup v1.

ON = ResizeRules(memory_volumes=True)
ON_V1 = ResizeRules(memory_volumes=True, cgroup_v2=False)
V1 = Infeasible(
    "cgroups_v1_unsupported", "Memory-backed emptyDir volume resize is not supported on cgroups v1"
)


def sized(size: str, cpu: str = "cpu=1", generation: int = 1) -> Pod:
    made = pod(a=needs(cpu) if cpu else {}, generation=generation)
    volumes = [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]
    return Pod({**made.object, "spec": {**made.spec, "volumes": volumes}})  # type: ignore[typeddict-item]


def size(node: Node) -> str:
    volumes = node.manager.allocated(node.pods["u1"]).spec["volumes"]
    return str(volumes[0]["emptyDir"]["sizeLimit"])


@pytest.mark.parametrize(
    ("rules", "new", "verdict"),
    [
        (ON, sized("2Mi"), None),
        (ON_V1, sized("2Mi"), V1),
        (ON_V1, sized("1024Ki"), None),
        (ON_V1, sized("1Mi", "cpu=2"), None),
        (ResizeRules(cgroup_v2=False), sized("2Mi"), None),
    ],
    ids=["v2", "v1", "the same amount", "other resources", "gate off"],
)
def test_sizes_can_be_changed_on_cgroup_v2_only(
    rules: ResizeRules, new: Pod, verdict: Infeasible | None
) -> None:
    assert infeasible(new, sized("1Mi"), rules) == verdict


async def test_a_size_is_allocated_and_reported() -> None:
    node = Node(rules=ON)
    node.admit(sized("1Mi"))
    node.update(sized("2Mi", generation=2))
    assert size(node) == "2Mi"
    assert node.conditions() == {"PodResizeInProgress": ""}
    assert node.reasons == ["ResizeStarted"]
    assert node.state.volumes("u1") == {"v": "2Mi"}


async def test_a_size_is_deferred_with_its_resize() -> None:
    node = Node(rules=ON)
    node.admit(sized("1Mi"))
    node.room = False
    node.update(sized("2Mi", "cpu=2", generation=2))
    assert size(node) == "1Mi"
    assert node.conditions() == {"PodResizePending": "Deferred"}
    node.room = True
    node.manager.removed(["u2"])
    assert (size(node), node.cpu()) == ("2Mi", "2")


async def test_on_cgroup_v1_a_size_is_infeasible_and_counted() -> None:
    node = Node(rules=ON_V1)
    node.admit(sized("1Mi"))
    node.update(sized("2Mi", generation=2))
    assert size(node) == "1Mi"
    assert node.conditions() == {"PodResizePending": "Infeasible"}
    name = "kubelet_pod_infeasible_resizes_total"
    assert node.counted(name, reason_detail="cgroups_v1_unsupported") == 1


async def test_a_pod_without_cpu_and_memory_can_resize_its_volumes() -> None:
    node = Node(rules=ON)
    node.admit(sized("1Mi", ""))
    assert node.state.find("u1") == PodResources({"a": {}}, None, {"v": "1Mi"})
    node.update(sized("2Mi", "", generation=2))
    assert size(node) == "2Mi"


async def test_a_record_older_than_the_gate_gets_sizes() -> None:
    node = Node(rules=ON)
    node.state.put("u1", PodResources({"a": SMALL}))
    node.admit(sized("1Mi"))
    assert node.state.find("u1") == PodResources({"a": SMALL}, None, {"v": "1Mi"})


async def test_without_the_gate_sizes_are_neither_recorded_nor_a_resize() -> None:
    node = Node()
    node.admit(sized("1Mi"))
    assert node.state.find("u1") == PodResources({"a": SMALL})
    node.update(sized("2Mi", generation=2))
    assert node.conditions() == {}
    assert not node.events
