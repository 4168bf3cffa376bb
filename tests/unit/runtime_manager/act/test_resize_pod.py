"""A resize carried out: the order of calls, the state after a failure, and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod, PodLimits, PodLimitsError
from kubeletpy.pods.runtime_status import ProbeOutcome, ProbeResults, ResizeOutcome, SyncAction
from kubeletpy.remote.errors import Code, CRIError, DeadlineExceeded, Unavailable, Unimplemented
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.runtime_manager.plan.resize_steps import applied
from kubeletpy.runtime_manager.protocol import NoPodCgroupLimits
from tests.kit.records import make_pod, sidecar
from tests.kit.runtime import FakeNode
from tests.unit.runtime_manager.plan.test_resize import RESTART_MEMORY, SMALL, res, sized

pytestmark = pytest.mark.virtual_time

MI = 1 << 20


@dataclass
class FakeLimits:
    """The cgroup of one pod; its writes are added to the list of the runtime's calls."""

    calls: list[str]
    is_desired: PodLimits
    now: PodLimits
    errors: dict[str, PodLimitsError] = field(default_factory=dict)
    used: int = MI

    def requested(self, pod: Pod) -> PodLimits | None:
        return self.is_desired

    def current(self, pod: Pod) -> PodLimits:
        if error := self.errors.get("current"):
            raise error
        return self.now

    def memory_usage(self, pod: Pod) -> int:
        return self.used

    async def write(self, pod: Pod, limits: PodLimits) -> None:
        parts = [
            f"{name}={value}"
            for name, value in (
                ("shares", limits.shares),
                ("quota", limits.quota_us),
                ("memory", limits.memory),
            )
            if value is not None
        ]
        self.calls.append(f"cgroup {' '.join(parts)}")
        await asyncio.sleep(0.001)
        if error := self.errors.get(parts[0].split("=")[0]):
            raise error
        self.now = applied(self.now, limits)


class Resized:
    """A node with a running pod whose limits can be changed."""

    def __init__(self, tmp_path: Path, **runtime: Any) -> None:
        self.node = FakeNode(tmp_path)
        self.runtime = self.node.runtime
        for name, value in runtime.items():
            setattr(self.runtime, name, value)
        start = PodLimits(100, 10_000, 100_000, 100 * MI)
        self.limits = FakeLimits(self.runtime.calls, start, start)
        self.records = ResourceState()
        self.node.options |= {"actuated": self.records, "pod_limits": self.limits}
        self.node.restart_agent()

    def request_limits(self, **limits: int) -> None:
        self.limits.is_desired = replace(self.limits.is_desired, **limits)

    async def sync(self, pod: Pod) -> Any:
        del self.runtime.calls[:]
        return await self.node.sync(pod)

    @property
    def changes(self) -> list[str]:
        """Changes, abbreviated: u = UpdateContainerResources, s = UpdatePodSandboxResources."""
        return [
            call.replace("update_container_resources container-", "u ").replace(
                "update_pod_sandbox_resources ", "s "
            )
            for call in self.runtime.changes()
        ]


def with_(resources: Any, **more: Any) -> Pod:
    return make_pod(sized("app", resources, **more))


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Resized]:
    return lambda **runtime: Resized(tmp_path, **runtime)


async def test_raised_for_the_pod_first(make: Callable[..., Resized]) -> None:
    node = make()
    await node.sync(with_(SMALL))
    assert not (await node.sync(with_(SMALL))).acted
    node.request_limits(shares=200, quota_us=20_000, memory=200 * MI)
    bigger = res("200m", "64Mi", "400m", "256Mi")
    result = await node.sync(with_(bigger))
    assert not result.failed, result.error_message()
    assert node.changes == [
        f"s shares=100 quota=10000 memory={200 * MI}",
        f"cgroup memory={200 * MI}",
        "u app-0",
        f"s shares=100 quota=20000 memory={200 * MI}",
        "cgroup quota=20000",
        f"s shares=200 quota=20000 memory={200 * MI}",
        "cgroup shares=200",
        "u app-0",
    ]
    (_, memory), (_, cpu) = node.runtime.updates
    assert (memory.memory_limit_in_bytes, memory.cpu_shares, memory.cpu_quota) == (
        *(256 * MI, 102),
        20_000,
    )
    assert (cpu.memory_limit_in_bytes, cpu.cpu_shares, cpu.cpu_quota) == (256 * MI, 204, 40_000)
    assert result.resize == ResizeOutcome(in_progress=False, done=("app",))
    assert [r.action for r in result.results] == [SyncAction.RESIZE_POD_IN_PLACE]
    assert result.acted, "the pod's status is read again"
    assert node.records.get("uid-1", "app") == bigger
    assert [(d.what, d.why) for d in result.decisions] == [
        (
            "resize container app",
            "memory limit 128Mi -> 256Mi, cpu request 100m -> 200m, cpu limit 200m -> 400m",
        )
    ]
    assert not (await node.sync(with_(bigger))).acted
    text = node.node.metrics.render().decode()
    assert 'kubelet_pod_resize_duration_milliseconds_count{success="true"} 1' in text


