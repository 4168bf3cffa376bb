"""The first line of explain: one sentence for each reason why a pod does not run."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.images.policy import PullPosition
from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.observe.explain import phrases
from kubeletpy.observe.explain.gather import explain
from kubeletpy.observe.explain.hints import hint
from kubeletpy.observe.explain.model import Wait, WaitKind
from kubeletpy.observe.explain.verdict import verdict
from kubeletpy.pods.runtime_status import ProbeOutcome, StartError
from kubeletpy.podworkers.records import Stage
from kubeletpy.probes.schedule import ProbeFinding, ProbeKind, ProbeReport
from kubeletpy.status.store import WriteProblem
from kubeletpy.volumes.claims.model import VolumeWait, WaitCause, Waits
from tests.kit.observe import NOW, OFFSET, doing, exited, facts, failed, not_ready, running, waiting
from tests.kit.pods import make_pod

READINESS = make_pod(
    containers=[{"name": "main", "image": "i", "readinessProbe": {}, "startupProbe": {}}]
)
ENDING: dict[str, Any] = {"terminating_at": NOW - 10, "grace": 30}
ENDED: dict[str, Any] = {**ENDING, "terminated_at": NOW - 4}
DONE: dict[str, Any] = {**ENDED, "finished": True}
DELETED = make_pod(deleting=30)
HELD_OBJECT: Any = {
    **DELETED.object,
    "metadata": {**DELETED.metadata, "finalizers": ["example.com/hold"]},
}
HELD = type(DELETED)(HELD_OBJECT)

CRASH = StartError("CrashLoopBackOff", "back-off 20s restarting failed container=main", NOW + 14)
BAD, GOOD = ProbeOutcome.FAILURE, ProbeOutcome.SUCCESS


def crashing(reason: str, code: int, message: str = "") -> dict[str, Any]:
    """Status of a pod whose container is in its restart back-off."""
    ended = {**exited(code)["state"]["terminated"], "reason": reason, "message": message}
    return not_ready(waiting("CrashLoopBackOff", restartCount=3, lastState={"terminated": ended}))


STATES: list[tuple[str, dict[str, Any], str, bool]] = [
    (
        "well after restarts",
        {"status": {"containerStatuses": [running(restartCount=2)]}},
        "running and ready, for 20s, 2 restarts",
        True,
    ),
    (
        "ended by itself, whatever its probes",
        {
            "status": crashing("Error", 3),
            "start_errors": {"main": CRASH},
            "probe_reports": (
                ProbeReport("main", ProbeKind.READINESS, BAD, ProbeFinding(BAD, "not yet")),
                ProbeReport("main", ProbeKind.LIVENESS, GOOD, ProbeFinding(BAD, "no answer")),
                ProbeReport("other", ProbeKind.LIVENESS, BAD, ProbeFinding(BAD, "no answer")),
            ),
        },
        "not running: container main keeps exiting (last exit code 3, 3 restarts); it restarts "
        "in 14s",
        False,
    ),
    (
        "pulling, after a time in the queue",
        {
            "status": not_ready(),
            "trace": doing(TraceCall.PULL_IMAGE, "big:1", 65),
            "pulls": {"big:1": PullPosition(NOW - OFFSET - 20, None, 1, 1)},
        },
        "not running: image big:1 is being pulled for 20s",
        False,
    ),
    (
        "an image is pulled by a runtime that shows no progress",
        {
            "status": not_ready(),
            "trace": doing(TraceCall.PULL_IMAGE, "big:1", 65),
            "pulls": {"big:1": PullPosition(NOW - OFFSET - 20, None, 1, 1, measurable=False)},
        },
        "not running: image big:1 is being pulled (progress is not available from this runtime) "
        "for 20s",
        False,
    ),
    (
        "some call hangs",
        {"status": not_ready(), "trace": doing(TraceCall.CREATE_CONTAINER, "main", 9)},
        "not running: CreateContainer main has been running for 9s",
        False,
    ),
    (
        "many pods start",
        {"status": not_ready(), "trace": doing(TraceCall.START_PLACE, "", 2)},
        "not running: other pods start before it for 2s",
        False,
    ),
    (
        "not admitted yet",
        {"record": None, "status": not_ready(), "awaits_admission": True},
        "not started: whether it may run here is not decided yet: other pods give way, or the API "
        "is queried",
        False,
    ),
    (
        "many pods stop",
        {"pod": DELETED, "worker": ENDING, "trace": doing(TraceCall.STOP_PLACE, "", 2)},
        "terminating for 10s: other pods stop before it for 2s",
        False,
    ),
]


@pytest.mark.parametrize(
    ("changes", "sentence", "healthy"), [row[1:] for row in STATES], ids=[row[0] for row in STATES]
)
def test_verdicts(changes: dict[str, Any], sentence: str, healthy: bool) -> None:
    assert verdict(facts(**changes)) == (sentence, healthy)


def test_waits_are_sorted_by_importance() -> None:
    found = explain(
        facts(
            status=not_ready(waiting("x")),
            start_errors={"main": CRASH},
            runtime_error="down",
            write_problem=WriteProblem(NOW, "no", 1),
        )
    )
    assert [wait.kind for wait in found.waits] == [
        WaitKind.RUNTIME,
        WaitKind.CRASH_BACKOFF,
        WaitKind.API_WRITE,
    ]
    assert found.waits[1].until == NOW + 14


def test_a_pod_that_only_the_runtime_has() -> None:
    found = explain(facts(pod=make_pod(), record=None, status=not_ready()))
    assert found.worker.state == "none"
    sentence, _ = verdict(facts(record=None, status=not_ready(), **{"trace": None}))
    assert sentence == "not started yet: its worker has not taken it up"


CALL = "NodeStageVolume of driver x"
CLAIM = 'persistentvolumeclaim "default/data", persistentvolume "pv1"'
UNDER_WAY = VolumeWait("v", Waits(WaitCause.BUSY, CLAIM, f"{CALL} is under way", CALL), 40.0)


@pytest.mark.parametrize("ends", [False, True])
def test_the_call_and_the_object_that_a_volume_waits_for(ends: bool) -> None:
    stage = Stage.TERMINATED if ends else Stage.SYNC
    more: dict[str, Any] = (
        {"worker": ENDED} if ends else {"status": not_ready(waiting("ContainerCreating"))}
    )
    known = facts(
        volumes=(UNDER_WAY,),
        wall_offset=NOW - 100.0,
        last_sync=failed(Step.VOLUMES, "the same again", stage),
        **more,
    )
    stated, healthy = verdict(known)
    assert stated.endswith(f"volume v for 1m: {CALL} is under way ({CLAIM})")
    assert not healthy
    waits = [wait for wait in explain(known).waits if wait.kind is WaitKind.VOLUME]
    assert [(wait.subject, wait.call, wait.since) for wait in waits] == [("v", CALL, NOW - 60.0)]


def test_how_often_a_write_was_tried() -> None:
    assert phrases.api_write("forbidden", 1) == "forbidden (tried once)"
    assert phrases.api_write("forbidden", 2) == "forbidden (tried 2 times)"


@pytest.mark.parametrize(
    ("kind", "plain", "timed"),
    [
        (WaitKind.CRASH_BACKOFF, "container x keeps exiting", "; it restarts in 5s"),
        (WaitKind.IMAGE, "container x can't start: why", "; next try in 5s"),
        (WaitKind.IMAGE_PULL, "image x why", " for 1m"),
        (WaitKind.SANDBOX, "the runtime is creating the sandbox", " for 1m"),
        (WaitKind.HOOK, "container x: why", " for 1m, given up in 5s"),
        (WaitKind.CLAIM, "resource claim x: why", " for 1m, given up in 5s"),
        (WaitKind.START_PLACE, "other pods start before it", " for 1m"),
        (WaitKind.STOP_PLACE, "other pods stop before it", " for 1m"),
        (WaitKind.RELEASE, "why", " for 1m"),
        (WaitKind.RUNTIME_CALL, "why x has been running", " for 1m"),
        (WaitKind.INIT_CONTAINER, "init container x why", " for 1m"),
        (WaitKind.FINALIZER, "finalizer x keeps it", " for 1m"),
    ],
)
def test_the_sentence_of_a_wait_contains_its_times(kind: WaitKind, plain: str, timed: str) -> None:
    wait = Wait(kind, "x", "why", call="NodePrepareResources")
    assert phrases.sentence(facts(), wait) == plain
    known = replace(wait, since=NOW - 60, until=NOW + 5)
    assert phrases.sentence(facts(), known) == plain + timed


@pytest.mark.parametrize(
    ("wait", "sentence"),
    [
        (
            Wait(WaitKind.GRACE_PERIOD, "x", ""),
            "container x has not ended although its stop was requested",
        ),
        (
            Wait(WaitKind.GRACE_PERIOD, "x", "", NOW - 60, NOW + 5),
            "container x has not ended 1m after its stop was requested; it is killed in 5s",
        ),
        (Wait(WaitKind.PROBE, "x", "its probe fails"), "its probe fails (container x)"),
        (
            Wait(WaitKind.PROBE, "main", "its probe fails", NOW - 5),
            "its probe fails (container main, 20s after its start)",
        ),
        (Wait(WaitKind.READINESS_GATE, "x", "not set", NOW - 60), "readiness gate x: not set"),
        (Wait(WaitKind.RUNTIME, "", "down"), "the container runtime can't be used: down"),
        (
            Wait(WaitKind.API_WRITE, "", "refused", NOW - 60),
            "its status has not reached the API for 1m: refused",
        ),
        (Wait(WaitKind.API_WRITE, "", "refused"), "its status has not reached the API: refused"),
        (Wait(WaitKind.RESIZE, "deferred", ""), "its resize is deferred"),
        (
            Wait(WaitKind.RESIZE, "deferred", "no cpu", NOW - 60),
            "its resize is deferred for 1m: no cpu",
        ),
        (Wait(WaitKind.VOLUME, "x", "why"), "volume x: why"),
        (Wait(WaitKind.VOLUME, "", "why", NOW - 60, NOW + 5), "why; next try in 5s"),
        (Wait(WaitKind.CLAIM, "", "why", NOW - 60), "why"),
        (
            Wait(WaitKind.RELEASE, "", "why", NOW - 60, call=TraceCall.REMOVE_CGROUP),
            "its cgroup is being removed for 1m",
        ),
    ],
)
def test_sentences_of_waits(wait: Wait, sentence: str) -> None:
    assert phrases.sentence(facts(), wait) == sentence


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("OutOfcpu", "request less cpu, or use a node that has more"),
        ("OutOfpods", "the node has as many pods as it may have: use another node"),
        ("UnexpectedAdmissionError", "create a new pod once that is fixed"),
        ("", "create a new pod once that is fixed"),
    ],
)
def test_hints_for_refused_pods(reason: str, advice: str) -> None:
    assert hint(facts(status={"phase": "Failed", "reason": reason}), "refused", "") == advice
