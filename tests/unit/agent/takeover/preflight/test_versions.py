"""Findings that follow from the versions of API server, kubelet and agent."""

from __future__ import annotations

import pytest

from kubeletpy.agent.takeover.preflight.checks import version_findings
from kubeletpy.agent.takeover.preflight.findings import Severity
from kubeletpy.base.kubernetes_version import KubernetesVersion
from kubeletpy.config.version_choice import NoVersion, ServerVersion, decide

SERVER = ServerVersion(1, 37, "v1.37.2")


@pytest.mark.parametrize(
    ("server", "kubelet", "severities"),
    [
        (SERVER, "v1.37.2", ["note"]),
        (SERVER, "", ["note"]),
        (SERVER, "nonsense", ["note"]),
        (SERVER, "v1.36.3", ["note", "differs"]),
        (SERVER, "v1.38.0", ["note", "unclear"]),
        (SERVER, "v1.36.0+k3s1", ["note", "differs"]),
        (ServerVersion(1, 34, "v1.34.0"), "v1.34.0", ["unclear", "differs"]),
        (NoVersion("no answer"), "v1.37.2", ["unclear", "unclear"]),
    ],
)
def test_skew(server: ServerVersion | NoVersion, kubelet: str, severities: list[str]) -> None:
    found = version_findings(decide(None, server, None), kubelet)
    assert [each.severity for each in found] == [Severity(each) for each in severities]


def test_the_texts() -> None:
    requested = KubernetesVersion(36)
    found = version_findings(decide(requested, None, None), "v1.35.4")
    assert [each.text for each in found] == [
        "the agent runs as Kubernetes 1.36: --kubernetes-version=1.36",
        "kubelet v1.35.4: the node's version changes to 1.36: defaults and feature gates are those "
        "of that version: as an upgrade of the kubelet",
    ]
