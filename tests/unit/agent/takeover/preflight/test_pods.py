"""Which pods are kept and which are restarted, according to the plan of the first sync."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.agent.takeover.preflight import findings
from kubeletpy.agent.takeover.preflight.findings import (
    Area,
    Finding,
    Holdings,
    KubeletFound,
    PodOutcome,
    PodVerdict,
    PreflightReport,
    Severity,
    judge,
    sentence,
    volumes,
)
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus, ProbeResults
from kubeletpy.runtime_manager.plan.compute_actions import sync_intent
from kubeletpy.runtime_manager.plan.resize import InEffect
from tests.kit.records import DEAD, container, exited, has, make_pod, running, sidecar

OTHER = {"uid": "uid-1", "deletionTimestamp": "2026-01-01T00:00:00Z"}
STATUS: Any = {"phase": "Succeeded"}


def verdict(pod: Pod, status: PodRuntimeStatus) -> PodVerdict:
    intent = sync_intent(pod, status, ProbeResults(), InEffect())
    return judge(pod, status, intent, Holdings())


@pytest.mark.parametrize(
    ("pod", "status", "outcome", "why"),
    [
        (make_pod("app"), has(running("app")), "kept", ""),
        (make_pod("a", "b"), has(running("a"), running("b")), "kept", ""),
        (
            make_pod("app", init=("first", sidecar("beside"))),
            has(running("app"), exited("first"), running("beside")),
            "kept",
            "",
        ),
        (make_pod("a", "b"), has(running("a"), exited("b", 1)), "kept", "start container b: "),
        (make_pod("app"), has(exited("app", 1)), "kept", "start container app: "),
        (
            make_pod(container("app", image="registry.example/app:2")),
            has(running("app")),
            "restarted",
            "kill container app (id-app): Container app definition changed",
        ),
        (
            make_pod("app"),
            has(running("app"), sandboxes=(DEAD,)),
            "restarted",
            "create sandbox, attempt 1: the sandbox is not ready",
        ),
        (
            make_pod("app", hostNetwork=True),
            has(running("app")),
            "restarted",
            "create sandbox, attempt 1: the sandbox's network namespace",
        ),
        (make_pod("app"), has(sandboxes=()), "starting", "create sandbox, attempt 0: "),
        (make_pod("app"), has(exited("app"), sandboxes=(DEAD,)), "starting", "create sandbox"),
        (make_pod("app", metadata=OTHER), has(running("app")), "ending", "it is being deleted"),
        (
            make_pod("app", policy="Never"),
            has(running("app"), sandboxes=(DEAD,)),
            "stopped",
            "stop the pod without a new sandbox: ",
        ),
        (
            Pod({**make_pod("app", policy="Never").object, "status": STATUS}),
            has(exited("app")),
            "finished",
            "it is Succeeded",
        ),
    ],
)
def test_one_pod(pod: Pod, status: PodRuntimeStatus, outcome: str, why: str) -> None:
    found = verdict(pod, status)
    assert found.outcome == outcome
    assert found.why.startswith(why)
    assert why or not found.why


def test_a_verdict_has_containers_and_volumes() -> None:
    pod = make_pod(
        "app",
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "tmp"}],
    )
    found = verdict(pod, has(running("app")))
    assert found.containers == {"app": "id-app"}
    assert volumes(pod) == ("data (persistentVolumeClaim)", "tmp (emptyDir)")


def made(outcome: PodOutcome) -> PodVerdict:
    return PodVerdict("ns", "p", "u", outcome)


@pytest.mark.parametrize(
    ("outcomes", "text"),
    [
        ([], "0 pods kept, 0 restarted"),
        (["kept"], "1 pod kept, 0 restarted"),
        (["kept"] * 30, "30 pods kept, 0 restarted"),
        (["kept", "kept", "restarted", "ending"], "2 pods kept, 1 restarted, 1 ending"),
    ],
)
def test_the_sentence(outcomes: list[str], text: str) -> None:
    assert sentence(tuple(made(PodOutcome(each)) for each in outcomes)) == text


# A report as text and as JSON.

KUBELET = KubeletFound("process 7 of kubelet.service", "/usr/bin/kubelet", ("--secret=1",), pid=7)
DIFFERS = Finding(Area.SETTINGS, Severity.DIFFERS, "iptablesDropBit", "3", "no effect")
KEPT = PodVerdict(
    "ns",
    "a",
    "u",
    PodOutcome.KEPT,
    containers={"app": "id"},
    volumes=("tmp (emptyDir)",),
    holdings=Holdings(("example.com/gpu (app)",), ("app: 2-3",), ("claim",)),
)
RESTARTED = PodVerdict("ns", "b", "v", PodOutcome.RESTARTED, "definition changed", static=True)


def test_text() -> None:
    assert findings.text(PreflightReport(KUBELET, (DIFFERS,), (KEPT, RESTARTED))) == (
        "kubelet: process 7 of kubelet.service, /usr/bin/kubelet\n"
        "\n"
        "settings:\n"
        "  differs   iptablesDropBit: 3: no effect\n"
        "\n"
        "pods:\n"
        "  kept      ns/a (running: app; volumes: tmp (emptyDir); devices: example.com/gpu (app); "
        "CPUs: app: 2-3; claims: claim)\n"
        "  restarted ns/b (static): definition changed\n"
        "\n"
        "1 pod kept, 1 restarted; 1 difference, 0 unclear, 0 blocking.\n"
    )


def test_json() -> None:
    found = findings.document(PreflightReport(KUBELET, (DIFFERS,), (KEPT,)))
    assert "secret" not in str(found)
    assert found["safe"] is True
    assert found["counts"]["kept"] == 1
    assert found["pods"][0]["containers"] == {"app": "id"}


def test_without_a_kubelet() -> None:
    text = findings.text(PreflightReport(None, ()))
    assert text.startswith("kubelet: not found\n\nthe pods could not be determined; ")


@pytest.mark.parametrize(
    ("report", "safe"),
    [
        (PreflightReport(KUBELET, (DIFFERS,), (KEPT,)), True),
        (PreflightReport(KUBELET, (), ()), True),
        (PreflightReport(KUBELET, (), (KEPT, RESTARTED)), False),
        (PreflightReport(KUBELET, (), (PodVerdict("n", "a", "u", PodOutcome.UNCLEAR),)), False),
        (PreflightReport(KUBELET, (), (PodVerdict("n", "a", "u", PodOutcome.STOPPED),)), False),
        (
            PreflightReport(KUBELET, (Finding(Area.STATE, Severity.UNCLEAR, "f", "w"),), (KEPT,)),
            False,
        ),
        (
            PreflightReport(KUBELET, (Finding(Area.RIGHTS, Severity.BLOCKS, "f", "w"),), (KEPT,)),
            False,
        ),
        (PreflightReport(KUBELET, ()), False),
        (PreflightReport(None, (), ()), False),
    ],
)
def test_safe(report: PreflightReport, safe: bool) -> None:
    assert report.safe is safe
