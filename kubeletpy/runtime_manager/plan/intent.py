"""Predicts the actions of a runtime sync for a pod, without doing them. Pure."""

from __future__ import annotations

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import (
    PodRuntimeStatus,
    ProbeResults,
    SyncIntent,
    restart_all_active,
)
from kubeletpy.runtime_manager.plan.compute_actions import compute_pod_actions
from kubeletpy.runtime_manager.plan.resize import InEffect
from kubeletpy.runtime_manager.plan.shown_ends import with_shown_ends


def sync_intent(
    pod: Pod, status: PodRuntimeStatus, probes: ProbeResults, in_effect: InEffect
) -> SyncIntent:
    """The actions a sync would take; the arguments are those of :func:`compute_pod_actions`."""
    plan = compute_pod_actions(
        pod,
        with_shown_ends(pod, status, pod.status),
        probes,
        all_containers_restarting=restart_all_active(pod, status),
        in_effect=in_effect,
    )
    return SyncIntent(
        plan.decisions,
        ends=plan.kill_pod and not plan.create_sandbox,
        new_sandbox=plan.create_sandbox,
        stopped=tuple(kill.name for kill in plan.containers_to_kill),
        started=tuple(start.name for start in plan.starts),
        resized=tuple(
            dict.fromkeys(update.name for update in (*plan.resize.memory, *plan.resize.cpu))
        ),
    )