async def test_a_status_that_could_not_be_read_is_read_by_the_next_sync(
    make: Callable[..., Resized],
) -> None:
    """The next sync finds nothing to do, but the pod's status would keep the old limits."""
    node = make()
    await node.sync(with_(SMALL))
    bigger = res("200m", "64Mi", "400m", "256Mi")
    node.runtime.errors["container_status"] = Unavailable("ContainerStatus", "gone")
    failed = await node.sync(with_(bigger))
    assert failed.sync_error is not None
    assert (known := failed.status) is not None
    del node.runtime.errors["container_status"]
    result = await node.sync(with_(bigger))
    assert node.changes == []
    assert result.status is not None
    assert result.status.observed_at > known.observed_at
    assert not (await node.sync(with_(bigger))).acted, "and only once"


async def test_lowered_for_the_pod_last(make: Callable[..., Resized]) -> None:
    node = make()
    await node.sync(with_(SMALL))
    node.request_limits(shares=50, quota_us=5_000, memory=50 * MI)
    result = await node.sync(with_(res("50m", "32Mi", "100m", "64Mi")))
    assert not result.failed, result.error_message()
    assert node.changes == [
        "u app-0",
        f"s shares=100 quota=10000 memory={50 * MI}",
        f"cgroup memory={50 * MI}",
        "u app-0",
        f"s shares=50 quota=10000 memory={50 * MI}",
        "cgroup shares=50",
        f"s shares=50 quota=5000 memory={50 * MI}",
        "cgroup quota=5000",
    ]


async def test_one_container_grows_and_one_shrinks(make: Callable[..., Resized]) -> None:
    node = make()
    await node.sync(make_pod(sized("grows", SMALL), sized("shrinks", SMALL)))
    node.request_limits(quota_us=12_000)
    result = await node.sync(
        make_pod(
            sized("grows", res("100m", "64Mi", "300m", "128Mi")),
            sized("shrinks", res("100m", "64Mi", "150m", "128Mi")),
        )
    )
    assert node.changes == [
        f"s shares=100 quota=12000 memory={100 * MI}",
        "cgroup quota=12000",
        "u shrinks-0",
        "u grows-0",
    ]
    assert result.resize.done == ("shrinks", "grows")


async def test_a_restart_changes_the_pod_too(make: Callable[..., Resized]) -> None:
    node = make()
    await node.sync(with_(SMALL, resizePolicy=RESTART_MEMORY))
    node.request_limits(memory=200 * MI)
    bigger = res("100m", "64Mi", "200m", "256Mi")
    result = await node.sync(with_(bigger, resizePolicy=RESTART_MEMORY))
    assert not result.failed, result.error_message()
    assert node.changes == [
        "stop_container container-app-0 2",
        f"s shares=100 quota=10000 memory={200 * MI}",
        f"cgroup memory={200 * MI}",
        "create_container app",
        "start_container container-app-1",
    ]
    assert "Normal Killing: Container app resize requires restart" in node.node.events.seen
    assert node.runtime.configs["app"].linux.resources.memory_limit_in_bytes == 256 * MI
    assert result.resize == ResizeOutcome(in_progress=False)
    assert not (await node.sync(with_(bigger, resizePolicy=RESTART_MEMORY))).acted


