"""Hints for problems with volumes, images, runtimes and ended containers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.observe.explain.gather import explain
from kubeletpy.observe.explain.hints import volume_hint
from kubeletpy.pods.pod import Excluded
from kubeletpy.status.store import NO_ANSWER, WriteProblem
from kubeletpy.volumes.claims.model import VolumeWait, WaitCause, Waits
from tests.unit.observe.explain.facts import (
    NOW,
    OFFSET,
    doing,
    exited,
    facts,
    failed,
    not_ready,
    running,
    waiting,
)
from tests.unit.observe.explain.test_since import ago, condition
from tests.unit.podworkers.builders import make_pod

TWO = [{"name": "job", "image": "i"}, {"name": "main", "image": "i"}]
ENDED = [exited(0, "job"), running()]
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
        ),
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
        ([exited(9)], "see its log: kubectl logs -n default web -c main"),
        ([lost("ContainerStatusUnknown", startedAt=ago(9))], DESCRIBE),
        ([lost("Error")], DESCRIBE),
        ([], DESCRIBE),
        (
            [lost("StartError", 'exec: "/nope": no such file')],
            "correct the container's command, or use an image that has that program",
        ),
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
STORE = "secrets-store.csi.k8s.io"


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
            WaitCause.BACKOFF,
            PV,
            {"driver": "ebs.csi.example.com"},
            "see the log of the node plugin of CSI driver ebs.csi.example.com on this node",
        ),
        (
            WaitCause.DRIVER_MISSING,
            f'csidriver "{STORE}"',
            {"driver": STORE},
            f"install the node plugin of CSI driver {STORE}: it must run on this "
            "node and be registered with it (a CSIDriver object alone is not enough)",
        ),
        (WaitCause.CLAIM_MISSING, CLAIM, {}, f"create {CLAIM} in namespace default"),
        (
            WaitCause.CLAIM_UNBOUND,
            CLAIM,
            {},
            "see why it is not bound: kubectl describe pvc -n default web-data",
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
