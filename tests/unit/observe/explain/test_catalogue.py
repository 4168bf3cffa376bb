"""Unhealthy pods that the simulation does not make: cause, code, first sign, remedy.

The texts are those of containerd 2.1 and of this agent.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.base.api.times import format_time
from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.images.policy import PullPosition, never_pulled
from kubeletpy.kubeapi.watch_state import FailingWatch
from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.facts import NodeTaint, PodFacts
from kubeletpy.observe.explain.gather import explain, line
from kubeletpy.observe.explain.texts import LONGEST, READ, cause, failing_watches
from kubeletpy.pods.runtime_status import Decision, KillReason, ProbeOutcome, StartError
from kubeletpy.podworkers.history import HistoryEntry, LastSync
from kubeletpy.podworkers.records import Stage, SyncOutcome
from kubeletpy.probes.schedule import ProbeFinding, ProbeKind, ProbeReport
from kubeletpy.status.store import WriteProblem
from tests.kit.observe import NOW, OFFSET, doing, exited, facts, failed, not_ready, running, waiting
from tests.kit.pods import make_pod

UID = "5d8f33cd-7283-44ae-824e-24af3478d525"
LOG = "see its log: kubectl logs -n default web -c main"
HOOK = StartError(
    "PostStartHookError",
    "Exec lifecycle hook ([/bin/sh -c echo hook says no; exit 7]) for "
    "Container "
    f'"main" in Pod "hook_shop({UID})" failed - error: command \'/bin/sh -c echo hook says no; '
    "exit 7' exited with 7, message: 'hook says no\\n'",
)
BAD = ProbeOutcome.FAILURE


def start(code: str, message: str, **more: Any) -> dict[str, Any]:
    """A container that has been failing to start for 300 s."""
    error = StartError(code, message, NOW + 7, more.pop("previous", None), more.pop("known", None))
    entry, ips = waiting(code, **more.pop("entry", {})), more.pop("ips", [])
    status = not_ready(entry, phase=more.pop("phase", "Pending"), podIPs=ips)
    return {"status": status, "start_errors": {"main": error}, "wrong_since": NOW - 300, **more}


def image(name: str, text: str) -> dict[str, Any]:
    return start("ImagePullBackOff", text.format(name))


def crash(code: int = 3, reason: str = "Error", message: str = "", **more: Any) -> dict[str, Any]:
    ended = {**exited(code)["state"]["terminated"], "reason": reason, "message": message}
    text = f"back-off 40s restarting failed container=main pod=web_shop({UID})"
    entry = {"restartCount": 4, "lastState": {"terminated": ended}}
    return start("CrashLoopBackOff", text, entry=entry, phase="Running", **more)


def ended(reason: str, message: str) -> dict[str, Any]:
    status = not_ready(phase="Failed", reason=reason, message=message, startTime=ago(300))
    return {"record": None, "status": status}


def ago(seconds: float) -> str:
    return format_time(NOW - seconds)


def kills(name: str = "main") -> tuple[HistoryEntry, ...]:
    killed = Decision("kill", "why", killed=name, kill_reason=KillReason.LIVENESS_PROBE)
    return (HistoryEntry(NOW - 25, killed),)


PROBED = make_pod(
    containers=[
        {
            "name": "main",
            "image": "i",
            "ports": [{"name": "tls", "containerPort": 8443}],
            "livenessProbe": {
                "httpGet": {
                    "scheme": "HTTPS",
                    "path": "/live?x=1",
                    "port": "tls",
                    "httpHeaders": [{"name": "Authorization", "value": "Bearer abc"}],
                },
                "failureThreshold": 4,
            },
        }
    ]
)
LIMITED = make_pod(
    containers=[{"name": "main", "image": "i", "resources": {"limits": {"memory": "16Mi"}}}]
)
RESTARTED = running(
    restartCount=4,
    lastState={"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": ago(24)}},
)
HELD = (
    "Unable to take down volumes: [Errno 16] Device or resource busy: '/pods/u/volumes/v'; it is "
    "in use by process 7 (sleep)"
)
NO_CLASS = SyncOutcome(
    error="failed to CreatePodSandbox for web_default(67d729b8) with CreatePodSandboxError: Failed "
    'to create sandbox for pod "web_default(67d729b8)": RuntimeClass "gold" not found',
    cause=Cause(CauseKind.RUNTIME_CLASS),
)
READY_NEVER = {"type": "Ready", "status": "False", "lastTransitionTime": ago(50)}
Case = tuple[str, Any, dict[str, Any], str, str, str, float | None]
CASES: list[Case] = [
    (
        "refused before the agent was started anew",
        None,
        {
            "worker": {"finished": True, "terminating_at": NOW - 9, "terminated_at": NOW - 9},
            "status": ended("AppArmor", "Pod was rejected: AppArmor is not enabled")["status"],
        },
        "refused by this node: AppArmor: AppArmor is not enabled; that is final",
        "refused",
        "remove the profile, or use a node with AppArmor",
        300,
    ),
    (
        "never pulled, and on the node for others",
        None,
        start(
            "ErrImageNeverPull",
            never_pulled("x:2", present=True),
            known=Cause(CauseKind.NOT_VERIFIED),
        ),
        'not running: container main can\'t start: ErrImageNeverPull: Container image "x:2" is on '
        "the node, but no pull has verified this pod's credentials for it, and the pull policy of "
        "Never allows no pull; next try in 7s",
        "image-not-verified",
        "add the pull secret of the image to the pod's imagePullSecrets, or use imagePullPolicy "
        "IfNotPresent with it",
        300,
    ),
    (
        "out of memory",
        LIMITED,
        crash(137, "OOMKilled"),
        "not running: container main keeps exiting (last exit code 137 OOMKilled at its "
        "memory limit "
        "of 16Mi, 4 restarts); it restarts in 7s",
        "out-of-memory",
        f"raise its memory limit of 16Mi, or {LOG}",
        300,
    ),
    (
        "killed by its liveness probe, running again",
        PROBED,
        {
            "status": {"containerStatuses": [RESTARTED]},
            "probe_reports": (
                ProbeReport(
                    "main", ProbeKind.LIVENESS, None, killed_with=ProbeFinding(BAD, "no route")
                ),
            ),
            "history": kills(),
            "wrong_since": NOW - 300,
        },
        "running, for 20s, but container main keeps being killed because its liveness probe fails: "
        "no route, 4 restarts",
        "killed-by-liveness-probe",
        "check what its liveness probe requests (GET https://10.0.0.1:8443/live?x=1, which kills "
        f'the container after 4 failures in a row, last output "no route"); {LOG} --previous',
        300,
    ),
    (
        "a subPath through a file",
        None,
        start(
            "CreateContainerConfigError",
            'failed to prepare subPath for volumeMount "v" of container "main": Not a directory',
            known=Cause(CauseKind.SUB_PATH),
        ),
        "not running: container main can't start: CreateContainerConfigError: failed to prepare "
        'subPath for volumeMount "v" of container "main": Not a directory; next try in 7s',
        "subpath",
        "correct subPath: it has to be below a directory of the volume",
        300,
    ),
    (
        "deleted while a call hangs",
        make_pod(deleting=30),
        {},
        "deleted, but its end has not begun",
        "starting",
        "",
        None,
    ),
    (
        "evicted for a limit of its own",
        None,
        {
            "status": not_ready(
                exited(137), phase="Failed", reason="Evicted", message="over its limit"
            ),
            "history": (HistoryEntry(NOW - 23, Decision("terminate", "why", ends_pod=True)),),
        },
        "it has ended: Failed, Evicted: over its limit",
        "evicted",
        "raise the limit that is named in what makes the pod, or have it write less",
        23,
    ),
    (
        "a process holds its volume",
        make_pod(deleting=30),
        {
            "worker": {"terminating_at": NOW - 40, "terminated_at": NOW - 39},
            "status": not_ready(exited(0), phase="Succeeded"),
            "last_sync": failed(Step.VOLUMES, HELD, Stage.TERMINATED),
            "wrong_since": NOW - 38,
        },
        f"its containers have stopped, but it is not released: {HELD}; next try in 42s",
        "volume-in-use",
        "end the process, or have it leave the volume: unmounting is tried again",
        38,
    ),
    (
        "deleted for a taint",
        make_pod(deleting=30),
        {
            "worker": {"terminating_at": NOW - 10, "grace": 600},
            "trace": doing(TraceCall.STOP_CONTAINER, "main", 10.0, 600.0),
            "deleted_for": (
                NodeTaint("gpu", "broken", "NoExecute"),
                NodeTaint("b", "", "NoExecute"),
            ),
        },
        "terminating for 10s (for the node's taint gpu=broken:NoExecute, b:NoExecute): container "
        "main has not ended 10s after its stop was requested; it is killed in 9m50s",
        "deleted-for-taint",
        "the node has the taint gpu=broken:NoExecute: give the pod the toleration {key: gpu, "
        "operator: Equal, value: broken, effect: NoExecute} (and so for 1 more), or use another "
        "node",
        10,
    ),
    (
        "deleted for a taint that the node has no more",
        make_pod(deleting=30),
        {"worker": {"terminating_at": NOW - 10, "grace": 600}, "deleted_for": ()},
        "terminating for 10s (for a taint that the node had), with a grace period of 600s",
        "deleted-for-taint",
        "the node has no such taint any more: make a new pod",
        10,
    ),
    (
        "deleted for a taint, and the API is away",
        make_pod(deleting=30),
        {
            "worker": {"terminating_at": NOW - 10, "grace": 600},
            "deleted_for": (),
            "write_problem": WriteProblem(NOW - 5, "refused", 1),
        },
        "terminating for 10s (for a taint that the node had): its status has not reached the API "
        "for 5s: refused (tried once)",
        "api-write",
        "see whether the API server can be reached from this node and takes its credentials",
        10,
    ),
    (
        "reads an address that the node does not have yet",
        None,
        start("CreateContainerConfigError", "no address", known=Cause(CauseKind.NODE_ADDRESS)),
        "not running: container main can't start: CreateContainerConfigError: no address; next try "
        "in 7s",
        "node-address",
        "see the log of the cloud controller, which sets the node's addresses, or start the node's "
        "agent with --node-ip",
        300,
    ),
    (
        "another error of its spec",
        None,
        start("CreateContainerError", "no such device"),
        "not running: container main can't start: CreateContainerError: no such device; next try "
        "in 7s",
        "container-config",
        "correct what the message names in the pod's spec",
        300,
    ),
    (
        "its postStart hook has failed just now",
        None,
        start("PostStartHookError", HOOK.message),
        "not running: container main can't start: PostStartHookError: command '/bin/sh -c echo "
        "hook says no; exit 7' exited with 7, message: 'hook says no\\n'; next try in 7s",
        "post-start-hook",
        LOG,
        300,
    ),
    (
        "its program could not run just now",
        None,
        start("RunContainerError", 'exec: "/nope": no such file or directory'),
        'not running: container main can\'t start: RunContainerError: exec: "/nope": no such file '
        "or directory; next try in 7s",
        "program-cannot-run",
        "correct the container's command, or use an image that has that program",
        300,
    ),
    (
        "no such RuntimeClass",
        None,
        {
            "status": not_ready(waiting("ContainerCreating")),
            "wrong_since": NOW - 300,
            "last_sync": LastSync(Stage.SYNC, NO_CLASS, NOW - 3),
        },
        'not running: RuntimeClass "gold" not found; next try in 42s',
        "runtime-class",
        "create the RuntimeClass, or configure its handler in the container runtime",
        300,
    ),
    (
        "its image is being pulled",
        None,
        {
            "status": not_ready(waiting("ContainerCreating"), conditions=[READY_NEVER]),
            "trace": doing(TraceCall.PULL_IMAGE, "i", 30.0),
            "pulls": {"i": PullPosition(NOW - OFFSET - 30, None, 1, 5)},
        },
        "not running: image i is being pulled for 30s",
        "image-pull",
        "if it takes too long, see the registry, and the runtime's log; only the runtime limits a "
        "pull",
        30,
    ),
    (
        "its end was reported, whatever its outcome",
        make_pod(deleting=30),
        {
            "worker": {"finished": True, "terminating_at": NOW - 9, "terminated_at": NOW - 9},
            "status": not_ready(exited(9), phase="Failed"),
        },
        "stopped and released; its removal from the API was requested",
        "failed",
        "",
        None,
    ),
    ("well", None, {}, "running and ready, for 20s", "running", "", None),
]


@pytest.mark.parametrize("case", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_an_unhealthy_pod(case: tuple[Any, dict[str, Any], str, str, str, float | None]) -> None:
    pod, changes, verdict, code, hint, since = case
    found = explain(facts(pod, **changes))
    assert found.verdict == verdict
    assert (found.cause, found.hint) == (code, hint)
    assert found.first_seen == (None if since is None else NOW - since)
    assert found.final is (code in ("refused", "evicted", "deadline-exceeded", "failed"))
    short = line(facts(pod, **changes))
    assert (short.verdict, short.cause, short.first_seen) == (verdict, code, found.first_seen)
    text = render.pod({**to_builtins(found)})
    assert all(f"{name:<10} " in text for name, has in (("Since", since), ("To do", hint)) if has)


def test_the_end_of_a_long_cause_is_kept() -> None:
    text = "".join(f"step {number}: " for number in range(1000)) + "connection refused"
    found = cause(text)
    assert len(found) == LONGEST
    assert found.startswith("…")
    assert found.endswith("step 999: connection refused")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LONGEST * "x", LONGEST * "x"),
        ("y" + LONGEST * "x", "…" + (LONGEST - 1) * "x"),
        ("a" + READ * " ", ""),
        ("ba" + (READ - 1) * " ", "a"),
        ("", ""),
        ("rpc error: code = Unknown desc = no space left", "no space left"),
        (f"container {'0123456789ab' + 52 * 'c'} is gone", "container 0123456789ab is gone"),
        (f'pod "web_shop({UID})" waits', 'pod "web_shop" waits'),
        (f"back-off 5m0s restarting failed container=a pod=b_c({UID})", "back-off 5m0s"),
        (
            f'container has runAsNonRoot and image will run as root (pod: "r_s({UID})", '
            f"container: m)",
            "container has runAsNonRoot and image will run as root",
        ),
        (
            'container create failed: time="2026-11-23T11:46:28Z" level=error msg="runc create '
            r'failed: unable to start container process: exec: \"/no\": stat /no: no such file"'
            "\n",
            'exec: "/no": stat /no: no such file',
        ),
        (
            "image pull failed for a:1/b:1 because the registry is unavailable: unable to pull "
            "image: initializing source docker://a:1/b:1: pinging container registry a:1: refused",
            "pinging container registry a:1: refused",
        ),
        (
            'Error response from daemon: Head "http://a/v2/": no basic auth credentials',
            'Head "http://a/v2/": no basic auth credentials',
        ),
        (
            "failed to start container: Error response from daemon: failed to create task for "
            "container: failed to create shim task: OCI runtime create failed: no such file",
            "failed to start container: no such file",
        ),
        ("\x1b[31mred\nfailed to do request: \x07", "[31mred"),
        (10 * "failed to do request: " + "x", "x"),
    ],
)
def test_a_cause_without_its_wrappers(text: str, found: str) -> None:
    assert cause(text) == found


# Watches that keep failing, for the node and for the pods that depend on them.

WHY = "the answer is no gzip"
SERVICES = FailingWatch("services", "", "", f"watch of services: {WHY}", 40.0, 12)
TOKEN = FailingWatch("secrets", "default", "token", f"watch of secrets: {WHY}", 70.0, 5)


def unstarted(message: str, cause: Cause | None = None, **more: Any) -> PodFacts:
    error = StartError("CreateContainerConfigError", message, NOW + 7, cause=cause)
    status = not_ready(waiting("CreateContainerConfigError"))
    return facts(status=status, start_errors={"main": error}, **more)


def test_a_node_names_its_failing_watches_by_reason() -> None:
    nodes = FailingWatch("nodes", "", "node-1", "connection refused", 50.0, 2)
    assert failing_watches([SERVICES, nodes, TOKEN], 100.0) == [
        "the watch of services, secrets default/token has failed for 1m "
        "(12 times in a row): the answer is no gzip; changes there are not seen",
        "the watch of nodes node-1 has failed for 50s (2 times in a row): "
        "connection refused; changes there are not seen",
    ]


def test_an_unreachable_api_is_one_sentence() -> None:
    """The message of a request without an answer begins with the request's path."""
    away = [
        FailingWatch(each, "", "", f"GET https://api:6443/api/v1/{each}: refused", 40.0, 2)
        for each in ("nodes", "pods", "services")
    ]
    assert failing_watches(away, 100.0) == [
        "the watch of nodes, pods, services has failed for 1m (2 times in a "
        "row): refused; changes there are not seen"
    ]


