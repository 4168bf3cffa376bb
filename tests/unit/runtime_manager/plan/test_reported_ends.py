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
from kubeletpy.runtime_manager.plan.crash_loop import (
    MAX_ENDS,
    REDUCED_BASE_SECONDS,
    CrashLoopBackoff,
    crash_loop_key,
)
from kubeletpy.runtime_manager.plan.reported_ends import with_reported_ends
from tests.kit.records import READY, container, exited, has, make_pod, running, sidecar, summary

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


# CrashLoopBackOff (docs/reference/behaviour.md, d).

POD = make_pod("app")
APP = POD.containers[0]


def ended_at(seconds: float) -> Any:
    """Each end is that of another record."""
    return has(exited("app", 1, finished_at=int(seconds * 1e9), suffix=f"-{seconds:g}"))


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (CrashLoopBackoff(), [0, 10, 20, 40, 80, 160, 300, 300]),
        (CrashLoopBackoff(60, REDUCED_BASE_SECONDS), [0, 1, 2, 4, 8, 16, 32, 60, 60]),
        (CrashLoopBackoff(1, REDUCED_BASE_SECONDS), [0, 1, 1]),
    ],
)
def test_delays_between_crashes(backoff: CrashLoopBackoff, expected: list[float]) -> None:
    now = 1000.0
    delays = []
    for _ in expected:
        crashed = ended_at(now)
        held = backoff.admit(POD, APP, crashed, now)
        if held is None:
            delays.append(0.0)
            continue
        delays.append(held.due_at - now)
        assert backoff.admit(POD, APP, crashed, held.due_at - 0.01) is not None
        now = held.due_at
        assert backoff.admit(POD, APP, crashed, now) is None
        now += 1  # it runs for a second
    assert delays == expected


def test_a_first_start_never_waits() -> None:
    backoff = CrashLoopBackoff()
    assert backoff.admit(POD, APP, has(), 0) is None
    assert backoff.admit(POD, APP, has(running("app")), 0) is None
    assert len(backoff) == 0


def test_messages() -> None:
    backoff = CrashLoopBackoff()
    backoff.admit(POD, APP, ended_at(100), 100)
    held = backoff.admit(POD, APP, ended_at(101), 102)
    assert held is not None
    assert held.due_at == 111
    assert held.message == ("back-off 10s restarting failed container=app pod=web_prod(uid-1)")
    assert held.event == "Back-off restarting failed container app in pod web_prod(uid-1)"


def waits(
    backoff: CrashLoopBackoff, run: int, finished_at: float, now: float, offset: float = 0.0
) -> float | None:
    """Seconds from now until a container may start after the end of a run; None: it starts.

    ``finished_at`` and the answer are of the wall clock, ``now`` of the one that never steps.
    """
    record = exited("app", 1, suffix=str(run), finished_at=int(finished_at * 1e9))
    started = int((finished_at - 1) * 1e9)
    held = backoff.admit(
        POD, APP, has(replace(record, restart_count=run, created_at=started)), now, offset
    )
    return None if held is None else round(held.due_at - offset - now, 3)


def test_ten_minutes_of_running_start_afresh_whatever_the_maximum() -> None:
    backoff = CrashLoopBackoff(maximum=20)
    for run, now in enumerate((100, 101 + 10, 112 + 20)):
        assert waits(backoff, run, now, now) is None or run
        waits(backoff, run, now, now + 20)
    assert waits(backoff, 3, 153, 153) == 20
    assert waits(backoff, 4, 753, 753) is None
    assert waits(backoff, 5, 754, 754) == 10


def test_a_short_maximum_lowers_the_base() -> None:
    backoff = CrashLoopBackoff(maximum=1)
    assert waits(backoff, 0, 100, 100) is None
    assert waits(backoff, 1, 101, 101) == 1


