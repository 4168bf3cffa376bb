"""What the verbs of a pod's life work with, in one place. Must never decide anything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kubeletpy.api import types as api
from kubeletpy.cgroups.protocol import NoPodCgroups, PodCgroupKeeper
from kubeletpy.clock import Clock
from kubeletpy.events.recorder import EventRecorder
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.metrics import NoWorkerMetrics, WorkerMetrics
from kubeletpy.podworkers.reason_cache import ReasonCache
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.probes.protocol import ProbeManager
from kubeletpy.runtime_manager.pod_limits import ActuatedInMemory, ActuatedResources
from kubeletpy.runtime_manager.protocol import RuntimeManager
from kubeletpy.runtime_manager.results import Decision, ResizeOutcome
from kubeletpy.status.protocol import StatusManager
from kubeletpy.volumes.protocol import VolumeManager


class MirrorKeeper(Protocol):
    """Keeps the API's pictures of static pods."""

    def reconcile(self, pod: Pod, mirror: Pod | None) -> None:
        """Have the mirror made, replaced or left. Never blocks: static pods start without API."""
        ...


class ResizeKeeper(Protocol):
    """Knows of resizes in place."""

    def conditions(self, uid: str) -> Sequence[api.PodCondition]:
        """The conditions of a pod that tell of a resize."""
        ...

    def synced(self, pod: Pod, outcome: ResizeOutcome | None) -> bool:
        """What came of a sync of the pod as it was allocated; whether the conditions changed."""
        ...

    def ended(self, uid: str) -> None:
        """The pod has run to its end."""
        ...


class NoResizes:
    """Nothing is ever resized."""

    def conditions(self, uid: str) -> Sequence[api.PodCondition]:
        """None."""
        return ()

    def synced(self, pod: Pod, outcome: ResizeOutcome | None) -> bool:
        """Nothing changes."""
        return False

    def ended(self, uid: str) -> None:
        """Nothing was resized."""


@dataclass(frozen=True, slots=True)
class SyncServices:
    """The rooms that a pod's steps go through."""

    runtime: RuntimeManager
    statuses: StatusManager
    volumes: VolumeManager
    probes: ProbeManager
    cache: PodStatusCache
    recorder: EventRecorder
    clock: Clock
    pods_dir: Path
    """{root}/pods"""
    reasons: ReasonCache = field(default_factory=ReasonCache)
    kube_api: KubeApi | None = None
    """None: standalone."""
    recursive_read_only: Collection[str] = ()
    """Runtime handlers that can mount read-only down to the mounts below; "" is the default one."""
    mirrors: MirrorKeeper | None = None
    cgroups: PodCgroupKeeper = field(default_factory=NoPodCgroups)
    resizes: ResizeKeeper = field(default_factory=NoResizes)
    actuated: ActuatedResources = field(default_factory=ActuatedInMemory)
    """What pods and containers were last given, for what the runtime does not tell."""
    decided: Callable[[str, Sequence[Decision]], None] = lambda uid, decisions: None
    """Told of what is decided about a pod before it is done."""
    looked_at: Callable[[Pod, PodRuntimeStatus], None] = lambda pod, status: None
    """Told what the runtime has of a pod whenever its status is made."""
    network_error: Callable[[], str] = lambda: ""
    """Why pods can not have a network now; empty when they can."""
    host_ips: Callable[[], Sequence[str]] = tuple
    agent_started_at: float = 0.0
    """Unix seconds."""
    metrics: WorkerMetrics = field(default_factory=NoWorkerMetrics)
