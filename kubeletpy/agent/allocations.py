"""What has been allocated to pods: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kubeletpy.agent.outside import Outside
from kubeletpy.agent.room import Room
from kubeletpy.agent.signals import Signals
from kubeletpy.allocation.checkpoint import ResourceState
from kubeletpy.allocation.feasibility import ResizeRules
from kubeletpy.allocation.manager import AllocationManager
from kubeletpy.config import KubeletSettings
from kubeletpy.events.recorder import EventRecorder
from kubeletpy.pods.decision import Decision
from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.config.resources import has_swap
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.structs import Struct


class Allocations(Struct, frozen=True):
    """What the composition root uses. ``actuated`` is what containers were last given."""

    manager: AllocationManager
    actuated: ResourceState
    rooms: list[Room]


def build_allocations(
    settings: KubeletSettings,
    outside: Outside,
    recorder: EventRecorder,
    signals: Signals,
    rules: RuntimeSettings,
    *,
    root: Path,
    current: Callable[[str], Pod | None],
    sources_ready: Callable[[], bool],
    decided: Callable[[str, Sequence[Decision]], None],
) -> Allocations:
    """Args:
    root: the kubelet's root directory.
    current: looks up a pod by uid, as its source has it.
    sources_ready: whether all pods are known.
    decided: records decisions about a pod (uid).
    """
    allocated = ResourceState(root / "allocated_pods_state")
    actuated = ResourceState(root / "actuated_pods_state")
    manager = AllocationManager(
        allocated,
        recorder,
        outside.clock,
        rules=ResizeRules.from_settings(settings, lambda pod, c: has_swap(pod, c, rules)),
        metrics=outside.metrics.resizes,
        judge=signals.fits,
        current=current,
        sync=signals.pod_changed,
        sources_ready=sources_ready,
        decided=decided,
    )
    rooms = [
        Room(actuated, keep=lambda found: actuated.keep(found.known), close=actuated.close),
        Room(allocated, close=allocated.close),
        Room(manager, keep=lambda found: manager.keep(found.desired), close=manager.close),
    ]
    return Allocations(manager, actuated, rooms)
