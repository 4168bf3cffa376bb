"""All waits of a pod, in order, and the resulting sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.base.structs import replace
from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.containers import exits, last_exit, last_message
from kubeletpy.observe.explain.deaths import Actor, DeathCause, DeathKind
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.gather import explain
from kubeletpy.observe.explain.model import WaitKind
from kubeletpy.observe.explain.verdict import verdict
from kubeletpy.observe.explain.waits import waits
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import (
    HIDDEN,
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    ProbeOutcome,
    ProbeResults,
    StartError,
)
from kubeletpy.podworkers.history import LastSync
from kubeletpy.podworkers.records import Stage, SyncOutcome
from kubeletpy.probes.schedule import ProbeFinding, ProbeKind, ProbeReport
from kubeletpy.resources.allocation.conditions import IN_PROGRESS
from kubeletpy.resources.devices.model import AwaitedPlugins
from kubeletpy.resources.dra.model import ClaimWait
from kubeletpy.status.store import WriteProblem
from kubeletpy.volumes.claims.model import VolumeWait, WaitCause, Waits
from tests.kit.observe import (
    NOW,
    STARTED,
    doing,
    exited,
    facts,
    failed,
    not_ready,
    running,
    waiting,
)
from tests.kit.pods import make_pod

K = WaitKind
READY = {"type": "Ready", "status": "True"}
INITS = make_pod(
    initContainers=[
        {"name": "one", "image": "i"},
        {"name": "side", "image": "i", "restartPolicy": "Always"},
        {"name": "two", "image": "i"},
    ]
)
PROBED = make_pod(
    containers=[
        {"name": "a", "image": "i", "startupProbe": {}, "readinessProbe": {}},
        {"name": "b", "image": "i", "readinessProbe": {}},
        {"name": "c", "image": "i"},
    ],
    readinessGates=[{"conditionType": "x/open"}, {"conditionType": "x/shut"}],
)
ENDING: dict[str, Any] = {"terminating_at": NOW - 10, "grace": 30}
ENDED: dict[str, Any] = {**ENDING, "terminated_at": NOW - 4}
DONE: dict[str, Any] = {**ENDED, "finished": True}
DELETED = make_pod(deleting=30)
PLAIN_HELD = Pod({**make_pod().object, "metadata": {**make_pod().metadata, "finalizers": ["x/a"]}})
GATED = Pod(
    {
        **PROBED.object,
        "spec": {**PROBED.spec, "containers": [{"name": "main", "image": "i"}]},
        "status": {
            "conditions": [
                {"type": "x/open", "status": "True"},
                {"type": "x/shut", "status": "False"},
            ]
        },
    }
)
HELD = Pod({**DELETED.object, "metadata": {**DELETED.metadata, "finalizers": ["x/a", "x/b"]}})


STARTUPS = make_pod(
    initContainers=[
        {"name": "one", "image": "i", "startupProbe": {}},
        {"name": "side", "image": "i", "restartPolicy": "Always", "startupProbe": {}},
        {"name": "two", "image": "i"},
    ],
    containers=[{"name": "main", "image": "i", "startupProbe": {}}],
)
STARTED_UP = ProbeResults(startup={"side": ProbeOutcome.SUCCESS})
HANGS = VolumeWait("v", Waits(WaitCause.BUSY, "pvc a", "pvc a is being mounted"))
PREPARES = ClaimWait("shop/gpu", "gpu.example.com", "NodePrepareResources", 95.0, 195.0)
PREPARING = "NodePrepareResources of DRA driver gpu.example.com is under way"


def startups(*statuses: dict[str, Any], phase: str = "Pending", **more: Any) -> dict[str, Any]:
    return {
        "pod": STARTUPS,
        "status": not_ready(waiting("x"), phase=phase, initContainerStatuses=list(statuses)),
        **more,
    }


def inits(*statuses: dict[str, Any]) -> dict[str, Any]:
    return {
        "pod": INITS,
        "status": not_ready(waiting("PodInitializing"), initContainerStatuses=list(statuses)),
    }


def condition(kind: str, reason: str = "", message: str = "") -> dict[str, Any]:
    """Facts of a Ready pod with a resize condition that is 20 s old."""
    made = {"type": kind, "status": "True", "reason": reason, "message": message}
    return {"status": {"conditions": [READY, {**made, "lastTransitionTime": STARTED}]}}


def errors(code: str, **more: Any) -> dict[str, Any]:
    return {
        "status": not_ready(waiting(code)),
        "start_errors": {"main": StartError(code, "why", **more)},
    }


def never_begun(**status: Any) -> dict[str, Any]:
    return {"record": None, "status": not_ready(**status)}


def probed(**changes: Any) -> dict[str, Any]:
    """Probe results: a has not started, b is not ready, c is ready; the gate x/open is open."""
    views = [running(name, ready=name == "c") for name in "abc"]
    return {
        "pod": PROBED,
        "status": not_ready(
            *views,
            phase="Running",
            **{
                "conditions": [
                    {"type": "x/open", "status": "True"},
                    {"type": "x/shut", "status": "False"},
                ]
            },
        ),
        **changes,
    }


Row = tuple[str, dict[str, Any], list[tuple[Any, ...]], str, bool]
ROWS: list[Row] = [
    (
        "a resize under way",
        condition(IN_PROGRESS),
        [(K.RESIZE, "in progress", "", 20.0, None)],
        "running and ready, for 20s; but its resize is in progress for 20s",
        False,
    ),
    ("another condition", condition("PodScheduled"), [], "running and ready, for 20s", True),
    (
        "not Ready for all its conditions",
        {"status": {"conditions": [{**READY, "status": "False"}, {**READY, "type": "Other"}]}},
        [],
        "running, not ready: waiting for a container",
        False,
    ),
    (
        "an init container failed",
        inits(exited(1, "one"), running("side"), running("two")),
        [],
        "starting",
        False,
    ),
    (
        "an init container not begun",
        inits(waiting("x", "one"), running("side"), running("two")),
        [],
        "starting",
        False,
    ),
    (
        "a sidecar that failed",
        inits(exited(0, "one"), exited(1, "side"), running("two")),
        [],
        "starting",
        False,
    ),
    (
        "probes",
        probed(),
        [
            (K.PROBE, "a", "its startup probe has not succeeded yet", 20.0, None),
            (K.PROBE, "b", "its readiness probe has not succeeded yet", 20.0, None),
            (K.READINESS_GATE, "x/shut", "nobody has set this condition to True", None, None),
        ],
        "running, not ready: its startup probe has not succeeded yet (container a, 20s after "
        "its start)",
        False,
    ),
    (
        "a sidecar that has started up",
        startups(exited(0, "one"), running("side"), running("two"), probes=STARTED_UP),
        [
            (
                K.INIT_CONTAINER,
                "two",
                "(3 of 3) has to succeed first and has been running",
                20.0,
                None,
            )
        ],
        "initializing: init container two (3 of 3) has to succeed first and has been running "
        "for 20s",
        False,
    ),
    (
        "a sidecar that has not begun",
        startups(exited(0, "one"), waiting("x", "side"), waiting("x", "two")),
        [],
        "starting",
        False,
    ),
    (
        "a sidecar that starts up again while the pod runs",
        startups(exited(0, "one"), running("side"), exited(0, "two"), phase="Running"),
        [],
        "running, not ready: waiting for a container",
        False,
    ),
    (
        "startup probes of init containers do not count",
        startups(running("one"), waiting("x", "side"), waiting("x", "two")),
        [
            (
                K.INIT_CONTAINER,
                "one",
                "(1 of 3) has to succeed first and has been running",
                20.0,
                None,
            )
        ],
        "initializing: init container one (1 of 3) has to succeed first and has been running "
        "for 20s",
        False,
    ),
    (
        "probes of what does not run, or is ready",
        probed(
            status=not_ready(
                exited(1, "a"), running("b"), running("c", ready=False), phase="Running"
            ),
            pod=make_pod(containers=PROBED.spec["containers"]),
        ),
        [],
        "running, not ready: waiting for c",
        False,
    ),
    (
        "nobody has it any more, but it runs",
        {"pod": None, "status": not_ready(running(), phase="Running")},
        [],
        "running, not ready: waiting for a container",
        False,
    ),
    (
        "probes that fail",
        probed(
            probes=ProbeResults(
                startup={"a": ProbeOutcome.SUCCESS},
                readiness={"a": ProbeOutcome.FAILURE, "b": ProbeOutcome.SUCCESS},
            )
        ),
        [
            (K.PROBE, "a", "its readiness probe fails", 20.0, None),
            (K.PROBE, "b", "its readiness probe has not succeeded yet", 20.0, None),
            (K.READINESS_GATE, "x/shut", "nobody has set this condition to True", None, None),
        ],
        "running, not ready: its readiness probe fails (container a, 20s after its start)",
        False,
    ),
    (
        "a sandbox that could not be made",
        {"status": not_ready(), "last_sync": failed(None, "no")},
        [(K.RETRY, "", "no", 3.0, 42.0)],
        "not running: no; next try in 42s",
        False,
    ),
    (
        "an error that goes on",
        {"status": not_ready(), "last_sync": failed(None, "no"), "wrong_since": NOW - 90},
        [(K.RETRY, "", "no", 90.0, 42.0)],
        "not running: no; next try in 42s",
        False,
    ),
    (
        "the step of the volumes, by volume",
        {"status": not_ready(), "last_sync": failed(Step.VOLUMES, "no"), "volumes": (HANGS,)},
        [(K.VOLUME, "v", "pvc a is being mounted", None, None)],
        "not running: volume v: pvc a is being mounted",
        False,
    ),
    (
        "another step, and a volume",
        {"status": not_ready(), "last_sync": failed(Step.CGROUP, "no"), "volumes": (HANGS,)},
        [(K.VOLUME, "v", "pvc a is being mounted", None, None), (K.CGROUP, "", "no", 3.0, 42.0)],
        "not running: volume v: pvc a is being mounted",
        False,
    ),
    (
        "the step of the claims, by call",
        {"status": not_ready(), "trace": doing(Step.CLAIMS), "claims": (PREPARES,)},
        [(K.CLAIM, "shop/gpu", PREPARING, 5.0, 95.0)],
        f"not running: resource claim shop/gpu: {PREPARING} for 5s, given up in 1m35s",
        False,
    ),
    (
        "the step of the claims, before any call",
        {"status": not_ready(), "trace": doing(Step.CLAIMS)},
        [(K.RUNTIME_CALL, "", Step.CLAIMS, 5.0, None)],
        f"not running: {Step.CLAIMS.value} has been running for 5s",
        False,
    ),
    (
        "a call to the runtime, and one to a driver",
        {"status": not_ready(), "trace": doing(TraceCall.CREATE_CONTAINER), "claims": (PREPARES,)},
        [
            (K.CLAIM, "shop/gpu", PREPARING, 5.0, 95.0),
            (K.RUNTIME_CALL, "", TraceCall.CREATE_CONTAINER, 5.0, None),
        ],
        f"not running: resource claim shop/gpu: {PREPARING} for 5s, given up in 1m35s",
        False,
    ),
    (
        "runtime step, by container",
        {**errors("RunContainerError"), "last_sync": failed(Step.RUNTIME, "no")},
        [(K.START_ERROR, "main", "RunContainerError: why", None, 42.0)],
        "not running: container main can't start: RunContainerError: why; next try in 42s",
        False,
    ),
    (
        "runtime step",
        {"status": not_ready(), "last_sync": failed(Step.RUNTIME, "no")},
        [(K.RETRY, "", "no", 3.0, 42.0)],
        "not running: no; next try in 42s",
        False,
    ),
    (
        "volumes and a container",
        {**errors("RunContainerError"), "last_sync": failed(Step.VOLUMES, "no")},
        [
            (K.VOLUME, "", "no", 3.0, 42.0),
            (K.START_ERROR, "main", "RunContainerError: why", None, 42.0),
        ],
        "not running: no; next try in 42s",
        False,
    ),
    (
        "an error of another stage",
        {"worker": ENDING, "last_sync": failed(Step.VOLUMES, "no")},
        [],
        "terminating for 10s, with a grace period of 30s",
        False,
    ),
    (
        "an error before the worker",
        {"record": None, "status": not_ready(), "last_sync": failed(Step.CGROUP, "no")},
        [(K.CGROUP, "", "no", 3.0, 42.0)],
        "not started: no; next try in 42s",
        False,
    ),
    (
        "a sync that goes on",
        {"status": not_ready(), "last_sync": LastSync(Stage.SYNC, None, NOW - 3)},
        [],
        "starting",
        False,
    ),
    (
        "a sync that went well",
        {"status": not_ready(), "last_sync": LastSync(Stage.SYNC, SyncOutcome(), NOW - 3)},
        [],
        "starting",
        False,
    ),
    (
        "two finalizers",
        {"pod": HELD, "worker": DONE},
        [
            (
                K.FINALIZER,
                "x/a, x/b",
                "all has stopped; these finalizers keep the object in the API",
                4.0,
                None,
            )
        ],
        "stopped and released, but still in the API: finalizer x/a, x/b keeps it for 4s",
        False,
    ),
    (
        "deleted",
        {"pod": DELETED, "worker": DONE},
        [],
        "stopped and released; its removal from the API was requested",
        True,
    ),
    (
        "finalizers of a pod that ends",
        {"pod": HELD, "worker": ENDED},
        [],
        "its containers have stopped; what it held is being released",
        False,
    ),
    (
        "finalizers, and the API does not answer",
        {"pod": HELD, "worker": DONE, "write_problem": WriteProblem(NOW - 5, "refused", 2)},
        [(K.API_WRITE, "pod status", "refused (tried 2 times)", 5.0, None)],
        "stopped and released, but still in the API: its status has not reached the API for 5s: "
        "refused (tried 2 times)",
        False,
    ),
    (
        "ended, out of the API",
        {"pod": None, "worker": DONE, "status": not_ready(phase="Succeeded")},
        [],
        "it has ended: Succeeded",
        True,
    ),
    (
        "failed in a sync",
        {"status": not_ready(exited(0), phase="Failed")},
        [],
        "it has ended: Failed",
        False,
    ),
    (
        "failed with a reason",
        {"status": not_ready(exited(3), phase="Failed", reason="Evicted")},
        [],
        "it has ended: Failed, Evicted",
        False,
    ),
    (
        "succeeded with a reason",
        {"status": not_ready(exited(3), phase="Succeeded", reason="X", message="y")},
        [],
        "it has ended: Succeeded, X: y",
        True,
    ),
    (
        "succeeded, though something failed",
        {"status": not_ready(exited(3), phase="Succeeded")},
        [],
        "it has ended: Succeeded",
        True,
    ),
    (
        "ended before it was taken up",
        {"record": None, "status": not_ready(phase="Succeeded")},
        [],
        "it has ended: Succeeded",
        True,
    ),
    (
        "failed before it was taken up",
        {"record": None, "status": not_ready(exited(2), phase="Failed", reason="R")},
        [],
        "it has ended: Failed, R",
        False,
    ),
    (
        "first seen",
        {"worker": {"started_at": None}, "status": not_ready()},
        [],
        "not started yet: its worker has not taken it up",
        False,
    ),
    (
        "only in the runtime",
        {"pod": None, "record": None, "status": not_ready()},
        [],
        "only the runtime has it, no source does: it is going to be stopped",
        False,
    ),
    (
        "ending, never taken up",
        {"worker": {**ENDING, "started_at": None}},
        [],
        "terminating for 10s, with a grace period of 30s",
        False,
    ),
    (
        "ending without grace",
        {"worker": {"terminating_at": NOW - 10}},
        [],
        "terminating for 10s, with a grace period of 1s",
        False,
    ),
    (
        "ending in 0 s",
        {"worker": {"terminating_at": NOW - 10, "grace": 0}},
        [],
        "terminating for 10s, with a grace period of 1s",
        False,
    ),
    (
        "its stop is in the future",
        {"worker": {"terminating_at": NOW + 5}},
        [],
        "terminating for 0s, with a grace period of 1s",
        False,
    ),
    (
        "deleted, and the runtime is away",
        {"pod": DELETED, "runtime_error": "down"},
        [(K.RUNTIME, "", "down", None, None)],
        "deleted, but its end has not begun: the container runtime can't be used: down",
        False,
    ),
    (
        "ended, gone from the API, and its last status was refused",
        {
            "pod": None,
            "worker": DONE,
            "status": not_ready(phase="Succeeded"),
            "write_problem": WriteProblem(NOW - 60, "no", 2),
        },
        [(K.API_WRITE, "pod status", "no (tried 2 times)", 60.0, None)],
        "it has ended: Succeeded; but its status has not reached the API for 1m: no "
        "(tried 2 times)",
        False,
    ),
    (
        "ended, and the runtime is away",
        {
            "status": not_ready(
                {
                    "name": "main",
                    "state": {"terminated": {"exitCode": 2, "message": "no\x07 disk"}},
                },
                phase="Failed",
            ),
            "log_ends": {"main": "of the log"},
            "runtime_error": "down",
        },
        [(K.RUNTIME, "", "down", None, None)],
        'it has ended: Failed, container main exited with 2: "no disk"',
        False,
    ),
    (
        "ended, killed by the kernel",
        {
            "status": not_ready(
                {
                    "name": "main",
                    "state": {"terminated": {"exitCode": 137, "containerID": "containerd://c"}},
                },
                phase="Failed",
            ),
            "log_ends": {"main": "loading"},
            "deaths": {"c": DeathCause(DeathKind.OOM_CONTAINER, Actor.KERNEL, ("process hog",))},
        },
        [],
        "it has ended: Failed, container main exited with 137: killed by the kernel at the memory "
        'limit of the container (process hog): "loading"',
        False,
    ),
    (
        "stopped",
        {"worker": ENDED},
        [],
        "its containers have stopped; what it held is being released",
        False,
    ),
    (
        "stopped, held",
        {"worker": ENDED, "last_sync": failed(Step.CGROUP, "busy", Stage.TERMINATED)},
        [(K.CGROUP, "", "busy", 3.0, 42.0)],
        "its containers have stopped, but it is not released: busy; next try in 42s",
        False,
    ),
    (
        "ending, whatever would keep it from starting",
        {"pod": PROBED, "worker": ENDING, **errors("RunContainerError")},
        [],
        "terminating for 10s, with a grace period of 30s",
        False,
    ),
    (
        "a start before the worker",
        {"record": None, **errors("RunContainerError")},
        [(K.START_ERROR, "main", "RunContainerError: why", None, 42.0)],
        "not started: container main can't start: RunContainerError: why; next try in 42s",
        False,
    ),
    ("starting", {"status": not_ready()}, [], "starting", False),
    (
        "runs, not ready",
        {"status": not_ready(running(ready=False), phase="Running")},
        [],
        "running, not ready: waiting for main",
        False,
    ),
    (
        "runs, all are ready",
        {"status": not_ready(running(), phase="Running")},
        [],
        "running, not ready: waiting for a container",
        False,
    ),
    (
        "ready, but a probe fails",
        {"pod": PROBED, "status": {"containerStatuses": [running("b", ready=False)]}},
        [],
        "running and ready, for 20s",
        True,
    ),
    (
        "ready for as long as the newest",
        {
            "pod": make_pod(
                containers=[{"name": "main"}, {"name": "new"}], initContainers=[{"name": "i"}]
            ),
            "status": {
                "containerStatuses": [
                    running(),
                    {**running("new"), "state": {"running": {"startedAt": "2023-11-14T22:14:55Z"}}},
                ],
                "initContainerStatuses": [exited(0, "i")],
            },
        },
        [],
        "running and ready, for 5s",
        True,
    ),
    (
        "ready for as long as its containers, whatever its sidecars",
        {
            "pod": INITS,
            "status": {
                "initContainerStatuses": [
                    {**running("side"), "state": {"running": {"startedAt": "2023-11-14T22:14:55Z"}}}
                ]
            },
        },
        [],
        "running and ready, for 20s",
        True,
    ),
    (
        "ready, and nothing runs",
        {"status": {"containerStatuses": []}},
        [],
        "running and ready",
        True,
    ),
    (
        "ready, and its volumes failed",
        {"last_sync": failed(Step.VOLUMES, "no")},
        [(K.VOLUME, "", "no", 3.0, 42.0)],
        "running and ready, for 20s",
        True,
    ),
    ("refused without a reason", never_begun(phase="Failed"), [], "it has ended: Failed", False),
    (
        "a reason while it waits",
        never_begun(reason="R"),
        [],
        "not started yet: its worker has not taken it up",
        False,
    ),
    (
        "waits for the one before it",
        {"worker": {"started_at": None}, "status": not_ready(), "name_holder": "old"},
        [
            (
                K.STATIC_NAME,
                "default/web",
                "the static pod of the same name before it (uid old) still ends",
                31.0,
                None,
            )
        ],
        "not started: the static pod of the same name before it (uid old) still ends",
        False,
    ),
    (
        "backoff without an end",
        {**errors("CrashLoopBackOff"), "next_sync_at": None},
        [(K.CRASH_BACKOFF, "main", "CrashLoopBackOff: why", None, None)],
        "not running: container main keeps exiting",
        False,
    ),
    (
        "pending, a probe fails",
        {"pod": PROBED, "status": not_ready(running("b", ready=False))},
        [],
        "starting",
        False,
    ),
    (
        "no finalizer, out of the cluster",
        {"pod": PLAIN_HELD, "worker": DONE, "status": not_ready(phase="Succeeded")},
        [],
        "it has ended: Succeeded",
        True,
    ),
    (
        "a gate that somebody else opened",
        {"pod": GATED, "status": not_ready(running(ready=True), phase="Running")},
        [(K.READINESS_GATE, "x/shut", "nobody has set this condition to True", None, None)],
        "running, not ready: readiness gate x/shut: nobody has set this condition to True",
        False,
    ),
]


def known(changes: dict[str, Any]) -> PodFacts:
    """The facts of a table row; None for the pod or record means absent."""
    nothing: dict[str, Any] = {
        key: None for key in ("pod", "record") if changes.get(key, "") is None
    }
    changes = {key: value for key, value in changes.items() if key not in nothing}
    return replace(facts(**changes), **nothing)


@pytest.mark.parametrize(
    ("changes", "expected", "sentence", "healthy"),
    [row[1:] for row in ROWS],
    ids=[row[0] for row in ROWS],
)
def test_waits_and_their_sentence(
    changes: dict[str, Any], expected: list[tuple[Any, ...]], sentence: str, healthy: bool
) -> None:
    found = known(changes)
    assert [
        (
            wait.kind,
            wait.subject,
            wait.why,
            None if wait.since is None else NOW - wait.since,
            None if wait.until is None else wait.until - NOW,
        )
        for wait in waits(found)
    ] == expected
    assert verdict(found) == (sentence, healthy)


SECRET = {"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
NEVER = ContainerStatus("1", "main", ContainerState.EXITED, message='no file "s3cret"')


@pytest.mark.parametrize(
    ("pod", "record", "message"),
    [
        (make_pod(containers=[{"name": "main", "env": [SECRET]}]), NEVER, f'no file "{HIDDEN}"'),
        (make_pod(containers=[{"name": "main"}]), NEVER, NEVER.message),
        (make_pod(containers=[{"name": "other", "env": [SECRET]}]), NEVER, NEVER.message),
        (None, NEVER, NEVER.message),
        (
            make_pod(containers=[{"name": "main", "env": [SECRET]}]),
            replace(NEVER, started_at=1),
            NEVER.message,
        ),
    ],
)
def test_messages_of_programs_that_never_ran_are_masked(
    pod: Pod | None, record: ContainerStatus, message: str
) -> None:
    """A program that has run chooses its own message."""
    runtime = PodRuntimeStatus("uid", "web", "default", containers=(record,))
    (found,) = exits(known({"pod": pod, "runtime": runtime, "status": not_ready()}))
    assert found.message == message


def test_the_last_exit_is_the_containers_own() -> None:
    found = facts(status=not_ready(exited(1, "a"), exited(2, "b")))
    assert [last_exit(found, name) for name in ("a", "b", "c")] == [*exits(found), None]


def test_facts_of_an_empty_status() -> None:
    found = replace(facts(), status={})
    assert (found.phase, found.ready) == ("Pending", False)
    empty = facts(status={"podIPs": [{"ip": "10.0.0.1"}, {"ip": ""}, {}]})
    assert explain(empty).pod_ips == ("10.0.0.1",)
    goes_on = facts(last_sync=LastSync(Stage.SYNC, None, NOW - 3))
    assert (explain(goes_on).worker.last_error, explain(goes_on).worker.last_sync_at) == (
        "",
        NOW - 3,
    )
    ended = facts(worker=ENDED)
    assert (explain(ended).worker.state, explain(ended).worker.since) == ("terminated", NOW - 4)
    waits_for_name = facts(worker={"started_at": None})
    assert (explain(waits_for_name).worker.state, explain(waits_for_name).worker.since) == (
        "waiting", NOW - 31,
    )  # fmt: skip
    ending = facts(worker={**ENDING, "started_at": None})
    assert explain(ending).worker.state == "terminating"


def test_runs_without_times_come_last_and_regular_containers_before_ephemeral_ones() -> None:
    pod = make_pod(
        initContainers=[{"name": "i"}], containers=[{"name": "c"}],
        ephemeralContainers=[{"name": "e"}],
    )  # fmt: skip
    runtime = PodRuntimeStatus(
        "uid", "web", "default",
        containers=(NEVER, replace(NEVER, id="2", finished_at=5 * 10**8)),
    )  # fmt: skip
    found = explain(facts(pod, runtime=runtime))
    assert [one.finished_at for one in found.exits] == [0.5, None]
    assert [view.name for view in found.containers] == ["i", "c", "e"]
    reported = render.pod(json.loads(json.dumps(to_builtins(found))))
    assert reported.endswith(
        "Ended runs\n"
        '  main  run 1  exit code 0  19675d ago  no file "s3cret"\n'
        '  main  run 1  exit code 0              no file "s3cret"\n'
    )


BAD, GOOD = ProbeOutcome.FAILURE, ProbeOutcome.SUCCESS


@pytest.mark.parametrize(
    ("container", "kind", "parts"),
    [
        ("main", ProbeKind.READINESS, "not yet"),
        ("main", ProbeKind.LIVENESS, ""),
        ("main", ProbeKind.STARTUP, ""),
        ("other", ProbeKind.READINESS, ""),
    ],
)
def test_the_last_message_of_a_probe(container: str, kind: ProbeKind, parts: str) -> None:
    reports = (
        ProbeReport("main", ProbeKind.STARTUP, None),
        ProbeReport("main", ProbeKind.LIVENESS, GOOD, ProbeFinding(GOOD, "all is well")),
        ProbeReport("main", ProbeKind.READINESS, BAD, ProbeFinding(BAD, "not yet")),
    )
    assert last_message(facts(probe_reports=reports), container, kind) == parts


def test_admission_that_waits_for_a_device_plugin() -> None:
    awaited = AwaitedPlugins(("vendor.example/gpu",), NOW + 30)
    (wait,) = waits(
        facts(
            worker={"started_at": None},
            status=not_ready(),
            awaits_admission=True,
            awaited_plugins=awaited,
        )
    )
    assert (wait.kind, wait.subject) == (K.ADMISSION, "vendor.example/gpu")
    assert wait.until == NOW + 30 + facts().wall_offset
    assert wait.why.startswith("waiting for device plugin vendor.example/gpu")