async def test_the_pod_grows_before_a_resized_sidecar_starts(make: Callable[..., Resized]) -> None:
    node = make()

    def pod(resources: Any) -> Pod:
        side = sidecar("side", resources=resources, resizePolicy=RESTART_MEMORY)
        return make_pod("app", init=(side,))

    await node.sync(pod(SMALL))
    await node.sync(pod(SMALL))
    node.request_limits(memory=200 * MI)
    await node.sync(pod(res("100m", "64Mi", "200m", "256Mi")))
    order = [call.split(" ")[0] for call in node.changes]
    assert order == ["stop_container", "s", "cgroup", "create_container", "start_container"]


async def test_a_limit_that_the_kernel_refuses_is_corrected_in_the_runtime(
    make: Callable[..., Resized],
) -> None:
    node = make()
    await node.sync(with_(SMALL))
    node.request_limits(quota_us=20_000)
    node.limits.errors["quota"] = PodLimitsError("cgroup /x: Invalid argument")
    bigger = with_(res("100m", "64Mi", "400m", "128Mi"))
    result = await node.sync(bigger)
    assert node.changes == [
        f"s shares=100 quota=20000 memory={100 * MI}",
        "cgroup quota=20000",
        f"s shares=100 quota=10000 memory={100 * MI}",
    ]
    assert result.failed
    assert result.resize == ResizeOutcome(in_progress=True, error="cgroup /x: Invalid argument")
    assert result.results[0].error is not None
    assert result.results[0].error.code == "ResizePodInPlaceError"
    text = node.node.metrics.render().decode()
    assert 'kubelet_pod_resize_duration_milliseconds_count{success="false"} 1' in text
    node.limits.errors.clear()
    again = await node.sync(bigger)
    assert not again.failed
    assert again.resize == ResizeOutcome(in_progress=False, done=("app",))


async def test_the_runtime_refuses_the_pods_new_limits(make: Callable[..., Resized]) -> None:
    node = make()
    await node.sync(with_(SMALL))
    node.request_limits(memory=200 * MI)
    node.runtime.errors["update_pod_sandbox_resources"] = CRIError(
        "UpdatePodSandboxResources", "no"
    )
    result = await node.sync(with_(res("100m", "64Mi", "200m", "256Mi")))
    assert result.resize.error.startswith(
        "failed to notify runtime for UpdatePodSandboxResources (resource=memory); resize rejected:"
    )
    assert not any(change.startswith(("cgroup", "u ")) for change in node.changes)


@pytest.mark.parametrize(
    "error",
    [
        Unimplemented("UpdatePodSandboxResources", "unknown method"),
        CRIError("UpdatePodSandboxResources", "not implemented yet", code=Code.UNKNOWN),
    ],
)
async def test_a_runtime_without_the_call(make: Callable[..., Resized], error: CRIError) -> None:
    node = make()
    await node.sync(with_(SMALL))
    node.request_limits(memory=200 * MI)
    node.runtime.errors["update_pod_sandbox_resources"] = error
    result = await node.sync(with_(res("100m", "64Mi", "200m", "256Mi")))
    assert not result.failed
    assert node.changes[1:] == [f"cgroup memory={200 * MI}", "u app-0"]


async def test_an_update_fails_and_is_tried_again(make: Callable[..., Resized]) -> None:
    node = make()
    await node.sync(make_pod(sized("a", SMALL), sized("b", SMALL)))
    bigger = res("100m", "64Mi", "400m", "256Mi")
    pod = make_pod(sized("a", bigger), sized("b", bigger))
    node.runtime.errors["update_container_resources container-b-0"] = Unavailable("U", "away")
    result = await node.sync(pod)
    assert node.changes == ["u a-0", "u b-0"]
    assert result.resize.in_progress
    assert "away" in result.resize.error
    assert result.resize.done == ("a",)
    assert node.records.get("uid-1", "a") == res("100m", "64Mi", "200m", "256Mi")
    node.runtime.errors.clear()
    again = await node.sync(pod)
    assert not again.failed
    assert node.changes == ["u b-0", "u a-0", "u b-0"]
    assert node.records.get("uid-1", "a") == bigger


async def test_a_failed_resize_does_not_hold_up_starts(make: Callable[..., Resized]) -> None:
    node = make()
    await node.sync(make_pod(sized("a", SMALL), "b"))
    node.runtime.end("container-b-0", 1)
    node.runtime.errors["update_container_resources"] = Unavailable("U", "away")
    await node.node.refresh(make_pod())
    result = await node.sync(make_pod(sized("a", res("1", "64Mi", "1", "128Mi")), "b"))
    assert result.resize.in_progress
    assert "start_container container-b-1" in node.changes


