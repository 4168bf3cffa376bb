"""A report as text and as JSON. Pure."""

from __future__ import annotations

from typing import Any

from kubeletpy.preflight.findings import Area, Report, Severity


def text(report: Report) -> str:
    """The report for people; its last line is the answer in one sentence."""
    lines = [_head(report)]
    for area in Area:
        found = [each for each in report.findings if each.area is area]
        if found:
            lines += ["", f"{area}:"]
        lines += [f"  {each.severity:<8} {each.text}" for each in found]
    return "\n".join([*lines, "", summary(report), ""])


def document(report: Report) -> dict[str, Any]:
    """The report for programs."""
    kubelet = report.kubelet
    return {
        "safe": report.safe,
        "summary": summary(report),
        "kubelet": None
        if kubelet is None
        else {
            "source": kubelet.source,
            "program": kubelet.program,
            "pid": kubelet.pid or None,
            "files": list(kubelet.files),
        },
        "findings": [
            {
                "area": str(each.area),
                "severity": str(each.severity),
                "subject": each.subject,
                "what": each.what,
                "consequence": each.consequence,
            }
            for each in report.findings
        ],
    }


def summary(report: Report) -> str:
    """The answer in one sentence."""
    counts = {
        severity: sum(each.severity is severity for each in report.findings)
        for severity in Severity
    }
    parts = [
        f"{counts[Severity.DIFFERS]} settings with no or another effect",
        f"{counts[Severity.UNCLEAR]} unclear",
        f"{counts[Severity.BLOCKS]} blocking",
    ]
    return ", ".join(parts)


def _head(report: Report) -> str:
    kubelet = report.kubelet
    if kubelet is None:
        return "kubelet: not found"
    program = f", {kubelet.program}" if kubelet.program else ""
    return f"kubelet: {kubelet.source}{program}"
