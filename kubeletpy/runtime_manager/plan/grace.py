"""How long a container gets to end by itself. Always in seconds.

Source: docs/reference/behaviour.md, n2. Must never wait or read a clock.
"""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import MAX_GRACE_S, Pod
from kubeletpy.pods.runtime_status import KillReason
from kubeletpy.runtime_manager.names.labels import AnnotatedContainerInfo

MINIMUM = 2
"""Every container gets this much, whatever was requested."""


def base_grace(deletion: int | None, probe: int | None, termination: int | None) -> int:
    """The first one set: of the deletion, of the failed probe, of the spec; else 2.

    At most MAX_GRACE_S: probes and annotations can hold any 64-bit number.
    """
    for grace in (deletion, probe, termination):
        if grace is not None:
            return min(max(0, grace), MAX_GRACE_S)
    return MINIMUM


def container_grace(pod: Pod, container: api.Container | None, reason: KillReason | None) -> int:
    """The grace period from the pod's spec, before any override."""
    return base_grace(
        pod.deletion_grace_period,
        _probe_grace(container, reason),
        pod.spec.get("terminationGracePeriodSeconds"),
    )


def remembered_grace(container: AnnotatedContainerInfo) -> int:
    """The grace period of a container whose pod was removed, from its annotations."""
    return base_grace(container.deletion_grace_period, None, container.termination_grace_period)


def remaining(grace: int, elapsed: float) -> int:
    """The rest of a grace period after some seconds; only whole seconds count."""
    return max(0, grace - int(elapsed))


def _probe_grace(container: api.Container | None, reason: KillReason | None) -> int | None:
    if container is None:
        return None
    probe = None
    if reason is KillReason.LIVENESS_PROBE:
        probe = container.get("livenessProbe")
    elif reason is KillReason.STARTUP_PROBE:
        probe = container.get("startupProbe")
    return probe.get("terminationGracePeriodSeconds") if probe else None
