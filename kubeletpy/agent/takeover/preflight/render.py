"""A report as text and as JSON. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import to_builtins

from kubeletpy.agent.takeover.preflight.findings import Area, PreflightReport, Severity
from kubeletpy.agent.takeover.preflight.pods import PodVerdict, counts, sentence


def text(report: PreflightReport) -> str:
    """The report for people; its last line is the answer in one sentence."""
    lines = [_head(report)]
    for area in Area:
        found = [
            f"  {each.severity:<9} {each.text}" for each in report.findings if each.area is area
        ]
        if area is Area.PODS:
            found += [_pod_line(each) for each in report.pods or ()]
        if found:
            lines += ["", f"{area}:", *found]
    return "\n".join([*lines, "", summary(report), ""])


def document(report: PreflightReport) -> dict[str, Any]:
    """The report for programs."""
    kubelet, pods = report.kubelet, report.pods
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
        "findings": to_builtins(report.findings),
        "counts": None if pods is None else {str(k): n for k, n in counts(pods).items()},
        "pods": None if pods is None else [_pod(each) for each in pods],
    }


def summary(report: PreflightReport) -> str:
    """The answer in one sentence."""
    number = Counter(each.severity for each in report.findings)
    differing, unclear = number[Severity.DIFFERS], number[Severity.UNCLEAR]
    parts = [
        "the pods could not be determined" if report.pods is None else sentence(report.pods),
        f"{differing} {'difference' if differing == 1 else 'differences'}",
        f"{unclear} unclear",
        f"{number[Severity.BLOCKS]} blocking",
    ]
    return f"{parts[0]}; {', '.join(parts[1:])}."


def _head(report: PreflightReport) -> str:
    kubelet = report.kubelet
    if kubelet is None:
        return "kubelet: not found"
    program = f", {kubelet.program}" if kubelet.program else ""
    return f"kubelet: {kubelet.source}{program}"


def _pod_line(pod: PodVerdict) -> str:
    held = pod.holdings
    about = [
        "static" if pod.static else "",
        f"running: {', '.join(pod.containers)}" if pod.containers else "",
        f"volumes: {', '.join(pod.volumes)}" if pod.volumes else "",
        f"devices: {', '.join(held.devices)}" if held.devices else "",
        f"CPUs: {', '.join(held.cpus)}" if held.cpus else "",
        f"claims: {', '.join(held.claims)}" if held.claims else "",
    ]
    reasons = "; ".join(each for each in (pod.adopted, pod.why) if each)
    why = f": {reasons}" if reasons else ""
    details = "; ".join(each for each in about if each)
    shown = f" ({details})" if details else ""
    return f"  {pod.outcome:<9} {pod.namespace}/{pod.name}{shown}{why}"


def _pod(pod: PodVerdict) -> dict[str, Any]:
    """The pod with its holdings beside its other fields."""
    found: dict[str, Any] = to_builtins(pod)
    holdings = found.pop("holdings")
    return {**found, **holdings}
