"""The cause code for each message that can name a cause."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.base.structs import replace
from kubeletpy.metrics.trace.model import Step
from kubeletpy.observe.explain.model import Wait, WaitKind
from kubeletpy.observe.explain.verdict import (
    CauseCode,
    cause_code,
    crash_code,
    image_code,
    terminal_code,
    wait_code,
)
from kubeletpy.pods.runtime_status import ProbeOutcome, StartError
from kubeletpy.probes.schedule import ProbeFinding, ProbeKind, ProbeReport
from kubeletpy.status.store import WriteProblem
from tests.kit.observe import NOW, STARTED, exited, facts, failed, not_ready, running, waiting

K = WaitKind
BAD = ProbeOutcome.FAILURE


@pytest.mark.parametrize(
    ("kind", "why", "code"),
    [
        (K.CRASH_BACKOFF, "CrashLoopBackOff: back-off", "crash"),
        (K.VOLUME, "driver ebs not found", "volume"),
        (K.VOLUME, "secret store is away", "volume"),
        (K.VOLUME, "failed to prepare subPath", "volume"),
        (K.VOLUME, "timed out", "volume"),
        (K.RETRY, 'image "runtimeclass": no', "retry"),
        (K.RETRY, "no", "retry"),
        (K.API_WRITE, "refused", "api-write"),
        (K.INIT_CONTAINER, "", "init-container"),
    ],
)
def test_code_of_a_wait(kind: WaitKind, why: str, code: str) -> None:
    assert wait_code(facts(), Wait(kind, "main", why)) == code


def start_code(code: str, message: str = "no", cause: Cause | None = None) -> str:
    errors = {"main": StartError(code, message, cause=cause)}
    return wait_code(facts(start_errors=errors), Wait(K.START_ERROR, "main", "any text"))


def test_codes_of_starts() -> None:
    assert start_code("CreateContainerError") == "container-config"
    assert start_code("CreateContainerError", 'exec: "/nope": no such file') == "program-cannot-run"
    assert start_code("RunContainerError") == "program-cannot-run"
    assert start_code("PostStartHookError") == "post-start-hook"
    assert start_code("RunContainerError", cause=Cause(CauseKind.SUB_PATH)) == "subpath"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (CauseKind.MACHINE, "node-fault"),
        (CauseKind.OBJECT_MISSING, "config-object-missing"),
        (CauseKind.KEY_MISSING, "config-key-missing"),
        (CauseKind.RUNTIME_CLASS, "runtime-class"),
        (CauseKind.RESOLV_CONF, "resolv-conf"),
        (CauseKind.TRUST_BUNDLE, "retry"),
    ],
)
def test_codes_of_causes(kind: CauseKind, code: str) -> None:
    last = failed(Step.RUNTIME, "any text", cause=Cause(kind))
    assert wait_code(facts(last_sync=last), Wait(K.RETRY, "", "no")) == code
    assert wait_code(facts(last_sync=last), Wait(K.NETWORK, "", "no")) == "network"


@pytest.mark.parametrize(
    ("reason", "message", "code"),
    [
        ("InvalidImageName", "unauthorized", "image-name-invalid"),
        ("ErrImageNeverPull", "unauthorized", "image-never-pulled"),
        ("ErrImagePull", "unauthorized, not found", "image-access-denied"),
        (
            "ErrImagePull",
            "reading manifest 1 in a/b: authentication required",
            "image-access-denied",
        ),
        ("ErrImagePull", "status 401", "image-access-denied"),
        ("ErrImagePull", "status 4010", "image"),
        ("ErrImagePull", "i/o timeout, not found", "registry-unreachable"),
        ("ErrImagePull", "status 503", "registry-unreachable"),
        ("ErrImagePull", "manifest unknown", "image-not-found"),
        ("ErrImagePull", "status 404", "image-not-found"),
        ("ErrImagePull", 'image "unauthorized/not found" is odd', "image"),
        ("ImagePullBackOff", "not found", "image-not-found"),
        ("not found", "", "image"),
    ],
)
def test_code_of_an_image(reason: str, message: str, code: str) -> None:
    assert image_code(StartError(reason, message)) == code


HOOK, OTHER = StartError("PostStartHookError", "no"), StartError("RunContainerError", "no")


def crashed(reason: str = "Error", message: str = "", **more: Any) -> dict[str, Any]:
    ended = {**exited(137)["state"]["terminated"], "reason": reason, "message": message}
    entry = waiting("CrashLoopBackOff", lastState={"terminated": ended})
    return {"status": not_ready(entry), **more}


def reports(kind: ProbeKind) -> tuple[ProbeReport, ...]:
    return (ProbeReport("main", kind, BAD, ProbeFinding(BAD, "no")),)


@pytest.mark.parametrize(
    ("pod", "code"),
    [
        ({"status": not_ready()}, "crash"),
        (crashed(), "crash"),
        (crashed("OOMKilled"), "out-of-memory"),
        (crashed("StartError", "no such file"), "program-cannot-run"),
        (crashed("StartError"), "crash"),
        (crashed(probe_reports=reports(ProbeKind.LIVENESS)), "killed-by-liveness-probe"),
        (crashed(probe_reports=reports(ProbeKind.STARTUP)), "killed-by-startup-probe"),
        (crashed(probe_reports=reports(ProbeKind.READINESS)), "crash"),
        (crashed(start_errors={"main": StartError("x", "", previous=HOOK)}), "post-start-hook"),
        (crashed(start_errors={"main": StartError("x", "", previous=OTHER)}), "crash"),
    ],
)
def test_code_of_a_container_that_keeps_exiting(pod: dict[str, Any], code: str) -> None:
    assert crash_code(facts(**pod), "main") == code


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"phase": "Succeeded"}, "succeeded"),
        ({"phase": "Succeeded", "reason": "Evicted"}, "succeeded"),
        ({"phase": "Failed", "reason": "Evicted"}, "evicted"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, "deadline-exceeded"),
        ({"phase": "Failed", "reason": "Preempting"}, "preempted"),
        (
            {"phase": "Failed", "reason": "Terminated", "containerStatuses": [exited(1)]},
            "node-shutdown",
        ),
        ({"phase": "Failed", "reason": "NodePorts"}, "refused"),
        ({"phase": "Failed", "reason": "NodeShutdown", "containerStatuses": [exited(1)]}, "failed"),
        ({"phase": "Failed"}, "failed"),
    ],
)
def test_code_of_an_ended_pod(status: dict[str, Any], code: str) -> None:
    assert terminal_code(replace(facts(), status=status)) == code  # type: ignore[arg-type]


RESTLESS = {
    "status": {
        "containerStatuses": [
            running(
                restartCount=2, lastState={"terminated": {"exitCode": 1, "finishedAt": STARTED}}
            )
        ]
    }
}
DEAD = {"status": {"phase": "Failed"}}
UNWRITTEN = {"write_problem": WriteProblem(NOW - 9, "no", 1)}


@pytest.mark.parametrize(
    ("changes", "healthy", "code"),
    [
        ({}, True, "running"),
        ({}, False, "starting"),
        ({"worker": {"terminating_at": NOW - 1}}, False, "ending"),
        ({"runtime_error": "down"}, False, "runtime"),
        (DEAD, True, "failed"),
        ({**DEAD, "runtime_error": "down"}, False, "failed"),
        ({**DEAD, **UNWRITTEN}, False, "api-write"),
        ({"status": {"phase": "Succeeded"}}, True, "succeeded"),
        (RESTLESS, False, "crash"),
        (RESTLESS, True, "running"),
        ({**RESTLESS, "runtime_error": "down"}, False, "runtime"),
    ],
)
def test_code_of_a_pod(changes: dict[str, Any], healthy: bool, code: str) -> None:
    assert cause_code(facts(**changes), healthy=healthy) == code


def test_code_of_an_unknown_pod() -> None:
    assert cause_code(replace(facts(), pod=None), healthy=False) == "unknown-pod"


def test_the_table_of_causes_is_complete() -> None:
    """docs/explain.md lists each cause once, and no other."""
    page = (Path(__file__).parents[4] / "docs/explain.md").read_text()
    table = page.partition("## Causes\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert sorted(named) == sorted(CauseCode)