@pytest.mark.parametrize("step", [-86_400.0, -300.0, -5.0, -0.3, 0.3, 5.0, 300.0, 86_400.0])
def test_a_step_of_the_wall_clock_does_not_change_a_delay(step: float) -> None:
    began = 1_700_000_000.0
    backoff = CrashLoopBackoff(began=began)
    assert waits(backoff, 0, began + 1, began + 1) is None
    assert waits(backoff, 1, began + 2, began + 3) == 9
    # the clock is set after the end was seen
    assert waits(backoff, 1, began + 2, began + 4, step) == 8
    assert waits(backoff, 1, began + 2, began + 11.9, step) == 0.1
    backoff.collect(began + 11.9)
    assert waits(backoff, 1, began + 2, began + 12, step) is None
    # it stays set: the next end is converted by the new offset
    assert waits(backoff, 2, began + 13 + step, began + 15, step) == 18


@pytest.mark.parametrize("step", [-86_400.0, -300.0, -5.0, -0.3, 0.3, 5.0, 300.0, 86_400.0])
@pytest.mark.parametrize("by_new_clock", [True, False])
def test_an_end_near_a_step_counts_from_when_it_is_seen(step: float, by_new_clock: bool) -> None:
    began = 1_700_000_000.0
    backoff = CrashLoopBackoff(began=began)
    assert waits(backoff, 0, began + 1, began + 1) is None
    finished_at = began + 2 + (step if by_new_clock else 0.0)
    assert waits(backoff, 1, finished_at, began + 4, step) == 10
    assert waits(backoff, 1, finished_at, began + 14, step) is None


def test_a_slow_reading_of_the_clocks_is_no_step() -> None:
    backoff = CrashLoopBackoff(began=90)
    assert waits(backoff, 0, 100, 100) is None
    assert waits(backoff, 1, 101, 103, offset=0.04) == pytest.approx(7.96)


def test_an_end_is_after_its_start_and_not_in_the_future() -> None:
    backoff = CrashLoopBackoff()
    assert waits(backoff, 0, 100, 100) is None
    assert waits(backoff, 1, 1e6, 105) == 10, "the clock was set twice"
    assert waits(backoff, 1, 1e6, 110) == 5
    assert waits(backoff, 1, 1e6, 115) is None
    assert waits(backoff, 2, 50, 120) == 15, "it was started at 115"


def test_a_start_that_failed_leaves_the_end_where_it_was() -> None:
    backoff = CrashLoopBackoff()
    assert waits(backoff, 0, 100, 101) is None
    assert waits(backoff, 0, 100, 102) == 8


def test_the_ends_that_are_remembered_are_bounded() -> None:
    backoff = CrashLoopBackoff()
    for number in range(MAX_ENDS + 5):
        backoff.admit(make_pod("app", metadata={"uid": f"uid-{number}"}), APP, ended_at(1), 1)
    assert len(backoff._known) == MAX_ENDS
    backoff.collect(1000)
    assert not backoff._known


def test_the_end_of_another_container_does_not_count() -> None:
    backoff = CrashLoopBackoff()
    for _ in range(2):
        assert backoff.admit(POD, APP, has(exited("other", 1, finished_at=10**9)), 1) is None
    assert len(backoff) == 0


def test_the_newest_exited_record_counts() -> None:
    backoff = CrashLoopBackoff()
    backoff.admit(POD, APP, ended_at(100), 100)
    status = has(
        exited("app", 1, suffix="-new", finished_at=int(200e9)),
        exited("app", 1, suffix="-100", finished_at=int(100e9)),
    )
    held = backoff.admit(POD, APP, status, 201)
    assert held is not None
    assert held.due_at == 210


def test_collect() -> None:
    backoff = CrashLoopBackoff()
    backoff.admit(POD, APP, ended_at(0), 0)
    backoff.collect(600)
    assert len(backoff) == 1
    backoff.collect(601)
    assert len(backoff) == 0


def test_a_changed_image_or_resources_start_afresh() -> None:
    def key(spec: Any, **metadata: Any) -> str:
        return crash_loop_key(make_pod(spec, metadata=metadata), spec)

    both = {"cpu": "1", "memory": "1Gi"}
    backwards = dict(reversed(both.items()))
    assert key(container("app", resources={"limits": both})) == key(
        container("app", resources={"limits": backwards})
    )
    base = key(container("app"))
    assert base == key(container("app", env=[{"name": "X"}]))
    others = [
        key({**container("app"), "image": "other"}),
        key(container("app", resources={"limits": {"cpu": "1"}})),
        key(container("app2")),
        key(container("app"), uid="uid-2"),
        key(container("app"), namespace="test"),
    ]
    assert len({base, *others}) == 6
    assert int(base, 16) < 2**64