async def test_lowering_that_was_cut_off_is_ended_later(make: Callable[..., Resized]) -> None:
    node = make()
    await node.sync(with_(SMALL))
    node.request_limits(memory=50 * MI)
    node.limits.errors["memory"] = PodLimitsError("busy")
    smaller = with_(res("100m", "32Mi", "200m", "64Mi"))
    assert (await node.sync(smaller)).resize.error == "busy"
    node.limits.errors.clear()
    again = await node.sync(smaller)
    assert node.changes == [
        f"s shares=100 quota=10000 memory={50 * MI}",
        f"cgroup memory={50 * MI}",
    ]
    assert again.resize == ResizeOutcome(in_progress=False)
    assert [d.what for d in again.decisions] == ["set the limits of the pod"]


async def test_an_agent_that_died_in_between(make: Callable[..., Resized]) -> None:
    node = make(tells_resources=True)
    await node.sync(with_(SMALL, resizePolicy=RESTART_MEMORY))
    smaller = with_(res("100m", "64Mi", "200m", "64Mi"), resizePolicy=RESTART_MEMORY)
    node.runtime.containers["container-app-0"].resources.linux.memory_limit_in_bytes = 64 * MI
    node.request_limits(memory=64 * MI)
    node.node.restart_agent()
    result = await node.sync(smaller)
    assert node.changes == [
        f"s shares=100 quota=10000 memory={64 * MI}",
        f"cgroup memory={64 * MI}",
    ]
    assert result.resize == ResizeOutcome(in_progress=False)
    assert node.records.get("uid-1", "app") == smaller.containers[0]["resources"]


async def test_limits_are_read_once_after_a_start(make: Callable[..., Resized]) -> None:
    node = make()
    await node.sync(with_(SMALL))
    node.node.restart_agent()
    assert not (await node.sync(with_(SMALL))).acted
    node.limits.now = replace(node.limits.now, memory=1)
    assert not (await node.sync(with_(SMALL))).acted


async def test_memory_in_use_stays(make: Callable[..., Resized]) -> None:
    node = make()
    await node.sync(with_(SMALL))
    node.request_limits(memory=64 * MI)
    node.runtime.memory_used["app"] = 70 * MI
    smaller = with_(res("100m", "64Mi", "100m", "64Mi"))
    result = await node.sync(smaller)
    assert node.changes == []
    assert result.resize == ResizeOutcome(
        in_progress=True,
        error='cannot decrease memory limits: attempting to set container "app" memory limit '
        f"({64 * MI}) below current usage ({70 * MI})",
    )
    node.runtime.memory_used["app"] = 3 * MI
    node.limits.used = 65 * MI
    assert "set pod memory limit" in (await node.sync(smaller)).resize.error
    node.limits.used = 3 * MI
    assert (await node.sync(smaller)).resize == ResizeOutcome(in_progress=False, done=("app",))


async def test_usage_that_can_not_be_read(make: Callable[..., Resized]) -> None:
    node = make()
    await node.sync(with_(SMALL))
    smaller = with_(res("100m", "64Mi", "200m", "64Mi"))
    node.runtime.memory_used["app"] = None
    result = await node.sync(smaller)
    assert result.resize.error == (
        'cannot decrease memory limits: missing container "app" memory usage'
    )
    node.runtime.errors["container_stats"] = DeadlineExceeded("ContainerStats", "slow")
    assert 'unable to read memory usage for pod "web' in (await node.sync(smaller)).resize.error
    node.limits.errors["current"] = PodLimitsError("unreadable")
    assert (await node.sync(smaller)).resize.error == "unreadable"
    assert node.changes == []


async def test_pods_without_cgroups_of_their_own(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, options={"pod_limits": NoPodCgroupLimits()})
    await node.sync(with_(SMALL))
    before = len(node.runtime.calls)
    result = await node.sync(with_(res("1", "64Mi", "1", "256Mi")))
    assert not result.failed
    assert [call.split(" ")[0] for call in node.runtime.calls[before:]] == [
        "update_container_resources",
        "update_container_resources",
        "container_status",
    ]


