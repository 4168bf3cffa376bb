"""Whether a pod's sandbox is still usable, or a new one is needed.

Used by the runtime manager, and by status for PodReadyToStartContainers. Must never act. Source:
docs/reference/behaviour.md, c1.
"""

from __future__ import annotations

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus


class SandboxDecision(Struct, frozen=True):
    """Whether a pod needs a new sandbox, and why."""

    create: bool
    """A new sandbox is needed."""
    attempt: int
    """That of the sandbox to create, or of the one in use."""
    sandbox_id: str
    """The sandbox in use, or the one that a new one replaces; empty when there is none."""
    reason: str
    message: str = ""
    """The message of condition PodReadyToStartContainers while a new sandbox is needed."""


NOT_READY = "PodSandboxNotReady"
"""Reason of condition PodReadyToStartContainers. Source: docs/reference/behaviour.md, c1."""


def decide_sandbox(pod: Pod, status: PodRuntimeStatus) -> SandboxDecision:
    """Evaluate the newest sandbox. Older ones never count."""
    if not status.sandboxes:
        return SandboxDecision(True, 0, "", "the pod has no sandbox", "no pod sandbox exists")
    newest = status.sandboxes[0]
    following = newest.attempt + 1
    ready = sum(1 for sandbox in status.sandboxes if sandbox.ready)
    if ready > 1:
        return SandboxDecision(
            True,
            following,
            newest.id,
            f"{ready} sandboxes are ready where one should be",
            "multiple pod sandboxes are ready and need to be reconciled",
        )
    if not newest.ready:
        return SandboxDecision(
            True, following, newest.id, "the sandbox is not ready", "pod sandbox is not ready"
        )
    if newest.host_network != pod.host_network:
        return SandboxDecision(
            True,
            following,
            "",
            "the sandbox's network namespace is not the one the pod requests",
            "network namespace mode changed and sandbox needs to be recreated",
        )
    if not pod.host_network and newest.has_network and not newest.ips:
        return SandboxDecision(
            True,
            following,
            newest.id,
            "the sandbox has no IP address",
            "pod sandbox has no IP address",
        )
    return SandboxDecision(False, newest.attempt, newest.id, "the sandbox is ready")
