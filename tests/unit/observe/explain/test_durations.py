"""Starting points of the durations in explain, also after a restart of the agent."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.containers import exits
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.gather import explain
from kubeletpy.observe.explain.stuck import StuckPods
from kubeletpy.observe.explain.texts import api_time, clock_time
from kubeletpy.observe.explain.waits import ready_since, requested_to_end, stopped_at, waits
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.podworkers.history import HistoryEntry
from kubeletpy.volumes.claims.model import VolumeWait, WaitCause, Waits
from tests.unit.observe.explain.facts import NOW, OFFSET, doing, exited, facts, not_ready, running
from tests.unit.observe.explain.test_since import ago, condition
from tests.unit.podworkers.builders import make_pod

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
            [
                {
                    "name": "main",
                    "state": {"terminated": {"exitCode": 0, "finishedAt": ago(580)}},
                }
            ],
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
    notified: list[str] = []

    class Events:
        def event(self, _to: object, _type: str, _reason: str, message: str) -> None:
            notified.append(message)

    def late(_uid: str) -> PodFacts:
        worker = {**RESTARTED, "grace": 30}
        trace = doing(TraceCall.STOP_CONTAINER, "main", 79.0)
        return facts(deleted(600), worker=worker, trace=trace)

    StuckPods(lambda: ["uid-web"], late, Events()).report_stuck()
    assert notified == ["Still terminating after 10m: grace period main: StopContainer"]