async def test_without_a_record_memory_is_set_without_touching_cpu(
    make: Callable[..., Resized],
) -> None:
    node = make()
    await node.sync(with_(SMALL))
    node.records.remove("uid-1")
    result = await node.sync(with_(SMALL))
    assert not result.failed
    (_, memory), (_, cpu) = node.runtime.updates
    assert (memory.cpu_shares, memory.cpu_quota, memory.cpu_period) == (0, 0, 0)
    assert memory.memory_limit_in_bytes == cpu.memory_limit_in_bytes == 128 * MI
    assert (cpu.cpu_shares, cpu.cpu_quota) == (102, 20_000)
    assert node.records.get("uid-1", "app") == SMALL
    assert not (await node.sync(with_(SMALL))).acted


async def test_a_canceled_sync_still_records_the_resources_that_it_requested(
    make: Callable[..., Resized],
) -> None:
    node = make(seconds={"update_container_resources": 5.0})
    await node.sync(with_(SMALL))
    bigger = with_(res("1", "64Mi", "1", "128Mi"))
    sync = asyncio.create_task(node.sync(bigger))
    await asyncio.sleep(1)
    sync.cancel()
    await asyncio.wait([sync])
    assert node.records.get("uid-1", "app") == SMALL
    await asyncio.sleep(5)
    assert node.records.get("uid-1", "app") == bigger.containers[0]["resources"]
    again = await node.sync(bigger)
    assert len(node.runtime.updates) == 1
    assert again.resize is None


async def test_a_terminating_pod_is_not_resized_further(make: Callable[..., Resized]) -> None:
    node = make()
    await node.sync(with_(SMALL))
    ending: list[bool] = []
    bigger = res("1", "64Mi", "1", "256Mi")
    node.runtime.seconds["update_container_resources"] = 1.0
    asyncio.get_running_loop().call_later(0.5, ending.append, True)
    del node.runtime.calls[:]
    result = await node.node.sync(with_(bigger), is_terminating=lambda: bool(ending))
    assert node.changes == ["u app-0"]
    assert result.resize == ResizeOutcome(in_progress=True, done=("app",))


async def test_pod_level_resources_are_recorded(make: Callable[..., Resized]) -> None:
    node = make()
    whole, bigger = res("1", "1Gi", "1", "1Gi"), res("2", "1Gi", "2", "1Gi")
    await node.sync(make_pod(sized("app", SMALL), resources=whole))
    assert node.records.get_pod_level("uid-1") == whole
    node.request_limits(quota_us=200_000)
    result = await node.sync(make_pod(sized("app", SMALL), resources=bigger))
    assert node.changes == [f"s shares=100 quota=200000 memory={100 * MI}", "cgroup quota=200000"]
    assert node.records.get_pod_level("uid-1") == bigger
    assert not result.resize.in_progress


async def test_a_resize_that_waits_is_reported_as_in_progress(make: Callable[..., Resized]) -> None:
    node = make()
    probe = {"exec": {"command": ["true"]}}

    def pod(resources: Any) -> Pod:
        return make_pod("app", init=(sidecar("side", resources=resources, startupProbe=probe),))

    bigger = res("1", "64Mi", "1", "128Mi")
    await node.sync(pod(SMALL))
    waits = await node.sync(pod(bigger))
    assert not waits.acted
    assert waits.resize == ResizeOutcome(in_progress=True)
    probes = ProbeResults(startup={"container-side-0": ProbeOutcome.SUCCESS})
    result = await node.node.sync(pod(bigger), probes=probes)
    assert result.resize == ResizeOutcome(in_progress=False, done=("side",))


async def test_a_pod_that_is_made_anew_finds_its_new_limits(make: Callable[..., Resized]) -> None:
    node = make()
    assert (await node.sync(with_(SMALL))).resize is None
    node.request_limits(memory=200 * MI)
    await node.runtime.stop_pod_sandbox("sandbox-web-0")
    await node.node.refresh(make_pod())
    result = await node.sync(with_(res("100m", "64Mi", "200m", "256Mi")))
    order = [call.split(" ")[0] for call in node.changes]
    made = order.index("run_pod_sandbox")
    assert order[made : made + 4] == ["run_pod_sandbox", "s", "cgroup", "create_container"]
    assert result.resize == ResizeOutcome(in_progress=False)
    assert "set the limits of the pod" in [d.what for d in result.decisions]
