"""Ends of containers that only the status in the API still shows."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import (
    ContainerStatus,
    PodRuntimeStatus,
    ProbeResults,
    SandboxStatus,
)
from kubeletpy.runtime_manager.plan.compute_actions import compute_pod_actions
from kubeletpy.runtime_manager.plan.crash_loop import CrashLoopBackoff
from kubeletpy.runtime_manager.plan.reported_ends import with_reported_ends
from tests.unit.runtime_manager.pods_and_records import (
    READY,
    container,
    exited,
    has,
    make_pod,
    running,
    sidecar,
    summary,
)

LISTS = {"c": "containerStatuses", "i": "initContainerStatuses", "e": "ephemeralContainerStatuses"}
SANDBOX = replace(READY, created_at=1_700_000_000_000_000_000)  # 22:13:20


def ended(code: int, *, restarts: int = 0, waiting: str = "", **changes: Any) -> dict[str, Any]:
    """A container that the API shows as ended."""
    terminated = {
        "terminated": {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "startedAt": "2023-11-14T22:13:21Z",
            "finishedAt": "2023-11-14T22:13:25Z",
            "containerID": "containerd://old",
            **changes,
        }
    }
    if waiting:
        state = {"waiting": {"reason": waiting}}
        return {"state": state, "lastState": terminated, "restartCount": restarts}
    return {"state": terminated, "restartCount": restarts}


def reported(**entries: dict[str, Any]) -> Any:
    """A status by container name, whose first letter is the kind of the container."""
    status: dict[str, Any] = {}
    for name, entry in entries.items():
        status.setdefault(LISTS[name[0]], []).append({"name": name, **entry})
    return status


def plan(pod: Pod, status: PodRuntimeStatus, api_status: Any) -> dict[str, Any]:
    known = with_reported_ends(pod, status, api_status)
    return summary(compute_pod_actions(pod, known, ProbeResults()))


ON_CODE = {
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
}


@pytest.mark.parametrize(
    ("policy", "spec", "code", "again"),
    [
        ("Never", {}, 0, False),
        ("Never", {}, 3, False),
        ("OnFailure", {}, 0, False),
        ("OnFailure", {}, 3, True),
        ("Always", {}, 0, True),
        ("Always", {"restartPolicy": "Never"}, 3, False),
        ("Always", {"restartPolicy": "OnFailure"}, 0, False),
        ("Never", {"restartPolicy": "OnFailure"}, 3, True),
        ("Always", ON_CODE, 42, True),
        ("Always", ON_CODE, 41, False),
    ],
)
@pytest.mark.parametrize("sandbox", [True, False], ids=["in its sandbox", "all is lost"])
def test_a_regular_container(
    policy: str, spec: dict[str, Any], code: int, again: bool, sandbox: bool
) -> None:
    pod = make_pod(container("c1", **spec), "c2", policy=policy)
    status = has(running("c2"), sandboxes=(SANDBOX,)) if sandbox else has(sandboxes=())
    found = plan(pod, status, reported(c1=ended(code)))
    others = [] if sandbox else ["c2"]
    assert found.get("regular", []) == (["c1", *others] if again else others)


def test_a_pod_whose_containers_have_all_ended_is_over() -> None:
    pod = make_pod("c1", "c2", policy="Never")
    api_status = reported(c1=ended(0), c2=ended(3))
    assert plan(pod, has(sandboxes=()), api_status) == {"kill_pod": True}
    assert plan(pod, has(sandboxes=(SANDBOX,)), api_status) == {"kill_pod": True}


@pytest.mark.parametrize(
    "finished", ["2023-11-14T22:13:20Z", "2023-11-14T22:13:25Z", "2030-01-01T00:00:00Z"]
)
@pytest.mark.parametrize(
    ("policy", "code"), [("Always", 0), ("Always", 1), ("OnFailure", 0), ("Never", 0), ("Never", 1)]
)
def test_an_init_container_runs_again_where_no_later_one_has_run(
    policy: str, code: int, finished: str
) -> None:
    """It may have ended in an earlier sandbox, whose creation a clock that was set dates later."""
    pod = make_pod("c", init=("i1", "i2"), policy=policy)
    entry = ended(code, finishedAt=finished)
    for sandboxes in ((), (SANDBOX,)):
        status = has(sandboxes=sandboxes)
        assert with_reported_ends(pod, status, reported(i1=entry, i2=entry)) is status
        assert plan(pod, status, reported(i1=entry, i2=entry))["init"] == ["i1"]


def elsewhere(name: str) -> ContainerStatus:
    """A record in the sandbox before."""
    return replace(exited(name), sandbox_id="sandbox-0")


@pytest.mark.parametrize(
    ("records", "counts"),
    [
        ((), ()),
        ((exited("i1"),), ()),
        ((exited("i2"),), ("i1",)),
        ((running("i2"),), ("i1",)),
        ((elsewhere("i2"),), ()),
        ((exited("i3"),), ("i1", "i2")),
        ((elsewhere("i3"), exited("i2")), ("i1",)),
        ((running("c"),), ("i1", "i2", "i3")),
        ((exited("c", 3),), ("i1", "i2", "i3")),
        ((elsewhere("c"),), ()),
        ((running("e"),), ()),  # it starts before the init containers are done
    ],
)
def test_an_init_container_counts_where_a_later_one_has_run(
    records: tuple[ContainerStatus, ...], counts: tuple[str, ...]
) -> None:
    pod = make_pod("c", init=("i1", "i2", "i3"), ephemeral=("e",))
    status = has(*records, sandboxes=(SANDBOX,))
    known = with_reported_ends(pod, status, reported(i1=ended(0), i2=ended(0), i3=ended(0)))
    assert tuple(r.name for r in known.containers[len(records) :]) == counts


def test_containers_that_have_run_once_end_a_pod_without_its_last_init_record() -> None:
    pod = make_pod("c", init=("i1", "i2"), policy="Never")
    status = has(exited("c"), sandboxes=(SANDBOX,))
    assert plan(pod, status, reported(i1=ended(0), i2=ended(0))) == {"kill_pod": True}


def test_a_sidecar_is_kept_running_and_waits_its_delay() -> None:
    pod = make_pod("c", init=(sidecar("i"),))
    status = has(running("c"), sandboxes=(SANDBOX,))
    entry = ended(1, restarts=3, waiting="CrashLoopBackOff")
    assert plan(pod, status, reported(i=entry))["init"] == ["i"]
    known = with_reported_ends(pod, status, reported(i=entry))
    now = 1_700_000_000 + 6
    held = CrashLoopBackoff(began=now).admit(pod, pod.init_containers[0], known, now)
    assert held is not None
    assert held.due_at == 1_700_000_000 + 5 + 40


def test_an_ephemeral_container_never_runs_twice() -> None:
    pod = make_pod("c", ephemeral=("e1", "e2"))
    status = has(running("c"), sandboxes=(SANDBOX,))
    assert plan(pod, status, reported(e1=ended(0))) == {"ephemeral": ["e2"]}


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"state": {"running": {"startedAt": "2023-11-14T22:13:21Z"}}},
        {"state": {"waiting": {"reason": "ContainerCreating"}}},
        ended(137, reason="ContainerStatusUnknown", containerID=""),
        ended(0, waiting="ContainerCreating"),
        ended(0, finishedAt=None),
        ended(0, startedAt="yesterday"),
    ],
)
def test_entries_without_a_known_exit(entry: dict[str, Any]) -> None:
    pod = make_pod("c", policy="Never")
    status = has(sandboxes=(SANDBOX,))
    assert with_reported_ends(pod, status, reported(c=entry)) is status
    assert with_reported_ends(pod, status, None) is status


def test_a_record_is_the_truth() -> None:
    pod = make_pod("c", policy="Never")
    status = has(exited("c", 7), sandboxes=(SANDBOX,))
    assert with_reported_ends(pod, status, reported(c=ended(0))) is status


def test_the_restart_count_continues() -> None:
    pod = make_pod("c")
    known = with_reported_ends(pod, has(sandboxes=(SANDBOX,)), reported(c=ended(1, restarts=4)))
    (record,) = known.containers
    assert (record.id, record.exit_code, record.restart_count) == ("old", 1, 4)
    known = with_reported_ends(pod, has(sandboxes=(SANDBOX,)), reported(c=ended(1, restarts=-4)))
    assert known.containers[0].attempt == 0, "a number that no runtime takes"


RESTART_ALL = {
    "restartPolicy": "Never",
    "restartPolicyRules": [
        {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [9]}}
    ],
}


@pytest.mark.parametrize(
    ("cause", "record", "kept"),
    [
        ({"state": {"running": {}}}, (), False),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, (), False),
        ({"state": {"running": {}}}, (running("c1"),), True),
        (ended(8), (), True),
    ],
)
def test_an_unknown_end_may_have_restarted_all(
    cause: dict[str, Any], record: tuple[ContainerStatus, ...], kept: bool
) -> None:
    """It restarted all containers while the API was unreachable, and the agent was then killed."""
    pod = make_pod(container("c1", **RESTART_ALL), "c2", policy="Never")
    status = has(*record, sandboxes=(SANDBOX,))
    known = with_reported_ends(pod, status, reported(c1=cause, c2=ended(0)))
    assert (known.newest("c2") is not None) is kept


@pytest.mark.parametrize(
    ("code", "condition", "kept"), [(9, "False", False), (8, "True", False), (8, "False", True)]
)
def test_records_that_a_restart_of_all_removed(code: int, condition: str, kept: bool) -> None:
    pod = make_pod(container("c1", **RESTART_ALL), "c2", policy="Never")
    api_status = reported(c1=ended(code), c2=ended(0))
    api_status["conditions"] = [{"type": "AllContainersRestarting", "status": condition}]
    found = with_reported_ends(pod, has(sandboxes=(SANDBOX,)), api_status)
    assert bool(found.containers) is kept


def test_a_sandbox_that_is_lost_takes_init_containers_with_it() -> None:
    pod = make_pod("c", init=("i",), policy="OnFailure")
    older = SandboxStatus("sandbox-0", ready=False, created_at=SANDBOX.created_at)
    status = has(sandboxes=(older,))
    found = plan(pod, status, reported(i=ended(0), c=ended(0)))
    assert found == {"kill_pod": True}


class _Counted(list[Any]):
    """A list that counts how often it is iterated."""

    walks = 0

    def __iter__(self) -> Any:
        self.walks += 1
        return super().__iter__()


def test_thousands_of_ephemeral_containers_walk_the_status_once() -> None:
    names = [f"e{number}" for number in range(1000)]
    pod = make_pod(container("c"), ephemeralContainers=[container(name) for name in names])
    entries = _Counted([{"name": name, **ended(3)} for name in names])
    api_status: Any = {LISTS["e"]: entries}
    known = with_reported_ends(pod, has(running("c")), api_status)
    assert [record.exit_code for record in known.containers[1:]] == [3] * 1000
    assert entries.walks <= 2
