"""What an agent is made of that is not its own: runtime, API, clock, chance, machine, settings.

Data only; :class:`kubeletpy.agent.Agent` takes it, whoever embeds the agent fills it in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kubeletpy.admission.facts import NodeState
from kubeletpy.allocation.feasibility import ResizeRules
from kubeletpy.cgroups.tree import CgroupTree
from kubeletpy.clock import Clock
from kubeletpy.events.recorder import EventRecorder
from kubeletpy.eviction.keeper import Meter
from kubeletpy.images.gc_selection import ImageGCPolicy
from kubeletpy.images.manager import PullSettings
from kubeletpy.images.node_credentials import NodeCredentials
from kubeletpy.images.pod_credentials import CredentialProviders
from kubeletpy.images.records.ledger import PullRecords
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.options import NodeOptions
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.requeue import RequeueSettings
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.protocol import ImageService, RuntimeService
from kubeletpy.runtime_manager.act.user_namespaces import UserNamespaces
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.plan.gc_selection import GCPolicy
from kubeletpy.runtime_manager.seams import Seams
from kubeletpy.shutdown.plan import Period
from kubeletpy.syncloop.pleg import PlegSettings
from kubeletpy.volumes.protocol import VolumeManager


@dataclass(frozen=True, slots=True)
class StaticPods:
    """Where static pods come from; empty: nowhere."""

    path: str = ""
    url: str = ""
    url_headers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    file_check_s: float = 20.0
    http_check_s: float = 20.0


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What an agent is made of that is not its own."""

    runtime: RuntimeService
    images: ImageService
    clock: Clock
    root_dir: Path
    node: NodeOptions
    facts: MachineFacts
    node_ips: Sequence[str]
    runtime_info: RuntimeInfo
    kube_api: KubeApi | None = None
    """None: standalone, with static pods only."""
    heartbeat_api: KubeApi | None = None
    """For node status and lease, with a rate of its own; None: ``kube_api``."""
    events_api: KubeApi | None = None
    """For Events, with a rate of its own; None: ``kube_api``."""
    runtime_settings: RuntimeSettings = field(default_factory=RuntimeSettings)
    seams: Seams = field(default_factory=Seams)
    pulls: PullSettings = field(default_factory=PullSettings)
    node_credentials: NodeCredentials | None = None
    credential_providers: CredentialProviders | None = None
    """Programs that know registry credentials; None: there are none."""
    pull_records: PullRecords | None = None
    """Who may use which image without a pull; None: every pod every image that is there."""
    image_gc: ImageGCPolicy | None = None
    container_gc: GCPolicy | None = None
    static_pods: StaticPods = field(default_factory=StaticPods)
    requeue: RequeueSettings = field(default_factory=RequeueSettings)
    pleg: PlegSettings = field(default_factory=PlegSettings)
    shutdown_periods: Sequence[Period] = ()
    """Graceful node shutdown; empty: off."""
    max_crash_loop_delay_s: float = 300.0
    concurrent_starts: int | None = None
    volumes: Callable[[EventRecorder, Callable[[str], None]], VolumeManager] | None = None
    """Makes the volume manager, given where events go and what wakes a pod (by uid)."""
    storage: Callable[[PodManager, PodStatusCache], Meter] | None = None
    """Makes what measures local storage; None: its limits are not kept."""
    cgroups: CgroupTree | None = None
    """None: pods have no cgroups of their own (cgroupsPerQOS false)."""
    user_namespaces: UserNamespaces | None = None
    """None: pods with hostUsers false are refused by their config."""
    resizes: ResizeRules = field(default_factory=ResizeRules)
    """Which resizes in place this node can do."""
    admission: NodeState = field(default_factory=NodeState)
    """What admission must know besides the Node object."""
    metrics: Metrics = field(default_factory=Metrics)
    booted_at: float | None = None
    """When the machine was booted, in Unix seconds; None: not known."""
    started_at: float | None = None
    """When this process was started, in Unix seconds; None: when the agent is made."""
    rng: random.Random = field(default_factory=random.Random)
    on_connection: Callable[[Callable[[bool], None]], None] | None = None
    """Registers a listener for the runtime's connection being lost (False) or back (True)."""