def past(count: int, created: float, finished: float, **more: Any) -> ContainerStatus:
    """A run that an earlier agent started."""
    ended = exited("app", 1, finished_at=int(finished * 1e9), suffix=str(count))
    return replace(ended, restart_count=count, created_at=int(created * 1e9), **more)


@pytest.mark.parametrize(
    ("records", "delay"),
    [
        ([past(0, 90, 95)], None),  # its first restart waits for nothing
        ([past(1, 90, 95)], 10),
        ([past(2, 90, 95)], 20),
        ([past(5, 90, 95)], 160),
        ([past(6, 90, 95)], 300),
        ([past(2**31 - 1, 90, 95)], 300),
        # it waited for at least 20 s, where the count alone would allow 160
        ([past(5, 90, 95), past(4, 60, 69)], 40),
        ([past(5, 90, 95), past(4, 60, 70)], 40),
        ([past(5, 90, 95), past(4, 60, 70.1)], 20),
        ([past(5, 90, 95), past(4, 60, 80)], 20),
        ([past(5, 90, 95), past(4, 60, 80.1)], 10),
        ([past(5, 90, 95), past(4, 60, 90)], 10),
        ([past(5, 90, 95), past(4, 60, 91)], 160),  # the clock was set back
        ([past(2, 90, 95), past(1, 0, 1)], 20),  # no agent ran for a while
    ],
)
def test_an_agent_resumes_the_delays_of_the_previous_one(
    records: list[ContainerStatus], delay: float | None
) -> None:
    backoff = CrashLoopBackoff(began=97)
    held = backoff.admit(POD, APP, has(*records), 97)
    assert held is None if delay is None else held is not None and held.due_at == 95 + delay


@pytest.mark.parametrize(
    ("booted", "held"), [(0, True), (89, True), (90, True), (91, False), (97, False)]
)
def test_a_boot_of_the_machine_ends_all_delays(booted: float, held: bool) -> None:
    backoff = CrashLoopBackoff(began=97, booted=booted)
    assert (backoff.admit(POD, APP, has(past(6, 90, 95)), 97) is not None) is held


@pytest.mark.parametrize("finished", [95, 110, -86_305, 86_495])
@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
def test_a_step_never_lengthens_a_resumed_delay_beyond_one_delay(
    finished: float, step: float
) -> None:
    """The wall clock was set while no agent ran, or after the new one began."""
    for offset in (0.0, step):
        backoff = CrashLoopBackoff(began=100)
        status = has(past(2, finished - 1, finished))
        held = backoff.admit(POD, APP, status, 120, offset)
        assert held is None or held.due_at - offset <= 120 + 20
        assert backoff.admit(POD, APP, status, 140, offset) is None


def test_a_step_after_the_agent_began_never_shortens_a_resumed_delay() -> None:
    backoff = CrashLoopBackoff(began=100)
    held = backoff.admit(POD, APP, has(past(2, 90, 95)), 101, 86_400)
    assert held is not None
    assert held.due_at == 101 + 20 + 86_400


def test_a_delay_that_is_resumed_doubles() -> None:
    backoff = CrashLoopBackoff(began=100)
    assert backoff.admit(POD, APP, has(past(2, 90, 95)), 115) is None
    held = backoff.admit(POD, APP, has(past(3, 115, 116)), 117)
    assert held is not None
    assert held.due_at == 116 + 40


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (past(3, 90, 95, hash="other"), "another image"),
        (past(3, 101, 102), "started by this agent"),
        (past(3, 90, 691), "it ran for ten minutes"),
    ],
)
def test_some_records_show_no_delay(record: ContainerStatus, why: str) -> None:
    backoff = CrashLoopBackoff(began=100)
    assert backoff.admit(POD, APP, has(record), record.finished_at / 1e9) is None, why
