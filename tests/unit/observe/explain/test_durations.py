"""Starting points of the durations in explain, also after a restart of the agent."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.containers import exits
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.gather import explain
from kubeletpy.observe.explain.hints import volume_hint
from kubeletpy.observe.explain.stuck import StuckPods
from kubeletpy.observe.explain.texts import api_time, clock_time
from kubeletpy.observe.explain.waits import ready_since, requested_to_end, stopped_at, waits
from kubeletpy.pods.pod import Excluded, Pod
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.podworkers.history import HistoryEntry
from kubeletpy.status.store import NO_ANSWER, WriteProblem
from kubeletpy.volumes.claims.model import VolumeWait, WaitCause, Waits
from tests.kit.events import Recorder
from tests.kit.observe import NOW, OFFSET, doing, exited, facts, failed, not_ready, running, waiting
from tests.kit.pods import make_pod
from tests.unit.observe.explain.test_since import ago, condition

NEVER = "1970-01-01T00:00:00Z"


def deleted(seconds: float, grace: int = 30, **spec: Any) -> Pod:
    """A pod that was deleted some seconds ago."""
    found = make_pod(**spec)
    ends = {"deletionTimestamp": ago(seconds - grace), "deletionGracePeriodSeconds": grace}
    return Pod({**found.object, "metadata": {**found.metadata, **ends}})  # type: ignore[typeddict-item]


RESTARTED: dict[str, Any] = {"first_seen_at": NOW - 79, "terminating_at": NOW - 79, "grace": 900}
"""Worker of an agent that restarted 79 s ago and found the pod terminating."""


@pytest.mark.parametrize(
    ("conditions", "since"),
    [
        ([condition(7, "True")], 7),
        ([condition(3600, "True")], 3600),
        ([{"type": "Ready", "status": "True"}], 20),
        ([{"type": "Ready", "status": "True", "lastTransitionTime": "soon"}], 20),
        ([condition(7)], None),
        ([], None),
    ],
)
def test_ready_counts_from_the_condition(conditions: Any, since: float | None) -> None:
    """The container was started 20 s ago."""
    found = facts(status={"conditions": conditions})
    assert ready_since(found) == (None if since is None else NOW - since)


def test_running_and_ready_counts_from_the_ready_condition() -> None:
    found = facts(status={"conditions": [condition(7, "True")]})
    assert explain(found).verdict == "running and ready, for 7s"


@pytest.mark.parametrize(
    ("changes", "since"),
    [
        ({"worker": RESTARTED, "pod": deleted(600, 900)}, 600),
        ({"worker": RESTARTED, "ended_at": NOW - 600}, 600),
        ({"worker": RESTARTED, "pod": deleted(600, 900), "ended_at": NOW - 700}, 700),
        ({"worker": RESTARTED}, 79),
        ({"pod": deleted(600, 900)}, 600),
        ({"pod": deleted(-5), "worker": {"terminating_at": NOW - 2}}, 2),
        ({}, None),
        (
            {
                "worker": RESTARTED,
                "pod": make_pod(activeDeadlineSeconds=100),
                "status": {"reason": "DeadlineExceeded", "startTime": ago(400)},
            },
            300,
        ),
    ],
)
def test_the_time_when_the_end_of_a_pod_was_requested(
    changes: dict[str, Any], since: float | None
) -> None:
    assert requested_to_end(facts(**changes)) == (None if since is None else NOW - since)


def test_a_stop_counts_from_the_requested_end_of_the_pod() -> None:
    """The agent restarted and requests the stop a second time."""
    trace = doing(TraceCall.STOP_CONTAINER, "main", 79.0, 900.0)
    found = explain(facts(deleted(600, 900), worker=RESTARTED, trace=trace))
    assert found.verdict == (
        "terminating for 10m: container main has not ended 10m after its stop was requested; it "
        "is killed in 13m41s"
    )
    assert (found.first_seen, found.waits[0].since) == (NOW - 600, NOW - 600)
    assert found.worker.since == NOW - 600


def test_a_stop_of_one_container_counts_from_its_request() -> None:
    found = facts(trace=doing(TraceCall.STOP_CONTAINER, "main", 79.0, 900.0))
    assert waits(found)[0].since == NOW - 79


@pytest.mark.parametrize(
    ("worker", "pod", "statuses", "since"),
    [
        ({**RESTARTED, "terminated_at": NOW - 70}, deleted(600), [], 600),
        ({**RESTARTED, "terminated_at": NOW - 70}, deleted(10), [exited(0)], 70),
        ({**RESTARTED, "terminated_at": NOW - 70}, deleted(600), [exited(0)], 70),
        (
            {**RESTARTED, "terminated_at": NOW - 10},
            deleted(600),
            [{"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": ago(580)}}}],
            580,
        ),
        ({"terminating_at": NOW - 9, "terminated_at": NOW - 5}, deleted(9), [exited(0)], 5),
        (RESTARTED, deleted(600), [], None),
    ],
)
def test_all_has_stopped(
    worker: dict[str, Any], pod: Pod, statuses: list[Any], since: float | None
) -> None:
    """The container of ``exited`` ended 20 s ago."""
    found = facts(pod, worker=worker, status={"containerStatuses": statuses})
    assert stopped_at(found) == (None if since is None else NOW - since)


@pytest.mark.parametrize("reason", ["AppArmor", "OutOfcpu", "Evicted"])
def test_a_refusal_counts_from_the_refusal(reason: str) -> None:
    """The pod ran before, since 300 s ago, and the agent restarted after refusing it."""
    status = not_ready(phase="Failed", reason=reason, startTime=ago(300))
    found = facts(record=None, status=status, ended_at=NOW - 8)
    assert explain(found).first_seen == NOW - 8


@pytest.mark.parametrize(
    ("first_seen", "wrong_since", "since"),
    [(20, 600, 600), (20, 15, 12), (20, None, 12), (700, 600, 12)],
)
def test_a_volume_wait_of_an_earlier_agent_continues(
    first_seen: float, wrong_since: float | None, since: float
) -> None:
    """The current agent has waited for 12 s."""
    wait = VolumeWait("data", Waits(WaitCause.UNREAD, "claim a", "why"), NOW - OFFSET - 12)
    found = facts(
        worker={"first_seen_at": NOW - first_seen},
        wrong_since=None if wrong_since is None else NOW - wrong_since,
        volumes=(wait,),
    )
    assert waits(found)[0].since == NOW - since


def test_a_readiness_probe_fails_since_the_pod_ceased_to_be_ready() -> None:
    pod = make_pod(containers=[{"name": "main", "image": "i", "readinessProbe": {}}])
    status = not_ready(running(ready=False), phase="Running", conditions=[condition(5)])
    found = explain(facts(pod, status=status))
    assert (found.waits[0].since, found.first_seen) == (NOW - 5, NOW - 5)
    assert found.verdict.endswith("(container main, 20s after its start)")


@pytest.mark.parametrize(
    ("started", "ran"), [(NEVER, None), ("0001-01-01T00:00:00Z", None), ("", None), (ago(30), 30)]
)
def test_a_run_that_never_began_has_no_length(started: str, ran: float | None) -> None:
    ended = {"exitCode": 128, "startedAt": started, "finishedAt": ago(0)}
    status = {"containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}
    (found,) = exits(facts(status=status))
    assert found.started_at == (None if ran is None else NOW - ran)


def test_restarts_are_counted_once() -> None:
    """Attempts to start a container are not counted separately from the restarts in the status."""
    start = Decision("start container main", "it exited with 3", restarts=True, starts="main")
    hold = Decision("hold container main back", "back-off 40s")
    history = tuple(HistoryEntry(NOW - 60, each, 4, NOW - 20) for each in (start, hold))
    status = {"containerStatuses": [running(restartCount=2)]}
    found = explain(facts(status=status, history=history))
    assert [(each.count, each.last_at) for each in found.decisions] == [
        (1, NOW - 20),
        (4, NOW - 20),
    ]
    assert [each.restarts for each in found.containers] == [2]
    reported = render.pod(to_builtins(found))
    assert "  20s ago           start container main      it exited with 3" in reported
    assert "2 restarts" in reported


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2023-11-14T22:15:00Z", NOW),
        (NEVER, None),
        ("0001-01-01T00:00:00Z", None),
        ("1970-01-01T00:00:01Z", 1.0),
        ("soon", None),
        ("2023-11-14T22:15:00", None),
        ("", None),
        (None, None),
    ],
)
def test_times_of_the_api(text: str | None, found: float | None) -> None:
    assert api_time(text) == found


def test_a_moment_has_its_date_on_another_day() -> None:
    assert len(clock_time(NOW, NOW)) == len("22:15:00")
    assert clock_time(NOW - 3 * 86400, NOW).endswith(clock_time(NOW, NOW))
    assert clock_time(NOW - 3 * 86400, NOW).startswith("2023-11-1")


def test_the_event_counts_from_the_requested_end_of_the_pod() -> None:
    recorder = Recorder()

    def late(_uid: str) -> PodFacts:
        worker = {**RESTARTED, "grace": 30}
        trace = doing(TraceCall.STOP_CONTAINER, "main", 79.0)
        return facts(deleted(600), worker=worker, trace=trace)

    StuckPods(lambda: ["uid-web"], late, recorder).report_stuck()
    assert recorder.texts == ["Still terminating after 10m: grace period main: StopContainer"]


# Hints for problems with volumes, images, runtimes and ended containers.

TWO = [{"name": "job", "image": "i"}, {"name": "main", "image": "i"}]
DESCRIBE = "it has no log; see its last state and its events: kubectl describe pod -n default web"
OTHERWISE = "see the object or driver that is named: kubectl get pvc,pv,volumeattachment"
MESSAGE = "see the message, and the agent's log on this node"


@pytest.mark.parametrize(
    ("spec", "code", "verdict", "hint"),
    [
        (
            {"restartPolicy": "Always"},
            0,
            "running, not ready: container job has ended and is about to be started again: it "
            "exited with 0 and the pod's restartPolicy is Always",
            "",
        )
    ],
)
def test_a_container_that_has_ended(
    spec: dict[str, Any], code: int, verdict: str, hint: str
) -> None:
    status = not_ready(exited(code, "job"), running(), phase="Running", conditions=[condition(9)])
    found = explain(facts(make_pod(containers=TWO, **spec), status=status))
    assert (found.verdict, found.hint) == (verdict, hint)
    assert (found.cause, found.first_seen, found.final) == ("container-ended", NOW - 9, False)


def lost(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    ended = {"exitCode": 128, "reason": reason, "message": message, "finishedAt": ago(5), **more}
    return {"name": "main", "state": {"terminated": ended}}


@pytest.mark.parametrize(
    ("statuses", "hint"),
    [
        ([lost("ContainerStatusUnknown", startedAt=ago(9))], DESCRIBE),
        ([lost("Error")], DESCRIBE),
        ([], DESCRIBE),
    ],
)
def test_the_hint_names_a_log_if_there_is_one(statuses: list[Any], hint: str) -> None:
    status = not_ready(*statuses, phase="Failed")
    assert explain(facts(status=status)).hint == hint


RUNC = "runc create failed: unable to start container process: error during container init: "
MAPPED = (
    "use a node with Linux 6.3 or later, whose file systems map the ids of user namespaces, or "
    "remove hostUsers: false from the pod"
)


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        (
            RUNC + 'error mounting "/data" to rootfs at "/proc": operation not permitted',
            "correct the mount that is named, or see the log of the container runtime",
        ),
        (
            RUNC + "failed to fulfil mount request: failed to set MOUNT_ATTR_IDMAP on /pods/u: "
            "invalid argument (maybe the filesystem used doesn't support idmap mounts on this "
            "kernel?)",
            MAPPED,
        ),
        ("crun: mount_setattr `/data`: Invalid argument", MAPPED),
    ],
    ids=str,
)
def test_a_mount_that_fails_is_not_blamed_on_the_program(message: str, hint: str) -> None:
    status = not_ready(lost("StartError", message), phase="Failed")
    assert explain(facts(status=status)).hint == hint


def volume(cause: WaitCause, about: str, **more: Any) -> Any:
    return facts(volumes=(VolumeWait("data", Waits(cause, about, "no"), **more),))


CLAIM, PV = 'persistentvolumeclaim "default/data"', 'persistentvolume "pv-1"'


@pytest.mark.parametrize(
    ("cause", "about", "more", "hint"),
    [
        (
            WaitCause.BACKOFF,
            PV,
            {"export": "nas.example:/exports/data"},
            "check that NFS server nas.example exports /exports/data to this node and can be "
            "reached from it: showmount -e nas.example",
        ),
        (
            WaitCause.NOT_ATTACHED,
            'node "n"',
            {},
            "see why it is not attached: kubectl describe volumeattachment, and the log of the "
            "controller of the driver",
        ),
        (WaitCause.PV_MISSING, PV, {}, f"see why {PV} was removed: kubectl get pv"),
        (WaitCause.BUSY, PV, {}, OTHERWISE),
        (WaitCause.BACKOFF, PV, {}, OTHERWISE),
    ],
)
def test_a_volume(cause: WaitCause, about: str, more: Any, hint: str) -> None:
    found = explain(volume(cause, about, **more))
    assert found.waits[0].kind == "volume"
    assert volume_hint(volume(cause, about, **more), "data") == hint


@pytest.mark.parametrize("cause", list(WaitCause))
def test_each_cause_of_a_volume_has_a_hint(cause: WaitCause) -> None:
    found = volume_hint(volume(cause, 'x "{evil}\x1b[2J"'), "data")
    assert found
    assert "\x1b" not in found


STOP = (
    "see the log of the container runtime for what is named, and whether a process of it is in "
    "state D: ps -eo pid,state,comm"
)
ENDING: dict[str, Any] = {"worker": {"terminating_at": NOW - 40, "grace": 30}}
NO_HANDLER = 'failed to get sandbox runtime: no runtime for "gold" is configured'


@pytest.mark.parametrize(
    ("changes", "cause", "hint"),
    [
        ({**ENDING, "trace": doing(TraceCall.STOP_POD_SANDBOX, "ab", 9)}, "runtime-call", STOP),
        ({"last_sync": failed(Step.CGROUP, "no space")}, "cgroup", MESSAGE),
        ({"last_sync": failed(Step.RUNTIME, "odd")}, "retry", MESSAGE),
        ({"last_sync": failed(Step.RUNTIME, NO_HANDLER)}, "retry", MESSAGE),
    ],
)
def test_the_runtime(changes: dict[str, Any], cause: str, hint: str) -> None:
    found = explain(facts(**{"status": not_ready(waiting("ContainerCreating")), **changes}))
    assert (found.cause, found.hint) == (cause, hint)


def test_a_critical_pod_over_its_storage_limit() -> None:
    excluded = Excluded("emptyDir cache", 5 << 20, 4 << 20, NOW - OFFSET - 50)
    found = explain(facts(excluded=excluded))
    assert found.verdict == (
        "running and ready, for 20s; but emptyDir cache uses 5.0 MiB, more than its limit of 4.0 "
        "MiB; it is critical or static, and not evicted for that"
    )
    assert (found.cause, found.first_seen) == ("over-storage-limit", NOW - 50)
    assert found.hint == "have it write less, or raise the limit that is named in its manifest"


@pytest.mark.parametrize(
    ("problem", "stated"),
    [
        (WriteProblem(NOW - 60, NO_ANSWER, 0), "the API server has not answered yet"),
        (
            WriteProblem(
                NOW - 60, "refused", 3, "not Ready, container main ended with exit code 3"
            ),
            "refused (tried 3 times); not reported: not Ready, container main ended with exit code "
            "3",
        ),
        (
            WriteProblem(NOW - 60, "refused", 1, "Ready"),
            "refused (tried once); not reported: Ready",
        ),
    ],
)
def test_a_status_that_the_api_does_not_have(problem: WriteProblem, stated: str) -> None:
    found = explain(facts(write_problem=problem))
    assert found.verdict == (
        f"running and ready, for 20s; but its status has not reached the API for 1m: {stated}"
    )
    assert (found.cause, found.first_seen) == ("api-write", NOW - 60)
    assert "see whether the API server can be reached" in found.hint
