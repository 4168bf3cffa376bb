"""Exits of containers: order, times, and records of the runtime or the status."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.times import format_time
from kubeletpy.base.structs import replace
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.observe.explain import phrases
from kubeletpy.observe.explain.containers import MAX_EXITS, containers, exits
from kubeletpy.observe.explain.model import ContainerStateKey, ContainerView, Role, Wait, WaitKind
from kubeletpy.observe.explain.waits import not_ready, waits
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from tests.kit.observe import NOW, doing, exited, facts
from tests.kit.observe import not_ready as not_ready_status
from tests.kit.pods import make_pod, make_static

S = 10**9


def ago(seconds: float) -> str:
    return format_time(NOW - seconds)


def ended(name: str, at: int, state: ContainerState = ContainerState.EXITED) -> ContainerStatus:
    return ContainerStatus(
        f"id-{at}", name, state, started_at=1, finished_at=at, exit_code=3, restart_count=at
    )


def remembered(*records: ContainerStatus) -> PodRuntimeStatus:
    return PodRuntimeStatus("uid", "web", "default", containers=records)


def test_exits_are_sorted_newest_first_without_running_containers() -> None:
    runs = ended("main", 9 * S, ContainerState.RUNNING)
    found = exits(facts(runtime=remembered(ended("main", 2 * S), runs, ended("side", 5 * S))))
    assert [(one.container, one.finished_at) for one in found] == [("side", 5.0), ("main", 2.0)]


def test_a_pod_is_static_when_a_manifest_has_it() -> None:
    assert facts(make_static()).static
    assert not facts().static
    assert not replace(facts(make_static()), pod=None).static


def test_exits_are_bounded() -> None:
    records = [ended("main", n * S) for n in range(1, MAX_EXITS + 3)]
    found = exits(facts(runtime=remembered(*records)))
    assert [one.finished_at for one in found] == list(range(MAX_EXITS + 2, 2, -1))


def test_start_of_a_containers_state() -> None:
    states = {
        "init": {"terminated": {"exitCode": 0, "startedAt": ago(9), "finishedAt": ago(8)}},
        "main": {"running": {"startedAt": ago(7)}},
        "late": {"waiting": {"reason": "ContainerCreating"}},
    }
    pod = make_pod(
        initContainers=[{"name": "init", "image": "i"}],
        containers=[{"name": "main", "image": "i"}, {"name": "late", "image": "i"}],
    )
    entries = [{"name": name, "state": state} for name, state in states.items()]
    status = {"initContainerStatuses": entries[:1], "containerStatuses": entries[1:]}
    found = containers(facts(pod, status=status))
    assert [(view.name, view.since) for view in found] == [
        ("init", NOW - 8),
        ("main", NOW - 7),
        ("late", None),
    ]


@pytest.mark.parametrize(("nanoseconds", "seconds"), [(0, None), (1, 1e-9), (S, 1.0)])
def test_zero_is_no_time(nanoseconds: int, seconds: float | None) -> None:
    record = replace(ended("main", S), started_at=nanoseconds, finished_at=nanoseconds)
    (one,) = exits(facts(runtime=remembered(record)))
    assert (one.started_at, one.finished_at) == (seconds, seconds)


def test_the_status_adds_exits_the_runtime_has_dropped() -> None:
    status = exited(7, containerID="containerd://id-1")
    status["state"]["terminated"]["containerID"] = "containerd://id-1"
    more: dict[str, Any] = {"status": {"containerStatuses": [status]}}
    assert [one.exit_code for one in exits(facts(**more))] == [7]
    assert [
        one.exit_code for one in exits(facts(**more, runtime=remembered(ended("main", 1))))
    ] == [3]
    assert [
        one.exit_code for one in exits(facts(**more, runtime=remembered(ended("main", 2))))
    ] == [7, 3]


@pytest.mark.parametrize(("since", "named"), [(1.0, False), (1.5, True)])
def test_a_call_longer_than_a_second_is_a_wait(since: float, named: bool) -> None:
    found = waits(facts(trace=doing(TraceCall.STOP_POD_SANDBOX, "ab", since), now=NOW))
    assert ([wait.kind for wait in found] == ["runtime call"]) is named


@pytest.mark.parametrize(
    ("kind", "state", "ready", "named"),
    [
        ("container", "running", False, True),
        ("sidecar", "running", False, True),
        ("container", "running", True, False),
        ("container", "waiting", False, False),
        ("init", "running", False, False),
        ("ephemeral", "running", False, False),
    ],
)
def test_containers_that_are_not_ready(kind: str, state: str, ready: bool, named: bool) -> None:
    view = ContainerView(
        "a", Role(kind), "i", ContainerStateKey(state), "", "", None, ready, 0, "id"
    )
    assert not_ready((view,)) == (("a",) if named else ())


CRASHES = Wait(WaitKind.CRASH_BACKOFF, "main", "")
TWO = make_pod(
    containers=[
        {"name": "side", "image": "i"},
        {"name": "main", "image": "i", "resources": {"limits": {"memory": "16Mi"}}},
    ]
)


def crashed(reason: str, name: str = "main") -> dict[str, Any]:
    ended = {"terminated": {"exitCode": 137, "reason": reason}}
    return {
        "name": name,
        "state": {"waiting": {}},
        "lastState": ended,
        "restartCount": 3 if name == "main" else 1,
    }


@pytest.mark.parametrize(
    ("reason", "has_pod", "how"),
    [
        ("Error", True, "137, 3 restarts"),
        ("OOMKilled", True, "137 OOMKilled at its memory limit of 16Mi, 3 restarts"),
        ("ContainerStatusUnknown", True, "137 ContainerStatusUnknown, 3 restarts"),
        ("OOMKilled", False, "137 OOMKilled"),
    ],
)
def test_how_a_container_keeps_exiting(reason: str, has_pod: bool, how: str) -> None:
    found = facts(TWO, status=not_ready_status(crashed(reason, "side"), crashed(reason)))
    found = found if has_pod else replace(found, pod=None)
    stated = f"container main keeps exiting (last exit code {how})"
    assert phrases.sentence(found, CRASHES) == stated


def test_a_container_that_the_pod_no_longer_has() -> None:
    found = facts(make_pod(), status=not_ready_status(crashed("OOMKilled", "gone")))
    stated = "container gone keeps exiting (last exit code 137 OOMKilled)"
    assert phrases.sentence(found, replace(CRASHES, subject="gone")) == stated


@pytest.mark.parametrize(
    ("late", "what"),
    [
        (3.0, "it is killed now"),
        (3.5, "its grace period ended 3.5s ago, and the runtime has not answered since"),
    ],
)
def test_the_runtime_has_three_seconds_to_kill(late: float, what: str) -> None:
    wait = Wait(WaitKind.GRACE_PERIOD, "main", "", None, NOW - late)
    stated = f"container main has not ended although its stop was requested; {what}"
    assert phrases.sentence(facts(), wait) == stated
