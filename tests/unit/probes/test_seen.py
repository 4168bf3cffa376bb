"""The state of a container that its probes read from a pod status."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.times import format_time
from kubeletpy.probes.schedule import ProbedContainer, container_state
from tests.unit.podworkers.builders import make_pod

NOW = 1_700_000_000.0
AGENT = NOW - 100


def seen(state: Any, *, started: bool = True, pod: Any = None, **container: Any) -> ProbedContainer:
    spec: Any = {"name": "main", "image": "i", **container}
    pod = pod or make_pod(containers=[spec])
    entry: Any = {"name": "main", "containerID": "containerd://c1", "started": started}
    status: Any = {"phase": "Running", "containerStatuses": [{**entry, "state": state}]}
    return container_state(pod, spec, status, now=NOW, agent_started_at=AGENT)


def ran(seconds: float) -> Any:
    return {"running": {"startedAt": format_time(NOW - seconds)}}


@pytest.mark.parametrize(
    ("ago", "survivor"), [(1, False), (99, False), (110, False), (111, True), (9999, True)]
)
def test_running(ago: float, survivor: bool) -> None:
    assert seen(ran(ago)) == ProbedContainer(
        "Running", "c1", running_for=ago, survivor=survivor, started=True
    )


def test_running_since_an_unknown_time() -> None:
    found = ProbedContainer("Running", "c1", running_for=0, survivor=False, started=True)
    assert seen({"running": {}}) == found
    spec: Any = {"name": "main", "image": "i"}
    status: Any = {"containerStatuses": [{"name": "main", "state": ran(5)}]}
    view = container_state(
        make_pod(containers=[spec]), spec, status, now=NOW, agent_started_at=AGENT
    )
    assert view == ProbedContainer(""), "without an id it is no container yet"


@pytest.mark.parametrize("ready", [True, False])
def test_readiness_is_that_of_the_status(ready: bool) -> None:
    spec: Any = {"name": "main", "image": "i"}
    entry: Any = {"name": "main", "containerID": "x://c1", "ready": ready, "state": ran(5)}
    found = container_state(
        make_pod(containers=[spec]),
        spec,
        {"containerStatuses": [entry]},
        now=NOW,
        agent_started_at=AGENT,
    )
    assert found.ready is ready


def test_a_clock_that_runs_ahead_is_no_negative_time() -> None:
    assert seen(ran(-60)).running_for == 0


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Always", 0, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_ended(policy: str, code: int, again: bool) -> None:
    spec = {"name": "main", "image": "i"}
    pod = make_pod(containers=[spec], restartPolicy=policy)
    found = seen({"terminated": {"exitCode": code}}, pod=pod)
    assert found == ProbedContainer("Running", "c1", started=True, may_run_again=again)


def test_an_exit_without_a_code_is_a_success() -> None:
    pod = make_pod(containers=[{"name": "main", "image": "i"}], restartPolicy="OnFailure")
    assert not seen({"terminated": {}}, pod=pod).may_run_again
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [0]}}
    ruled: Any = {"name": "main", "image": "i", "restartPolicyRules": [rule]}
    pod = make_pod(containers=[ruled], restartPolicy="Never")
    assert seen({"terminated": {}}, pod=pod).may_run_again


def test_waiting_for_a_restart_and_restart_all() -> None:
    assert seen({"waiting": {"reason": "CrashLoopBackOff"}}).may_run_again
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}
    spec: Any = {"name": "main", "image": "i"}
    other = {**spec, "name": "other", "restartPolicy": "Never", "restartPolicyRules": [rule]}
    pod = make_pod(containers=[spec, other], restartPolicy="Never")
    entries: Any = [
        {"name": "main", "containerID": "x://c1", "state": {"terminated": {"exitCode": 0}}},
        {"name": "other", "containerID": "x://c2", "state": {"terminated": {"exitCode": 3}}},
    ]
    status: Any = {"phase": "Running", "containerStatuses": entries}
    assert container_state(pod, spec, status, now=NOW, agent_started_at=AGENT).may_run_again
    entries[1]["state"] = {"terminated": {"exitCode": 4}}
    assert not container_state(pod, spec, status, now=NOW, agent_started_at=AGENT).may_run_again
    entries[1]["state"] = ran(5)
    assert not container_state(pod, spec, status, now=NOW, agent_started_at=AGENT).may_run_again


def test_nothing_known_yet() -> None:
    pod = make_pod()
    statuses: list[Any] = [
        {},
        {"phase": "Pending"},
        {"phase": "Pending", "containerStatuses": []},
    ]
    for status in statuses:
        found = container_state(pod, pod.containers[0], status, now=NOW, agent_started_at=AGENT)
        assert found == ProbedContainer(status.get("phase", ""))


def test_sidecars_are_found_among_init_containers() -> None:
    spec: Any = {"name": "side", "image": "i", "restartPolicy": "Always"}
    pod = make_pod(initContainers=[spec], deleting=5)
    entry: Any = {"name": "side", "containerID": "x://c9", "state": ran(5)}
    status: Any = {"phase": "Running", "initContainerStatuses": [entry]}
    found = container_state(pod, spec, status, now=NOW, agent_started_at=AGENT)
    assert (found.container_id, found.started, found.deleting) == ("c9", False, True)
