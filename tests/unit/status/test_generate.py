"""From runtime records to the status kubectl shows."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.probe_results import ProbeOutcome, ProbeResults
from kubeletpy.pods.runtime_status import RuntimeResources
from kubeletpy.pods.sync_results import StartError
from kubeletpy.status.finish import finished_status
from kubeletpy.status.generate import deadline, generate_api_pod_status

from .samples import NOW, inputs, pod, record, runtime, shown


def conditions(status: Any) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c.get("reason", "")) for c in status["conditions"]}


def only(status: Any) -> Any:
    (entry,) = status["containerStatuses"]
    return entry


def test_a_new_pod_waits_to_be_created() -> None:
    status = generate_api_pod_status(inputs(pod(), runtime(sandbox=False)))
    assert status["phase"] == "Pending"
    assert only(status)["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert conditions(status) == {
        "PodReadyToStartContainers": ("False", ""),
        "Initialized": ("True", ""),
        "Ready": ("False", "ContainersNotReady"),
        "ContainersReady": ("False", "ContainersNotReady"),
        "PodScheduled": ("True", ""),
    }
    messages = {c["type"]: c.get("message") for c in status["conditions"]}
    assert messages["Ready"] == "containers with unready status: [a]"
    assert "podIP" not in status


def test_with_init_containers_it_says_so() -> None:
    status = generate_api_pod_status(inputs(pod(init=[{"name": "i"}]), runtime()))
    assert only(status)["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert conditions(status)["Initialized"] == ("False", "ContainersNotInitialized")


def test_a_running_pod_is_ready_and_has_addresses() -> None:
    status = generate_api_pod_status(inputs(pod(), runtime(record("a"))))
    assert status["phase"] == "Running"
    assert conditions(status)["Ready"] == ("True", "")
    assert status["podIPs"] == [{"ip": "10.0.0.5"}]
    assert status["hostIPs"] == [{"ip": "192.168.0.9"}]
    entry = only(status)
    assert entry["containerID"] == "containerd://a-0"
    assert entry["imageID"] == "sha256:1"
    assert entry["started"] is True
    assert status["observedGeneration"] == 1
    assert {c.get("observedGeneration") for c in status["conditions"]} == {1}


def test_conditions_of_others_are_kept() -> None:
    theirs = {"type": "example.com/gate", "status": "False", "lastTransitionTime": "x"}
    of = pod(
        status={"conditions": [theirs]}, readinessGates=[{"conditionType": "example.com/gate"}]
    )
    status = generate_api_pod_status(inputs(of, runtime(record("a"))))
    assert status["conditions"][0] == theirs
    assert conditions(status)["ContainersReady"] == ("True", "")
    assert conditions(status)["Ready"] == ("False", "ReadinessGatesNotReady")


@pytest.mark.parametrize(
    ("outcome", "ready"),
    [(ProbeOutcome.SUCCESS, True), (ProbeOutcome.FAILURE, False), (None, False)],
)
def test_readiness_follows_the_probe(outcome: ProbeOutcome | None, ready: bool) -> None:
    probes = ProbeResults(readiness={"a-0": outcome} if outcome else {})
    status = generate_api_pod_status(
        inputs(pod({"name": "a", "readinessProbe": {}}), runtime(record("a")), probes=probes)
    )
    assert only(status)["ready"] is ready


@pytest.mark.parametrize(("was", "ready"), [("True", True), ("False", False)])
def test_after_a_restart_of_the_agent_readiness_stays_until_probed(was: str, ready: bool) -> None:
    of = pod(
        {"name": "a", "readinessProbe": {}},
        status={"conditions": [{"type": "Ready", "status": was}]},
    )
    status = generate_api_pod_status(inputs(of, runtime(record("a")), agent_started_at=NOW))
    assert only(status)["ready"] is ready


def test_started_waits_for_the_startup_probe_and_survives_the_agent() -> None:
    of = pod({"name": "a", "startupProbe": {}})
    assert only(generate_api_pod_status(inputs(of, runtime(record("a")))))["started"] is False
    before = shown("a", running={}, extra={"containerID": "containerd://a-0", "started": True})
    status = generate_api_pod_status(
        inputs(of, runtime(record("a")), old={"containerStatuses": [before]})
    )
    assert only(status)["started"] is True


def test_exit_code_and_times_are_reported() -> None:
    of = pod(restartPolicy="Never")
    status = generate_api_pod_status(inputs(of, runtime(record("a", "exited", 7))))
    ended = only(status)["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (7, "Error")
    assert ended["finishedAt"] > ended["startedAt"]
    assert status["phase"] == "Failed"
    assert conditions(status)["Ready"] == ("False", "PodFailed")


def test_second_record_is_the_last_state() -> None:
    has = runtime(record("a", attempt=1), record("a", "exited", 7))
    entry = only(generate_api_pod_status(inputs(pod(), has)))
    assert entry["restartCount"] == 1
    assert entry["lastState"]["terminated"]["exitCode"] == 7


def test_restart_count_never_falls() -> None:
    before = shown("a", waiting={}, extra={"restartCount": 5})
    entry = only(
        generate_api_pod_status(
            inputs(pod(), runtime(record("a")), old={"containerStatuses": [before]})
        )
    )
    assert entry["restartCount"] == 5


def test_a_held_back_start_waits_with_its_reason() -> None:
    has = runtime(record("a", "exited", 1))
    errors = {"a": StartError("CrashLoopBackOff", "back-off 10s restarting")}
    status = generate_api_pod_status(inputs(pod(), has, start_errors=errors))
    entry = only(status)
    assert entry["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert entry["lastState"]["terminated"]["exitCode"] == 1
    assert status["phase"] == "Running"


def test_an_old_start_error_does_not_hide_a_running_container() -> None:
    errors = {"a": StartError("ErrImagePull", "no")}
    entry = only(generate_api_pod_status(inputs(pod(), runtime(record("a")), start_errors=errors)))
    assert "running" in entry["state"]


def test_a_lost_container_is_reported_as_lost() -> None:
    before = shown("a", running={}, extra={"containerID": "containerd://x"})
    status = generate_api_pod_status(
        inputs(pod(restartPolicy="Never"), runtime(), old={"containerStatuses": [before]})
    )
    entry = only(status)
    assert entry["lastState"]["terminated"]["exitCode"] == 137
    assert entry["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert entry["restartCount"] == 1


def test_a_termination_once_reported_is_kept_when_its_record_is_gone() -> None:
    before = shown("a", terminated={"exitCode": 7})
    status = generate_api_pod_status(
        inputs(pod(restartPolicy="Never"), runtime(), old={"containerStatuses": [before]})
    )
    assert only(status)["state"]["terminated"]["exitCode"] == 7
    assert status["phase"] == "Failed"


def test_an_init_container_whose_record_is_gone_counts_as_done() -> None:
    status = generate_api_pod_status(inputs(pod(init=[{"name": "i"}]), runtime(record("a"))))
    (init,) = status["initContainerStatuses"]
    ended = init["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert ended["message"].startswith("Unable to get init container status")
    assert status["phase"] == "Running"


def test_deadline() -> None:
    started = "2027-01-15T07:59:50Z"
    of = pod(activeDeadlineSeconds=5, status={"startTime": started, "phase": "Running"})
    assert deadline(of, started) == NOW - 5
    status = generate_api_pod_status(inputs(of, runtime(record("a"))))
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


@pytest.mark.parametrize("where", ["old", "api"])
def test_a_terminal_phase_is_for_good(where: str) -> None:
    ended = {"phase": "Succeeded"}
    of = pod(status=ended if where == "api" else {})
    status = generate_api_pod_status(inputs(of, runtime(record("a")), old=ended))
    assert status["phase"] == "Succeeded"


def test_reason_stays_with_its_phase() -> None:
    old: Any = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    status = generate_api_pod_status(inputs(pod(), runtime(), old=old))
    assert (status["reason"], status["message"]) == ("Evicted", "low on memory")


def test_host_network_pods_have_the_nodes_address() -> None:
    has = runtime(record("a"))
    has = type(has)(**{**{f: getattr(has, f) for f in has.__slots__}, "ips": ()})
    status = generate_api_pod_status(inputs(pod(hostNetwork=True), has))
    assert status["podIP"] == "192.168.0.9"


@pytest.mark.parametrize(
    ("quota", "cpu"), [(50000, "500m"), (50001, "500m"), (100000, "1"), (None, "500m")]
)
def test_resources_show_what_is_enforced(quota: int | None, cpu: str) -> None:
    enforced = RuntimeResources(cpu_quota=quota, cpu_period=100000, memory_limit_bytes=2**30)
    of = pod({"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}})
    entry = only(generate_api_pod_status(inputs(of, runtime(record("a", resources=enforced)))))
    assert entry["resources"]["limits"] == {"cpu": cpu, "memory": "1Gi"}


@pytest.mark.parametrize(
    ("known", "has", "told"),
    [
        ({}, runtime(sandbox=False), False),
        ({}, runtime(), True),
        ({}, runtime(record("a", "exited", 1), sandbox=False), True),
        ({"containerStatuses": [shown("a", running={})]}, runtime(sandbox=False), True),
        ({"phase": "Pending"}, runtime(sandbox=False), True),
    ],
)
def test_a_refused_pod_keeps_its_status(known: Any, has: Any, told: bool) -> None:
    refused = {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: x", **known}
    status = generate_api_pod_status(inputs(pod(status=refused), has, terminated=True))
    assert bool(status.get("containerStatuses")) is told
    if not told:
        assert finished_status(pod(status=refused), status) == refused