def test_many_watches_that_fail_for_one_reason_are_one_sentence() -> None:
    many = [FailingWatch("secrets", "ns", f"s{n}", WHY, 1.0, 2) for n in range(500)]
    (stated,) = failing_watches(many, 100.0)
    assert stated.startswith(
        "the watch of secrets ns/s0, secrets ns/s1, secrets ns/s2 and 497 more "
    )


def test_a_pod_that_waits_for_services_names_their_watch() -> None:
    unread = Cause(CauseKind.SERVICES_UNREAD)
    found = explain(unstarted("no services", unread, failing_watches=(SERVICES,)))
    assert found.verdict == f"not running: the watch of services has failed for 1m: {WHY}"
    assert (found.waits[0].kind, found.waits[0].subject) == ("watch", "services")
    assert found.waits[0].since == 40.0 + OFFSET
    assert "kubeletpy explain --node" in found.hint


def test_a_pod_that_waits_for_something_else_does_not() -> None:
    found = explain(unstarted("container has no such key", failing_watches=(SERVICES,)))
    assert [each.kind for each in found.waits] == ["start error"]
    assert explain(facts(failing_watches=(SERVICES,))).waits == ()


def test_a_pod_that_waits_for_an_object_names_its_watch() -> None:
    found = explain(unstarted("secret could not be read", failing_watches=(TOKEN,)))
    assert found.verdict.endswith(f"the watch of secrets default/token has failed for 30s: {WHY}")
