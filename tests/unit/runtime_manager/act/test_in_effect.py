"""The limits of a pod's cgroup are read as seldom as possible, but whenever in doubt."""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod, PodLimits
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.runtime_manager.act.resize_pod import ResourcesInEffect
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.plan.resize import ResizePlan
from kubeletpy.runtime_manager.protocol import NoPodCgroupLimits
from tests.kit.records import container, has, make_pod, running

NEW = PodRuntimeStatus("uid-1", "web", "prod")
"""Runtime status of a pod for which nothing has been created."""


class Limits(NoPodCgroupLimits):
    """Cgroup limits of 2 shares; a pod with resources of its own should have 20."""

    def __init__(self) -> None:
        self.looks = 0

    def requested(self, pod: Pod) -> PodLimits:
        return PodLimits(shares=20 if pod.spec.get("resources") else 2)

    def current(self, pod: Pod) -> PodLimits:
        self.looks += 1
        return PodLimits(shares=2)


def test_pod_level_resources_added_to_a_running_pod_are_a_difference() -> None:
    limits = Limits()
    in_effect = ResourcesInEffect(ResourceState(), limits, RuntimeSettings())
    plain, status = make_pod(container("app")), has(running("app"))
    in_effect.pod_in_effect(plain, NEW)
    assert not in_effect.pod_in_effect(plain, status).pod_limits_differ
    assert limits.looks == 0, "its cgroup was made with what it is to have"
    supplied: api.ResourceRequirements = {"requests": {"cpu": "20m"}}
    whole = make_pod(container("app"), resources=supplied)
    found = in_effect.pod_in_effect(whole, status)
    assert found.pod_level is None
    assert found.pod_limits_differ == "the pod's cgroup: cpu shares 2 -> 20"
    in_effect.note(whole, ResizePlan(pod_level=supplied))
    in_effect.resized(whole.uid, True)
    assert not in_effect.pod_in_effect(whole, status).pod_limits_differ
    assert limits.looks == 1, "what is recorded is believed"


def test_limits_of_a_new_pod_with_pod_resources_are_not_read() -> None:
    limits = Limits()
    in_effect = ResourcesInEffect(ResourceState(), limits, RuntimeSettings())
    supplied: api.ResourceRequirements = {"requests": {"cpu": "20m"}}
    whole = make_pod(container("app"), resources=supplied)
    in_effect.pod_in_effect(whole, NEW)
    in_effect.note(whole, ResizePlan(pod_level=supplied))
    assert not in_effect.pod_in_effect(whole, has(running("app"))).pod_limits_differ
    assert limits.looks == 0
