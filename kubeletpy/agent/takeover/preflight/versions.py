"""Versions: of the API server, of the node's kubelet, and the one that the agent runs as. Pure."""

from __future__ import annotations

import re

from kubeletpy.agent.takeover.preflight.findings import Area, Finding, Severity
from kubeletpy.config.version_choice import ResolvedVersion

_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def version_findings(resolved: ResolvedVersion, kubelet: str) -> list[Finding]:
    """Findings on the versions of agent and kubelet.

    ``kubelet``: the node's kubeletVersion as the API shows it, such as ``v1.36.3``; empty: unknown.
    """
    severity = Severity.UNCLEAR if resolved.warning else Severity.NOTE
    text = f"the agent runs as Kubernetes {resolved.version}"
    found = [Finding(Area.VERSION, severity, text, resolved.why)]
    match = _VERSION.match(kubelet)
    if match is None:
        return found
    minor, subject = int(match[2]), f"kubelet {kubelet}"
    if int(match[1]) != 1 or minor > resolved.version.minor:
        what = "it is newer than the version that the agent runs as"
        then = "state and pods that need its newer features are not understood"
        found.append(Finding(Area.VERSION, Severity.UNCLEAR, subject, what, then))
    elif minor < resolved.version.minor:
        what = f"the node's version changes to {resolved.version}"
        then = "defaults and feature gates are those of that version: as an upgrade of the kubelet"
        found.append(Finding(Area.VERSION, Severity.DIFFERS, subject, what, then))
    return found
