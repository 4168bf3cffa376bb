"""What every acting part of the runtime manager works with, made once and handed around.

Must never hold state of a pod.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeletpy.clock import Clock
from kubeletpy.events.recorder import EventRecorder
from kubeletpy.metrics.pods import PodStartMetrics
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.mutations import Mutations
from kubeletpy.runtime_manager.act.slots import StartSlots, StopSlots
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.hooks import LifecycleHooks
from kubeletpy.runtime_manager.pod_limits import ActuatedResources, PodCgroupLimits
from kubeletpy.runtime_manager.read.status_source import StatusSource


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools."""

    runtime: RuntimeService
    source: StatusSource
    mutations: Mutations
    slots: StartSlots
    stop_slots: StopSlots
    recorder: EventRecorder
    clock: Clock
    metrics: PodStartMetrics
    settings: RuntimeSettings
    hooks: LifecycleHooks
    actuated: ActuatedResources
    """Which resources containers and pods were last given."""
    pod_limits: PodCgroupLimits
    """The limits of pods' own cgroups."""
    root_dir: str
    """The kubelet's root directory."""
