"""The pod whose story an event belongs to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.metrics.trace.model import Step
from kubeletpy.observe.recorder.model import (
    BadRecording,
    Changes,
    LineKind,
    decode,
    decode_shared,
    encode,
    encode_fields,
)
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    Decision,
    PodRuntimeStatus,
    ProbeOutcome,
    ProbeResults,
    RuntimeUser,
    SandboxStatus,
    StartError,
)
from kubeletpy.podworkers.records import (
    DesiredPods,
    Event,
    KillOptions,
    PodRejected,
    PodUpdate,
    StatusOutdated,
    SyncEnded,
    SyncOutcome,
    TimerFired,
    UpdateArrived,
    UpdateType,
    event_uid,
)
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.runtime_manager.plan.compute_actions import PlanInputs
from kubeletpy.runtime_manager.plan.resize import InEffect
from kubeletpy.status.generate import StatusInputs
from tests.kit.pods import make_pod, runtime_status

POD = make_pod(uid="u")
RUNNING = PodRuntimeStatus("r", "n", "ns")


@pytest.mark.parametrize(
    ("event", "uid"),
    [
        (UpdateArrived(PodUpdate(UpdateType.SYNC, POD), 1.0), "u"),
        (UpdateArrived(PodUpdate(UpdateType.KILL, runtime_pod=RUNNING), 1.0), "r"),
        (UpdateArrived(PodUpdate(UpdateType.KILL), 1.0), ""),
        (StatusOutdated(POD, None), "u"),
        (PodRejected(POD, Rejection(AdmissionReason("OutOfcpu"), "no CPU")), "u"),
        (SyncEnded("u", None, 1.0), "u"),
        (TimerFired("u", 1.0), "u"),
        (DesiredPods(frozenset("u"), 1.0), ""),
    ],
)
def test_the_pod_of_an_event(event: Event, uid: str) -> None:
    assert event_uid(event) == uid


# Inputs of decisions survive a round trip through JSON.

STATUS = PodRuntimeStatus(
    "u",
    "n",
    "ns",
    (SandboxStatus("s", True, attempt=2, ips=("192.0.2.1", "2001:db8::1")),),
    (
        ContainerStatus(
            "c", "main", ContainerState.EXITED, exit_code=3, user=RuntimeUser(1, 2, (3, 4))
        ),
    ),
    observed_at=7,
    labels={"a": "b"},
)
MADE = make_pod()
PROBES = ProbeResults(liveness={"c": ProbeOutcome.FAILURE})
VALUES = [
    PlanInputs(MADE, STATUS),
    PlanInputs(MADE, STATUS, PROBES, True, InEffect({"main": {"limits": {"cpu": "1"}}})),
    StatusInputs(
        pod=MADE,
        runtime=STATUS,
        runtime_name="containerd",
        old={"phase": "Pending"},
        now=12.5,
        sandbox_usable=True,
        host_ips=["192.0.2.1"],
        start_errors={"main": StartError("CrashLoopBackOff", "back-off", 99.0)},
        probes=PROBES,
        actuated_pod={"limits": {}},
    ),
    UpdateArrived(PodUpdate(UpdateType.KILL, MADE, kill=KillOptions(3, evict=True)), 5.0, True),
    SyncEnded(
        "u",
        SyncOutcome(error="e", step=Step.STATUS, decisions=(Decision("a", "b", failed=True),)),
        6.0,
    ),
    SyncEnded("u", None, 6.0, 0.25),
    DesiredPods(frozenset({"b", "a"}), 8.0),
]


class Shared:
    """Shared values, numbered in order of reference."""

    def __init__(self) -> None:
        self.values: dict[int, object] = {}

    def refer(self, value: object) -> int:
        number = len(self.values)
        self.values[number] = value
        return number


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_it_comes_back(value: Any) -> None:
    shared = Shared()
    text = json.dumps(encode_fields(value, shared.refer))
    assert decode(type(value), json.loads(text), shared.values) == value


def test_shared_objects_survive_a_round_trip() -> None:
    shared = Shared()
    text = json.dumps(encode_fields(STATUS, shared.refer))
    assert decode_shared("PodRuntimeStatus", json.loads(text)) == STATUS
    assert decode_shared("Pod", json.loads(json.dumps(MADE.object))) == MADE
    assert encode(MADE, shared.refer) == {"#": 0}
    assert encode(STATUS, shared.refer) == {"#": 1}


def test_a_default_is_left_out() -> None:
    assert encode_fields(PlanInputs(MADE, STATUS), Shared().refer) == {
        "pod": {"#": 0},
        "status": {"#": 1},
    }
    assert encode_fields(replace(STATUS.sandboxes[0], ips=()), Shared().refer) == {
        "id": "s",
        "ready": True,
        "attempt": 2,
    }


def test_a_function_is_recorded_as_a_marker_only() -> None:
    options = KillOptions(status_override=lambda status: {"phase": "Failed"})
    made = encode(options, Shared().refer)
    assert made == {"status_override": {"function": True}}
    override = decode(KillOptions, made, {}).status_override
    assert override({"phase": "Running"}) == {"phase": "Running"}


def test_a_field_of_a_newer_version_is_left_out() -> None:
    assert decode(Decision, {"what": "a", "why": "b", "new": 1}, {}) == Decision("a", "b")


@pytest.mark.parametrize(
    ("kind", "value", "parts"),
    [
        (Decision, {"what": "a"}, "Decision: .*[Mm]issing.*why"),
        (Decision, [], "Decision: Expected `object`, got `array`"),
        (PlanInputs, {"pod": {"#": 4}, "status": {"#": 0}}, "a Pod is referred to"),
        (PlanInputs, {"pod": {"#": 0}, "status": {"#": 0}}, "a Pod is referred to"),
        (PlanInputs, {"pod": "x", "status": {"#": 0}}, "a Pod is referred to"),
        (PlanInputs, {"pod": {"#": []}, "status": {"#": 0}}, "a Pod is referred to"),
        (ProbeResults, {"liveness": []}, r"Expected `object`, got `array` - at `\$.liveness`"),
        (ProbeResults, {"liveness": {"c": "no"}}, "Invalid enum value 'no'"),
        (DesiredPods, {"uids": {}, "now": 1}, "Expected `array`, got `object`"),
    ],
)
def test_malformed_inputs_are_refused(kind: type, value: Any, parts: str) -> None:
    with pytest.raises(BadRecording, match=parts):
        decode(kind, value, {0: STATUS})


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("Pod", {"metadata": {}}, "a pod of the recording: "),
        ("Pod", [], "a pod of the recording: "),
        ("Mystery", {}, "Mystery is not known to this version"),
    ],
)
def test_malformed_shared_objects_are_refused(name: str, value: Any, parts: str) -> None:
    with pytest.raises(BadRecording, match=parts):
        decode_shared(name, value)


def test_untyped_fields_are_as_recorded() -> None:
    assert decode(dict[str, Any], {"a": [1, {}]}, {}) == {"a": [1, {}]}


def test_an_object_of_another_type_is_an_error() -> None:
    with pytest.raises(TypeError, match="object is no input of a decision"):
        encode(object(), Shared().refer)


def test_a_pod_is_a_pod() -> None:
    assert isinstance(decode_shared("Pod", MADE.object), Pod)


# A decision is recorded when it, or what it is about, has changed.


def test_inputs_and_decisions_that_count_as_news() -> None:
    changes = Changes()
    pod, status = make_pod("a"), runtime_status("a")
    assert changes.has(LineKind.PLAN, pod, status, {"start": ["c"]})
    assert not changes.has(LineKind.PLAN, pod, status, {"start": ["c"]})
    assert changes.has(LineKind.STATUS, pod, status, {"start": ["c"]}), "another kind"
    assert changes.has(LineKind.PLAN, pod, status, {}), "another decision"
    assert changes.has(LineKind.PLAN, make_pod("a"), status, {}), "another object of the pod"
    pod, status = make_pod("a"), runtime_status("a")
    assert changes.has(LineKind.PLAN, pod, status, {})
    assert changes.has(LineKind.PLAN, pod, runtime_status("a"), {}), "the status was read again"
    assert changes.has(LineKind.PLAN, make_pod("b"), status, {}), "another pod"


def test_a_removed_pod_and_a_new_file_start_afresh() -> None:
    changes = Changes()
    pods = [make_pod("a"), make_pod("b")]
    status = runtime_status("a")
    for pod in pods:
        assert changes.has(LineKind.PLAN, pod, status, {})
    changes.removed(pods[0].uid)
    changes.removed("unknown")
    assert [changes.has(LineKind.PLAN, pod, status, {}) for pod in pods] == [True, False]
    changes.begin()
    assert [changes.has(LineKind.PLAN, pod, status, {}) for pod in pods] == [True, True]
