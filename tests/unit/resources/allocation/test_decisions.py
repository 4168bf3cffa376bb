"""Tables: which resizes are infeasible, the order of retries, how conditions change."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.base.kubernetes_version import SUPPORTED, KubernetesVersion
from kubeletpy.config.load import default_settings
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import requests_in_force
from kubeletpy.resources.allocation import conditions
from kubeletpy.resources.allocation.conditions import DEFERRED, ERROR, INFEASIBLE
from kubeletpy.resources.allocation.resources import (
    ResizeRules,
    WaitingResize,
    infeasible,
    order_resizes,
    requests_more,
)
from tests.unit.resources.allocation.pods import needs, pod

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
        (
            pod(a=needs("cpu=1 memory=2"), status=reported(a=(needs("cpu=3 memory=1"), {}))),
            3,
            2,
        ),
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
