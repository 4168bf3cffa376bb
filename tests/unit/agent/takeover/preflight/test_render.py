"""A report as text and as JSON."""

from __future__ import annotations

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
)

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
