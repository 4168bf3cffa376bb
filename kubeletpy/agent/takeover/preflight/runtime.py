"""The container runtime against the settings. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kubeletpy.agent.takeover.preflight.findings import Area, Finding, Severity
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.pods.pod import Pod

SYSTEMD = "systemd"
_NO_EVENTS = ("it has no events", "it is relisted every second")
_finding = partial(Finding, Area.RUNTIME)


def runtime_findings(
    info: RuntimeInfo,
    reported: str | None,
    configured: str,
    *,
    systemd_runs: bool,
    events: bool = True,
    pods: Iterable[Pod] = (),
) -> list[Finding]:
    """Findings on the runtime and its capabilities.

    Args:
        reported: its cgroup driver; None: it does not report one.
        configured: setting cgroupDriver.
        systemd_runs: whether systemd is the machine's init.
        events: whether it has an event stream.
        pods: those of the node.
    """
    subject = f"{info.name} {info.version}"
    handlers = ", ".join(each.get("name") or "default" for each in info.handlers) or "not reported"
    features = sorted(info.features)
    if info.supplemental_groups_policy:
        features.append("supplemental_groups_policy")
    what = f"handlers: {handlers}; features: {', '.join(features) or 'none'}"
    return [
        _finding(Severity.NOTE, subject, what),
        *([] if events else [_finding(Severity.NOTE, subject, *_NO_EVENTS)]),
        *_driver(subject, reported, configured, systemd_runs),
        *_user_namespaces(info, pods),
    ]


def _driver(
    subject: str, reported: str | None, configured: str, systemd_runs: bool
) -> Iterable[Finding]:
    driver = reported or configured
    if driver == SYSTEMD and not systemd_runs:
        what = "the cgroup driver is systemd, but systemd does not run here"
        yield _finding(Severity.BLOCKS, subject, what, "set it to cgroupfs, in the runtime too")
    elif reported is None:
        what = f"it does not report its cgroup driver; cgroupDriver is {configured}"
        then = "pods do not start if the runtime has another one: upgrade the runtime"
        yield _finding(Severity.NOTE, subject, what, then)
    elif reported != configured:
        what = f"its cgroup driver is {reported}, cgroupDriver is {configured}"
        yield _finding(Severity.NOTE, subject, what, "that of the runtime is used")


def _user_namespaces(info: RuntimeInfo, pods: Iterable[Pod]) -> Iterable[Finding]:
    if info.handlers_with("userNamespaces"):
        return
    for pod in pods:
        if pod.spec.get("hostUsers") is False:
            what = "it has hostUsers: false, and no handler of the runtime supports user namespaces"
            yield _finding(Severity.UNCLEAR, pod.key, what, "it can't start again on this node")
