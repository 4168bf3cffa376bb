"""Stopping: grace periods, the order of sidecars, hooks, and leftovers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.pod import MAX_GRACE_S, Pod
from kubeletpy.pods.runtime_status import ContainerState, KillReason, PodRuntimeStatus
from kubeletpy.remote.errors import CRIError
from kubeletpy.runtime_manager.act.stop_container import stop_prerequisites
from kubeletpy.runtime_manager.plan.grace import base_grace, container_grace, remaining
from kubeletpy.runtime_manager.protocol import HookFailed
from tests.kit.records import container, make_pod, sidecar
from tests.kit.runtime import FakeNode

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(
    ("deletion", "probe", "termination", "expected"),
    [
        (5, 10, 30, 5),
        (0, 10, 30, 0),
        (None, 10, 30, 10),
        (None, None, 30, 30),
        (None, None, None, 2),
        (-3, None, None, 0),
        (2**62, None, None, MAX_GRACE_S),
        (None, 2**63 - 1, None, MAX_GRACE_S),
        (None, None, 2**62, MAX_GRACE_S),
    ],
)
def test_base_grace(
    deletion: int | None, probe: int | None, termination: int | None, expected: int
) -> None:
    assert base_grace(deletion, probe, termination) == expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (KillReason.LIVENESS_PROBE, 11),
        (KillReason.STARTUP_PROBE, 12),
        (KillReason.DEFINITION_CHANGED, 30),
        (None, 30),
    ],
)
def test_probes_have_their_own_grace(reason: KillReason | None, expected: int) -> None:
    spec: Any = container(
        "app",
        livenessProbe={"terminationGracePeriodSeconds": 11},
        startupProbe={"terminationGracePeriodSeconds": 12},
    )
    pod = make_pod(spec, terminationGracePeriodSeconds=30)
    assert container_grace(pod, spec, reason) == expected
    assert container_grace(pod, None, reason) == 30, "it has no spec any more"


def test_only_whole_seconds_count() -> None:
    assert remaining(10, 2.9) == 8
    assert remaining(2, 5) == 0


def test_prerequisites() -> None:
    pod = make_pod("a", "b", init=(sidecar("s1"), "plain", sidecar("s2")))
    assert stop_prerequisites(pod) == {"s2": ("a", "b"), "s1": ("a", "b", "s2")}


async def running(node: FakeNode, pod: Pod) -> None:
    """Sync until all containers run; plain init containers end at once."""
    for _ in range(6):
        await node.sync(pod)
        for init in pod.init_containers:
            if init.get("restartPolicy") != "Always" and init["name"] in node.runtime.running():
                node.runtime.end(f"container-{init['name']}-0", 0)
        await node.refresh(pod)
        if {c["name"] for c in pod.containers} <= set(node.runtime.running()):
            return
    raise AssertionError(node.runtime.calls)


def stops(node: FakeNode) -> list[str]:
    return [call for call in node.runtime.calls if call.startswith("stop_")]


async def test_all_at_once_then_the_sandbox(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("a", "b", terminationGracePeriodSeconds=30)
    await running(node, pod)
    node.runtime.stop_seconds = {"a": 3, "b": 3}
    before = asyncio.get_running_loop().time()
    result = await node.kill(pod)
    assert asyncio.get_running_loop().time() - before == pytest.approx(3, abs=0.1)
    assert sorted(stops(node)[:2]) == [
        "stop_container container-a-0 30",
        "stop_container container-b-0 30",
    ]
    assert stops(node)[2:] == ["stop_pod_sandbox sandbox-web-0"]
    assert result.status is not None
    assert [c.exit_code for c in result.status.containers] == [0, 0]
    assert result.status.ips == ("10.0.0.9",)
    assert sorted(node.events.seen[-2:]) == [
        "Normal Killing: Stopping container a",
        "Normal Killing: Stopping container b",
    ]


async def test_override_and_floor(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod()
    await running(node, pod)
    node.runtime.stop_seconds["app"] = 100
    result = await node.kill(pod, 0)
    assert stops(node)[0] == "stop_container container-app-0 2"
    assert result.status is not None
    assert result.status.containers[0].exit_code == 137


async def test_a_shorter_grace_period_replaces_the_first(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod(terminationGracePeriodSeconds=1000)
    await running(node, pod)
    node.runtime.stop_seconds["app"] = 5000
    first = asyncio.create_task(node.kill(pod))
    await asyncio.sleep(10)
    first.cancel()
    await asyncio.wait([first])
    before = asyncio.get_running_loop().time()
    result = await node.kill(pod, 5)
    assert asyncio.get_running_loop().time() - before == pytest.approx(5, abs=0.1)
    assert not result.failed


async def test_sidecars_wait_for_their_turn(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("app", init=(sidecar("s1"), sidecar("s2")), terminationGracePeriodSeconds=30)
    await running(node, pod)
    node.runtime.stop_seconds = {"app": 4, "s2": 3, "s1": 1}
    await node.kill(pod)
    assert stops(node)[:3] == [
        "stop_container container-app-0 30",
        "stop_container container-s2-0 26",
        "stop_container container-s1-0 23",
    ]


async def test_sidecars_wait_no_longer_than_their_grace(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("app", init=(sidecar("s1"),), terminationGracePeriodSeconds=5)
    await running(node, pod)
    node.runtime.stop_seconds = {"app": 100}
    before = asyncio.get_running_loop().time()
    await node.kill(pod)
    assert asyncio.get_running_loop().time() - before < 8
    assert stops(node)[1] == "stop_container container-s1-0 2"


LARGE_HOOK = {"exec": {"command": ["sh", "-c", "x" * 1_400_000]}}


async def test_pre_stop_takes_from_the_grace_and_its_failure_is_reported(tmp_path: Path) -> None:
    class Hooks:
        async def post_start(self, *_: Any) -> None:
            raise AssertionError

        async def pre_stop(self, pod: Any, name: str, container_id: str, handler: Any) -> None:
            await asyncio.sleep({"good": 3.5, "bad": 0, "slow": 1000}[name])
            if name == "bad":
                raise HookFailed("secret")

    node = FakeNode(tmp_path, options={"hooks": Hooks()})
    hook: Any = {"lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}
    names = ("good", "bad", "slow")
    pod = make_pod(*(container(name, **hook) for name in names), terminationGracePeriodSeconds=10)
    await running(node, pod)
    await node.kill(pod)
    assert sorted(stops(node)[:3]) == [
        "stop_container container-bad-0 10",
        "stop_container container-good-0 7",
        "stop_container container-slow-0 2",
    ]
    assert "Warning FailedPreStopHook: PreStopHook failed" in node.events.seen
    assert "secret" not in " ".join(node.events.seen)
    again = FakeNode(tmp_path, options={"hooks": Hooks()})
    await running(again, pod)
    await again.kill(pod, 0)
    assert {call.split()[-1] for call in stops(again)[:3]} == {"2"}, "no grace, no hook"


async def outlasting(tmp_path: Path, hooks: Any) -> tuple[FakeNode, Pod]:
    """A running pod with a preStop hook and a grace period of 10 s; its container takes 100 s."""
    node = FakeNode(tmp_path, options={"hooks": hooks})
    hook: Any = {"lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}
    pod = make_pod(container("app", **hook), terminationGracePeriodSeconds=10)
    await running(node, pod)
    node.runtime.stop_seconds["app"] = 100
    return node, pod


async def test_a_pre_stop_hook_past_its_time_runs_until_its_container_has_ended(
    tmp_path: Path,
) -> None:
    """It runs into the last seconds, in which the container itself may end."""
    lived: list[float] = []

    class Hooks:
        async def post_start(self, *_: Any) -> None:
            raise AssertionError

        async def pre_stop(self, *_: Any) -> None:
            started = asyncio.get_running_loop().time()
            try:
                await asyncio.sleep(1000)
            finally:
                lived.append(asyncio.get_running_loop().time() - started)

    node, pod = await outlasting(tmp_path, Hooks())
    await node.kill(pod)
    assert stops(node)[0] == "stop_container container-app-0 2"
    assert lived == [pytest.approx(12, abs=0.1)]
    notified = "Warning FailedPreStopHook: PreStopHook failed"
    assert notified in node.events.seen, "it was cut off"
    again = FakeNode(tmp_path / "again", options={"hooks": Hooks()})
    await running(again, pod)
    given_up = asyncio.create_task(again.kill(pod))
    await asyncio.sleep(3)
    given_up.cancel()
    await asyncio.wait([given_up])
    await asyncio.sleep(0)
    assert lived[1:] == [pytest.approx(3, abs=0.1)], "a kill that is given up gives the hook up"
    assert notified not in again.events.seen, "the next kill runs it again"


@pytest.mark.parametrize("fails", [True, False])
async def test_how_a_late_pre_stop_ended_is_reported(tmp_path: Path, fails: bool) -> None:
    class Hooks:
        async def post_start(self, *_: Any) -> None:
            raise AssertionError

        async def pre_stop(self, *_: Any) -> None:
            await asyncio.sleep(11)
            if fails:
                raise HookFailed("late")

    node, pod = await outlasting(tmp_path, Hooks())
    await node.kill(pod)
    assert ("Warning FailedPreStopHook: PreStopHook failed" in node.events.seen) is fails


async def test_a_pod_that_only_the_runtime_has(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod(terminationGracePeriodSeconds=17)
    await running(node, pod)
    node.restart_agent()
    await node.refresh(pod)
    await node.kill(None)
    assert stops(node)[0] == "stop_container container-app-0 17"
    assert node.events.paths[-1] == "spec.containers{app}"


async def test_failures_are_reported_and_the_sandbox_is_stopped_anyway(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("a", "b")
    await running(node, pod)
    node.runtime.errors["stop_container container-a-0"] = CRIError("StopContainer", "stuck")
    node.runtime.errors["stop_pod_sandbox"] = CRIError("StopPodSandbox", "cni")
    result = await node.kill(pod)
    codes = {r.target: r.error.code for r in result.results if r.error is not None}
    assert codes == {"a": "KillContainerError", "sandbox-web-0": "KillPodSandboxError"}
    assert result.status is not None
    assert result.status.has_ready_sandbox, "what is not known to have stopped counts as ready"
    node.runtime.errors.clear()
    assert not (await node.kill(pod)).failed


async def test_missing_containers_count_as_stopped(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod()
    await running(node, pod)
    node.runtime.containers.clear()
    node.runtime.inside.clear()
    result = await node.kill(pod)
    assert not result.failed
    assert result.status is not None
    assert result.status.containers == ()


async def test_exits_of_containers_are_read_while_the_sandbox_stops(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("a", "b", init=(sidecar("s"),))
    await running(node, pod)
    node.runtime.seconds["stop_pod_sandbox"] = 5
    before, notified = len(node.runtime.calls), list[tuple[float, PodRuntimeStatus]]()
    assert node.known is not None
    loop = asyncio.get_running_loop()
    start = loop.time()
    result = await node.manager.killer.kill_pod(
        pod, node.known, 7, lambda status: notified.append((loop.time() - start, status))
    )
    ((at, status),) = notified
    assert at < 5 <= loop.time() - start
    assert {c.state for c in status.containers} == {ContainerState.EXITED}
    assert status.has_ready_sandbox
    requested = [c for c in node.runtime.calls[before:] if c.startswith("container_status")]
    assert len(requested) == 3, "each status is read once"
    assert result.status is not None
    assert not result.status.has_ready_sandbox
    assert {c.state for c in result.status.containers} == {ContainerState.EXITED}


async def test_after_a_failed_stop_no_status_is_reported_early(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("a", "b")
    await running(node, pod)
    node.runtime.errors["stop_container container-b-0"] = CRIError("StopContainer", "no")
    assert node.known is not None
    notified: list[PodRuntimeStatus] = []
    assert (await node.manager.killer.kill_pod(pod, node.known, 7, notified.append)).failed
    assert notified == []


async def large_hook(tmp_path: Path, requested: list[Any]) -> FakeNode:
    """A node whose agent has no record of a running pod with a large preStop hook."""

    class Hooks:
        async def post_start(self, *_: Any) -> None:
            raise AssertionError

        async def pre_stop(self, pod: Any, name: str, container_id: str, handler: Any) -> None:
            requested.append(handler)

    node = FakeNode(tmp_path, options={"hooks": Hooks()})
    await running(node, make_pod(container("app", lifecycle={"preStop": LARGE_HOOK})))
    node.restart_agent()
    await node.refresh(make_pod())
    return node


async def test_a_large_pre_stop_hook_of_a_removed_pod_is_run(tmp_path: Path) -> None:
    requested: list[Any] = []
    node = await large_hook(tmp_path, requested)
    await node.kill(None)
    assert requested == [LARGE_HOOK]
    (kept,) = (tmp_path / "root/pods/uid-1/containers/app").glob("prestop-*")
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("how", ["gone", "another", "a link"])
async def test_a_kept_hook_that_cannot_be_believed_is_not_run(tmp_path: Path, how: str) -> None:
    requested: list[Any] = []
    node = await large_hook(tmp_path, requested)
    (kept,) = (tmp_path / "root/pods/uid-1/containers/app").glob("prestop-*")
    content = kept.read_bytes()
    kept.unlink()
    if how == "another":
        kept.write_bytes(content.replace(b"x", b"y"))
    elif how == "a link":
        other = tmp_path / "other"
        other.write_bytes(content)
        kept.symlink_to(other)
    await node.kill(None)
    assert requested == []
    assert stops(node), "it is stopped anyway"
