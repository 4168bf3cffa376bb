"""How pod-level limits change, and when memory must not be reduced."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.pods.pod import ContainerKind, PodLimits
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.plan.resize import ContainerUpdate, ResizableResource
from kubeletpy.runtime_manager.plan.resize_steps import (
    applied,
    difference,
    pod_steps,
    refusal,
    sandbox_resources,
    shrinking_pod_memory,
)
from tests.kit.records import make_pod

NOW = PodLimits(shares=512, quota_us=50_000, period_us=100_000, memory=1000)


def limits(**fields: int | None) -> PodLimits:
    return PodLimits(**fields)


def cpu(shares: int, quota: int | None) -> PodLimits:
    return limits(shares=shares, quota_us=quota, period_us=100_000, memory=1000)


QUOTA_UP = limits(quota_us=80_000, period_us=100_000)
QUOTA_DOWN = limits(quota_us=20_000, period_us=100_000)


@pytest.mark.parametrize(
    ("desired", "before", "after"),
    [
        (cpu(512, 50_000), [], []),
        (cpu(1024, 80_000), [QUOTA_UP, limits(shares=1024)], []),
        (cpu(256, 20_000), [], [limits(shares=256), QUOTA_DOWN]),
        (cpu(256, 80_000), [QUOTA_UP], [limits(shares=256)]),
        (cpu(1024, 20_000), [limits(shares=1024)], [QUOTA_DOWN]),
        (cpu(512, None), [], []),
        (cpu(512, -1), [limits(quota_us=-1, period_us=100_000)], []),
    ],
)
def test_cpu(desired: PodLimits, before: list[PodLimits], after: list[PodLimits]) -> None:
    steps = pod_steps(ResizableResource.CPU, NOW, desired)
    assert list(steps.before) == before
    assert list(steps.after) == after


@pytest.mark.parametrize(
    ("now", "desired", "before", "after", "shrinks_to"),
    [
        (1000, 2000, [2000], [], 0),
        (1000, 500, [], [500], 500),
        (1000, 1000, [], [], 0),
        (1000, None, [], [], 0),
        (-1, 500, [], [500], 500),
        (1000, -1, [-1], [], 0),
    ],
)
def test_memory(
    now: int, desired: int | None, before: list[int], after: list[int], shrinks_to: int
) -> None:
    current, target = limits(memory=now, shares=5), limits(memory=desired, shares=7)
    steps = pod_steps(ResizableResource.MEMORY, current, target)
    assert [step.memory for step in steps.before] == before
    assert [step.memory for step in steps.after] == after
    assert all(step.shares is None for step in (*steps.before, *steps.after))
    assert shrinking_pod_memory(current, target) == shrinks_to


def test_a_step_changes_only_what_it_has() -> None:
    assert applied(NOW, QUOTA_UP) == limits(
        shares=512, quota_us=80_000, period_us=100_000, memory=1000
    )
    assert applied(NOW, PodLimits()) == NOW
    whole = PodLimits(shares=2, quota_us=3, period_us=4, memory=5)
    assert applied(NOW, whole) == applied(PodLimits(), whole) == whole


def test_the_text_of_a_difference() -> None:
    assert difference(NOW, NOW) == ""
    assert difference(NOW, limits(shares=512)) == ""
    unknown = difference(PodLimits(), limits(memory=5))
    assert unknown == "the pod's cgroup: memory limit none -> 5"
    assert difference(NOW, limits(shares=2, quota_us=-1, memory=5)) == (
        "the pod's cgroup: cpu shares 512 -> 2, cpu quota 50000 -> none, memory limit 1000 -> 5"
    )


def test_sandbox_resources_for_the_runtime() -> None:
    settings = RuntimeSettings()
    overhead, resources = sandbox_resources(make_pod(), NOW, settings)
    assert overhead.ByteSize() == 0
    assert (resources.cpu_shares, resources.cpu_quota, resources.cpu_period) == (
        512,
        50_000,
        100_000,
    )
    assert resources.memory_limit_in_bytes == 1000
    pod = make_pod(overhead={"cpu": "100m", "memory": "100"})
    overhead, resources = sandbox_resources(pod, NOW, settings)
    assert (overhead.cpu_shares, overhead.cpu_quota, overhead.memory_limit_in_bytes) == (
        *(102, 10_000),
        100,
    )
    assert (resources.cpu_shares, resources.cpu_quota) == (410, 40_000)
    assert resources.memory_limit_in_bytes == 900
    much = make_pod(overhead={"cpu": "10"})
    plenty = limits(shares=65_536, quota_us=6_400_000, period_us=100_000)
    _, resources = sandbox_resources(much, plenty, settings)
    assert (resources.cpu_shares, resources.cpu_quota) == (55_296, 5_400_000)
    unlimited = limits(shares=2, quota_us=-1, period_us=100_000, memory=-1)
    _, resources = sandbox_resources(pod, unlimited, settings)
    assert (resources.cpu_shares, resources.cpu_quota, resources.memory_limit_in_bytes) == (2, 0, 0)


def update(name: str, limit: int) -> ContainerUpdate:
    empty = cast(Any, {})
    return ContainerUpdate(
        name,
        ContainerKind.REGULAR,
        cast(Any, {"name": name}),
        ResizableResource.MEMORY,
        empty,
        True,
        limit,
    )


@pytest.mark.parametrize(
    ("pod_limit", "pod_usage", "usage", "expected"),
    [
        (0, 5000, 99, ""),
        (100, 99, 99, ""),
        (
            *(100, 100, 99),
            "cannot decrease memory limits: attempting to set pod memory limit (100) below "
            "current usage (100)",
        ),
        (
            *(0, 0, 100),
            'cannot decrease memory limits: attempting to set container "a" memory limit (100) '
            "below current usage (100)",
        ),
        (0, 0, None, 'cannot decrease memory limits: missing container "a" memory usage'),
        (
            *(100, 150, 100),
            "cannot decrease memory limits: [attempting to set pod memory limit (100) below "
            'current usage (150), attempting to set container "a" memory limit (100) below '
            "current usage (100)]",
        ),
    ],
)
def test_memory_in_use_is_not_taken_away(
    pod_limit: int, pod_usage: int, usage: int | None, expected: str
) -> None:
    shrinking = {"a": update("a", 100)}
    assert refusal(pod_limit, pod_usage, shrinking, {"a": usage}) == expected
    if pod_limit == 0 and usage is not None:
        assert refusal(0, 0, {}, {}) == ""


@pytest.mark.parametrize(
    ("supplied", "expected"),
    [
        (limits(), (0, 0, 0, 0)),
        (limits(shares=0), (0, 0, 0, 0)),
        (limits(quota_us=1, period_us=10, memory=1), (0, 1, 10, 1)),
        (limits(quota_us=0, memory=0), (0, 0, 0, 0)),
    ],
)
def test_limits_that_the_runtime_takes(supplied: PodLimits, expected: tuple[int, ...]) -> None:
    _, found = sandbox_resources(make_pod(), supplied, RuntimeSettings())
    assert (
        found.cpu_shares, found.cpu_quota, found.cpu_period, found.memory_limit_in_bytes
    ) == expected  # fmt: skip


def test_overhead_above_the_limits_leaves_the_minimum() -> None:
    pod = make_pod(overhead={"cpu": "1", "memory": "1Mi"})
    _, found = sandbox_resources(
        pod, limits(shares=100, quota_us=100, period_us=100_000, memory=100), RuntimeSettings()
    )
    assert (found.cpu_shares, found.cpu_quota, found.memory_limit_in_bytes) == (2, 0, 0)
    assert found == cri.LinuxContainerResources(cpu_shares=2, cpu_period=100_000)
    memory_only = make_pod(overhead={"memory": "10"})
    _, found = sandbox_resources(memory_only, limits(shares=100, memory=100), RuntimeSettings())
    assert (found.cpu_shares, found.memory_limit_in_bytes) == (100, 90)
