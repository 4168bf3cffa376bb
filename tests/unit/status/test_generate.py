"""Runtime records become the status that kubectl shows."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.runtime_status import (
    ProbeOutcome,
    ProbeResults,
    RuntimeResources,
    SandboxStatus,
    StartError,
)
from kubeletpy.status.container_status import finished_status
from kubeletpy.status.generate import StatusInputs, deadline, generate_api_pod_status
from tests.kit.status import NOW, inputs, pod, record, runtime
from tests.kit.status import reported as published


def conditions(status: Any) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c.get("reason", "")) for c in status["conditions"]}


def only(status: Any) -> Any:
    (entry,) = status["containerStatuses"]
    return entry


def test_a_new_pod_waits_to_be_created() -> None:
    lacking = inputs(pod(), runtime(sandbox=False), sandbox_message="no pod sandbox exists")
    status = generate_api_pod_status(lacking)
    assert status["phase"] == "Pending"
    assert only(status)["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert conditions(status) == {
        "PodReadyToStartContainers": ("False", "PodSandboxNotReady"),
        "Initialized": ("True", ""),
        "Ready": ("False", "ContainersNotReady"),
        "ContainersReady": ("False", "ContainersNotReady"),
        "PodScheduled": ("True", ""),
    }
    messages = {c["type"]: c.get("message") for c in status["conditions"]}
    assert messages["Ready"] == "containers with unready status: [a]"
    assert messages["PodReadyToStartContainers"] == "no pod sandbox exists"
    assert "podIP" not in status


def test_with_init_containers_the_reason_is_pod_initializing() -> None:
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


def test_started_waits_for_the_startup_probe_and_survives_the_agent() -> None:
    of = pod({"name": "a", "startupProbe": {}})
    assert only(generate_api_pod_status(inputs(of, runtime(record("a")))))["started"] is False
    before = published("a", running={}, extra={"containerID": "containerd://a-0", "started": True})
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


def test_a_held_back_start_waits_with_its_reason() -> None:
    has = runtime(record("a", "exited", 1))
    errors = {"a": StartError("CrashLoopBackOff", "back-off 10s restarting")}
    status = generate_api_pod_status(inputs(pod(), has, start_errors=errors))
    entry = only(status)
    assert entry["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert entry["lastState"]["terminated"]["exitCode"] == 1
    assert status["phase"] == "Running"


def test_a_reported_termination_is_kept_without_its_record() -> None:
    before = published("a", terminated={"exitCode": 7})
    status = generate_api_pod_status(
        inputs(pod(restartPolicy="Never"), runtime(), old={"containerStatuses": [before]})
    )
    assert only(status)["state"]["terminated"]["exitCode"] == 7
    assert status["phase"] == "Failed"


def test_an_init_container_without_a_record_counts_as_done() -> None:
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


@pytest.mark.parametrize(
    ("old", "in_api", "notified"),
    [
        ({"phase": "Failed", "reason": "R", "message": "m"}, {}, ("R", "m")),
        ({"phase": "Failed"}, {"phase": "Failed", "reason": "R", "message": "m"}, ("R", "m")),
        (
            {"phase": "Failed", "reason": "R", "message": "m"},
            {"phase": "Failed", "reason": "S", "message": "n"},
            ("R", "m"),
        ),
        ({"phase": "Pending", "reason": "R", "message": "m"}, {}, (None, None)),
    ],
)
def test_reason_and_message_stay_with_their_phase(old: Any, in_api: Any, notified: Any) -> None:
    status = generate_api_pod_status(inputs(pod(status=in_api), runtime(record("a")), old=old))
    assert (status.get("reason"), status.get("message")) == notified


def test_host_network_pods_have_the_nodes_address() -> None:
    has = runtime(record("a"))
    has = replace(has, ips=())
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
    ("known", "has", "notified"),
    [
        ({}, runtime(sandbox=False), False),
        ({}, runtime(), True),
        ({}, runtime(record("a", "exited", 1), sandbox=False), True),
        ({"containerStatuses": [published("a", running={})]}, runtime(sandbox=False), True),
        ({"initContainerStatuses": [published("i", running={})]}, runtime(sandbox=False), True),
        ({"phase": "Pending"}, runtime(sandbox=False), True),
    ],
)
def test_a_refused_pod_keeps_its_status(known: Any, has: Any, notified: bool) -> None:
    refused = {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: x", **known}
    status = generate_api_pod_status(inputs(pod(status=refused), has, terminated=True))
    assert bool(status.get("containerStatuses")) is notified
    only_old = inputs(pod(), has, old=refused, terminated=True)
    assert generate_api_pod_status(only_old).get("containerStatuses")
    if not notified:
        assert finished_status(pod(status=refused), status, NOW) == refused


@pytest.mark.parametrize(
    ("of", "old", "expected"),
    [({"generation": 3}, 2, 3), ({"generation": 1}, 2, 2), ({"generation": 0}, 0, None)],
)
def test_the_generation_observed_never_falls(of: Any, old: int, expected: int | None) -> None:
    status = generate_api_pod_status(
        inputs(pod(metadata=of), runtime(), old={"observedGeneration": old})
    )
    assert status.get("observedGeneration") == expected


def test_optional_fields_are_absent_by_default() -> None:
    status = generate_api_pod_status(inputs(pod(), runtime(record("a"))))
    assert not status.keys() & {"reason", "message", "startTime"}


@pytest.mark.parametrize(
    ("spec", "start", "expected"),
    [({}, "2027-01-15T07:59:50Z", None), ({"activeDeadlineSeconds": 5}, None, None)],
)
def test_no_deadline(spec: Any, start: str | None, expected: float | None) -> None:
    assert deadline(pod(**spec), start) == expected


@pytest.mark.parametrize(("seconds", "ended"), [(0, True), (9, True), (10, True), (11, False)])
def test_the_deadline_is_the_moment_itself(seconds: int, ended: bool) -> None:
    of = pod(activeDeadlineSeconds=seconds, status={"startTime": "2027-01-15T07:59:50Z"})
    status = generate_api_pod_status(inputs(of, runtime(record("a"))))
    assert (status["phase"] == "Failed") is ended


def test_an_ended_pod_has_no_deadline() -> None:
    started = {"startTime": "2027-01-15T07:59:50Z", "phase": "Succeeded"}
    of = pod(activeDeadlineSeconds=5)
    status = generate_api_pod_status(inputs(of, runtime(record("a")), old=started))
    assert (status["phase"], status.get("reason")) == ("Succeeded", None)


READY: Any = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "True"}]
GATED: Any = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"}]
"""A readiness gate is not true, or the node lifecycle controller cannot reach the node."""


@pytest.mark.parametrize(
    ("known", "ready"),
    [
        ({}, True),
        ({"containerID": "containerd://a-1"}, False),
        ({"containerID": ""}, False),
        ({"ready": False}, False),
        ({"state": {"terminated": {"exitCode": 1}}, "ready": False}, False),
    ],
)
@pytest.mark.parametrize("kind", ["regular", "sidecar", "static"])
def test_only_the_container_that_the_api_shows_stays_ready_until_it_is_probed(
    kind: str, known: Any, ready: bool
) -> None:
    name = "i" if kind == "sidecar" else "a"
    entry = {"containerID": f"containerd://{name}-0", "started": True, "ready": True, **known}
    entry = {**published(name, running={}, extra=entry), **known}
    field = "initContainerStatuses" if kind == "sidecar" else "containerStatuses"
    old: Any = {field: [entry], "conditions": READY}
    probed = {"name": name, "readinessProbe": {}}
    source = {"kubernetes.io/config.source": "file"} if kind == "static" else {}
    of = (
        pod({"name": "a"}, initContainers=[{**probed, "restartPolicy": "Always"}], status=old)
        if kind == "sidecar"
        else pod(probed, metadata={"annotations": source}, status={} if source else old)
    )
    has = runtime(record("a"), record("i")) if kind == "sidecar" else runtime(record("a"))
    status = generate_api_pod_status(inputs(of, has, old=old))
    by_name = {
        each["name"]: each
        for each in (*status["containerStatuses"], *status.get("initContainerStatuses", ()))
    }
    assert by_name[name]["ready"] is ready
    assert conditions(status)["Ready"][0] == str(ready)


@pytest.mark.parametrize(
    ("probes", "known", "gates", "ready"),
    [
        ({}, READY, [], True),
        ({}, [], [], True),
        ({}, [{"type": "ContainersReady", "status": "False"}], [], True),
        ({}, GATED, [{"conditionType": "example.com/gate"}], True),
        ({}, GATED, [], False),
        ({"readiness": {"a-0": ProbeOutcome.FAILURE}}, READY, [], False),
        ({"startup": {"a-0": ProbeOutcome.FAILURE}}, READY, [], False),
    ],
)
def test_readiness_is_inherited_by_container_unless_somebody_revoked_it(
    probes: Any, known: Any, gates: Any, ready: bool
) -> None:
    entry = {"containerID": "containerd://a-0", "started": True, "ready": True}
    old: Any = {"conditions": known, "containerStatuses": [published("a", running={}, extra=entry)]}
    of = pod({"name": "a", "readinessProbe": {}}, status=old, readinessGates=gates)
    status = generate_api_pod_status(
        inputs(of, runtime(record("a")), old=old, probes=ProbeResults(**probes))
    )
    assert only(status)["ready"] is ready


@pytest.mark.parametrize(
    ("init", "has", "started", "ready"),
    [
        ({"name": "i"}, record("i"), True, False),
        ({"name": "i"}, record("i", "exited", 0), False, True),
        ({"name": "i"}, record("i", "exited", 1), False, False),
        ({"name": "i", "restartPolicy": "Always"}, record("i"), True, True),
        ({"name": "i", "restartPolicy": "Always"}, record("i", "exited", 0), False, False),
    ],
)
def test_init_containers_are_ready_when_done(
    init: Any, has: Any, started: bool, ready: bool
) -> None:
    status = generate_api_pod_status(inputs(pod(init=[init]), runtime(has)))
    (entry,) = status["initContainerStatuses"]
    assert (entry["started"], entry["ready"]) == (started, ready)


@pytest.mark.parametrize(
    ("sandboxes", "container", "phase"),
    [
        (["s0"], record("a"), "Running"),
        (["s1", "s0"], record("a"), "Pending"),
        ([], record("a"), "Pending"),
        (["s0"], record("x"), "Pending"),
    ],
)
def test_a_sidecar_is_awaited_anew_in_each_sandbox(
    sandboxes: Any, container: Any, phase: str
) -> None:
    of = pod(init=[{"name": "s", "restartPolicy": "Always", "startupProbe": {}}])
    has = runtime(record("s"), container)
    every = tuple(SandboxStatus(id=i, ready=True) for i in sandboxes)
    has = replace(has, sandboxes=every)
    before = [published("a", running={}), published("s", running={})]
    status = generate_api_pod_status(inputs(of, has, old={"containerStatuses": before}))
    assert status["phase"] == phase


OURS = {"type": "DisruptionTarget", "status": "True", "reason": "ours"}
THEIRS = {"type": "DisruptionTarget", "status": "True", "reason": "theirs"}


@pytest.mark.parametrize(
    ("in_api", "old", "reasons"),
    [
        ([], [], []),
        ([THEIRS], [], ["theirs"]),
        ([], [OURS], ["ours"]),
        ([THEIRS], [OURS], ["ours"]),
    ],
)
def test_one_disruption_is_shown(in_api: Any, old: Any, reasons: list[str]) -> None:
    of = pod(status={"conditions": [{"type": "Ready", "status": "True"}, *in_api]})
    status = generate_api_pod_status(inputs(of, runtime(), old={"conditions": old}))
    found = [c for c in status["conditions"] if c["type"] == "DisruptionTarget"]
    assert [c.get("reason") for c in found] == reasons
    assert len([c for c in status["conditions"] if c["type"] == "Ready"]) == 1


def test_two_addresses_of_the_node_are_shown() -> None:
    facts = inputs(pod(), runtime(record("a")))
    facts = replace(facts, host_ips=("1.1.1.1", "::1", "2.2.2.2"))
    status = generate_api_pod_status(facts)
    assert status["hostIP"] == "1.1.1.1"
    assert status["hostIPs"] == [{"ip": "1.1.1.1"}, {"ip": "::1"}]


def test_all_addresses_of_the_pod_are_shown() -> None:
    has = replace(runtime(record("a")), ips=("10.0.0.5", "fd00::5"))
    status = generate_api_pod_status(replace(inputs(pod(), has), host_ips=()))
    assert status["podIP"] == "10.0.0.5"
    assert status["podIPs"] == [{"ip": "10.0.0.5"}, {"ip": "fd00::5"}]
    assert not status.keys() & {"hostIP", "hostIPs"}


HAD: Any = {
    "hostIP": "192.168.0.1",
    "hostIPs": [{"ip": "192.168.0.1"}],
    "podIP": "10.0.0.1",
    "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
}


@pytest.mark.parametrize(
    ("old", "metadata", "spec", "supplied", "kept"),
    [
        ({"phase": "Succeeded"}, {}, {}, {}, True),
        ({"phase": "Failed", "reason": "Evicted"}, {}, {}, {}, True),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, {}, {}, {}, True),
        ({"phase": "Running"}, {}, {}, {"terminated": True}, True),
        ({"phase": "Running"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, {}, True),
        ({"phase": "Succeeded"}, {}, {"hostNetwork": True}, {}, True),
        # this one gets a sandbox with another address
        ({"phase": "Running"}, {}, {}, {}, False),
    ],
)
def test_a_pod_that_has_ended_keeps_its_addresses(
    old: Any, metadata: Any, spec: Any, supplied: Any, kept: bool
) -> None:
    ended: Any = {**old, **HAD}
    of = pod(metadata=metadata, status=ended, **spec)
    for host_ips in ("192.168.0.9",), ():
        has = inputs(of, runtime(record("a", "exited"), sandbox=False), **supplied)
        status = generate_api_pod_status(replace(has, host_ips=host_ips))
        if kept:
            assert {name: status.get(name) for name in HAD} == HAD
        else:
            assert "podIP" not in status
            assert status["hostIP"] == (*host_ips, "192.168.0.1")[0]


def test_a_pod_on_the_hosts_network_keeps_its_addresses_until_those_of_the_node_are_known() -> None:
    of = pod(status={"phase": "Running", **HAD}, hostNetwork=True)
    has = replace(inputs(of, replace(runtime(record("a")), ips=())), host_ips=())
    published: Any = generate_api_pod_status(has)
    assert {name: published.get(name) for name in HAD} == HAD
    published = generate_api_pod_status(replace(has, host_ips=("192.168.0.9",)))
    assert (published["podIP"], published["hostIP"]) == ("192.168.0.9", "192.168.0.9")


def test_the_runtime_knows_the_addresses_of_an_ended_pod_better_than_the_api() -> None:
    of = pod(status={"phase": "Running", **HAD})
    status = generate_api_pod_status(
        inputs(of, runtime(record("a", "exited"), sandbox=True), terminated=True)
    )
    assert (status["podIP"], status["hostIP"]) == ("10.0.0.5", "192.168.0.9")


@pytest.mark.parametrize(
    ("state", "known_id", "reported", "kept"),
    [
        ("exited", "containerd://a-0", {}, True),
        ("exited", "containerd://a-0", {"a": [{"name": "other"}]}, False),
        ("exited", "containerd://a-9", {}, False),
        ("running", "containerd://a-0", {}, False),
    ],
)
def test_a_container_that_has_ended_keeps_the_health_of_its_devices(
    state: str, known_id: str, reported: Any, kept: bool
) -> None:
    health = [{"name": "x/d", "resources": [{"resourceID": "1", "health": "Unhealthy"}]}]
    entry = published(
        "a", running={}, extra={"containerID": known_id, "allocatedResourcesStatus": health}
    )
    old: Any = {"containerStatuses": [entry]}
    status = generate_api_pod_status(
        inputs(pod(), runtime(record("a", state)), old=old, device_health=reported)
    )
    found = only(status).get("allocatedResourcesStatus")
    assert found == (health if kept else reported.get("a"))


@pytest.mark.parametrize(
    ("active", "before", "expected"),
    [(False, "False", "False"), (True, "False", "True"), (False, "True", "False")],
)
def test_a_restart_of_all_is_a_condition(active: bool, before: str, expected: str) -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [9]}}
    of = pod({"name": "a", "restartPolicyRules": [rule]})
    old: Any = {
        "conditions": [{"type": "AllContainersRestarting", "status": before}],
        "containerStatuses": [published("a", running={})],
    }
    status = generate_api_pod_status(inputs(of, runtime(), old=old, restarting_all=active))
    assert conditions(status)["AllContainersRestarting"][0] == expected
    waiting = only(status)["state"]["waiting"]["reason"]
    assert (waiting == "RestartingAllContainers") is (active or before == "True")


def test_the_health_of_devices_is_shown_where_there_is_some() -> None:
    health: Any = [{"name": "claim:c", "resources": [{"resourceID": "x", "health": "Healthy"}]}]
    supplied = inputs(pod("a", "b"), runtime(record("a")), device_health={"b": health})
    shown_ = generate_api_pod_status(supplied)["containerStatuses"]
    assert [entry.get("allocatedResourcesStatus") for entry in shown_] == [None, health]


def test_ephemeral_containers_are_listed_apart() -> None:
    of = pod(ephemeralContainers=[{"name": "debug", "image": "busybox"}])
    status = generate_api_pod_status(inputs(of, runtime(record("a"), record("debug"))))
    (debug,) = status["ephemeralContainerStatuses"]
    assert (debug["name"], debug["containerID"]) == ("debug", "containerd://debug-0")
    assert only(status)["name"] == "a"


def test_requests_that_are_not_made_are_not_allocated() -> None:
    status = generate_api_pod_status(inputs(pod(), runtime(record("a"))))
    assert "allocatedResources" not in only(status)


def test_lists_of_containers_that_there_are_none_of_are_left_out() -> None:
    status = generate_api_pod_status(inputs(pod(), runtime(record("a"))))
    assert [name for name in status if name.endswith("ontainerStatuses")] == ["containerStatuses"]


def test_the_same_inputs_later_are_like_those_before() -> None:
    before = inputs(pod(), runtime(record("a")))
    assert replace(before, now=NOW + 90).is_like(before)
    limited = inputs(pod(activeDeadlineSeconds=30), runtime(record("a")))
    assert not replace(limited, now=NOW + 90).is_like(limited)


@pytest.mark.parametrize("name", StatusInputs.__struct_fields__)
def test_any_other_input_makes_a_difference(name: str) -> None:
    before = inputs(pod(), runtime(record("a")))
    other: dict[str, Any] = {
        "pod": pod(),
        "runtime": runtime(record("a")),
        "old": {"phase": "Running"},
        "probes": ProbeResults(readiness={"c": ProbeOutcome.FAILURE}),
        "host_ips": ("10.0.0.1",),
        "start_errors": {"a": StartError("ErrImagePull", "no")},
        "resize_conditions": ({"type": "PodResizePending", "status": "True"},),
        "actuated": {"a": {"requests": {"cpu": "1"}}},
        "actuated_pod": {"requests": {"cpu": "1"}},
        "device_health": {"a": [{"name": "d"}]},
        "runtime_name": "docker",
        "now": NOW + 90,
    }
    changed: Any = other.get(name, not getattr(before, name))
    after = replace(before, **{name: changed})
    assert after.is_like(before) is (name == "now")


def test_the_health_of_volumes_stays_until_a_driver_reports_another() -> None:
    sick = {"status": "Degraded", "reason": "Slow", "message": "m"}
    entry: Any = {"name": "v", "healthConditions": [sick], "lastTransitionTime": "t"}
    well: Any = {"name": "v", "healthConditions": [], "lastTransitionTime": "u"}
    assert "volumeHealth" not in generate_api_pod_status(inputs(pod(), runtime()))
    before = inputs(pod(), runtime(), old={"volumeHealth": [entry]})
    assert generate_api_pod_status(before)["volumeHealth"] == [entry]
    after = inputs(pod(), runtime(), old={"volumeHealth": [entry]}, volume_health=[well])
    assert generate_api_pod_status(after)["volumeHealth"] == [well]
