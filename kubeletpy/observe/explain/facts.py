"""The components' facts about one pod at one moment: the input of every explanation. Pure.

Data only, taken by :mod:`kubeletpy.observe.explain.snapshot`; must never reach into a component.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.images.policy import PullPosition
from kubeletpy.kubeapi.watch_state import FailingWatch
from kubeletpy.metrics.trace.model import PodTrace
from kubeletpy.node.build import RuntimeStart
from kubeletpy.pods.granted import HeldResource
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.probe_results import ProbeResults
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.pods.spared import Spared
from kubeletpy.pods.sync_results import StartError
from kubeletpy.podworkers.history import HistoryEntry, LastSync
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.podworkers.records import WorkerRecord
from kubeletpy.probes.report import ProbeReport
from kubeletpy.resources.devices.model import AwaitedPlugins
from kubeletpy.resources.dra.model import ClaimWait
from kubeletpy.status.conditions import is_ready
from kubeletpy.status.write_problem import WriteProblem
from kubeletpy.volumes.claims.model import VolumeWait


class NodeTaint(Struct, frozen=True):
    """A taint of a node; ``value`` may be empty."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Formats the taint like kubectl: ``key=value:effect``."""
        return self.key + (f"={self.value}" if self.value else "") + f":{self.effect}"


class PodFacts(Struct, frozen=True):
    """One pod. Times are Unix seconds, except those of the trace."""

    now: float
    uid: str
    namespace: str
    name: str
    wall_offset: float = 0.0
    """Added to event-loop seconds, it gives Unix seconds."""
    pod: Pod | None = None
    """None: no source has it (any more)."""
    mirror: Pod | None = None
    record: WorkerRecord | None = None
    status: api.PodStatus = field(default_factory=api.PodStatus)
    runtime: PodRuntimeStatus | None = None
    history: tuple[HistoryEntry, ...] = ()
    last_sync: LastSync | None = None
    next_sync_at: float | None = None
    start_errors: Mapping[str, StartError] = field(default_factory=dict)
    write_problem: WriteProblem | None = None
    trace: PodTrace | None = None
    runtime_error: str = ""
    runtime_start: RuntimeStart = field(default_factory=RuntimeStart)
    runtime_good_at: float | None = None
    """When the runtime was last known to be well, on the event loop's clock; None: never."""
    network_error: str = ""
    name_holder: str = ""
    """The uid of another static pod that still has the name."""
    awaits_admission: bool = False
    """The pod's admission is still undecided."""
    awaited_plugins: AwaitedPlugins | None = None
    """Device plugins that its admission waits for."""
    volumes: tuple[VolumeWait, ...] = ()
    """Volumes of claims and drivers that wait, and for what; times are on the event loop's
    clock."""
    failing_watches: tuple[FailingWatch, ...] = ()
    """Watches that keep failing, of services and of objects that the pod uses and that were never
    read; times are on the event loop's clock."""
    claims: tuple[ClaimWait, ...] = ()
    """Calls to DRA drivers in flight; times are on the event loop's clock."""
    pulls: Mapping[str, PullPosition] = field(default_factory=dict)
    """Image -> where its pull stands; times are on the event loop's clock."""
    held: tuple[HeldResource, ...] = ()
    """The parts of the machine that its containers have."""
    probes: ProbeResults = field(default_factory=ProbeResults)
    probe_reports: tuple[ProbeReport, ...] = ()
    wrong_since: float | None = None
    """Unix seconds of the first failure of the row that still goes on."""
    spared: Spared | None = None
    """How it exceeds a limit of its own storage without being evicted: it is critical."""
    ended_at: float | None = None
    """Unix seconds at which it was refused, or its end requested other than by a deletion; kept
    over restarts of the agent."""
    missing_secrets: tuple[str, ...] = ()
    """Pull secrets that the pod names and the API does not have."""
    port_holders: tuple[str, ...] = ()
    """Pods that have the host ports it was refused for: ``port 80/TCP: namespace/name``."""
    taints: tuple[NodeTaint, ...] = ()
    """The node's taints that it was refused for, as far as the node still has them."""
    deleted_for: tuple[NodeTaint, ...] | None = None
    """The same for those that it was deleted for; None: it was not deleted for taints."""
    log_ends: Mapping[str, str] = field(default_factory=dict)
    """Container name -> the last line of its latest log; only where it was requested."""

    @property
    def outcome(self) -> SyncOutcome | None:
        """How the last sync ended; None: there was none, or it was cut short."""
        return self.last_sync.outcome if self.last_sync is not None else None

    @property
    def static(self) -> bool:
        """Whether the pod comes from a manifest."""
        return self.pod is not None and self.pod.is_static

    @property
    def phase(self) -> str:
        """The phase as the agent sees it."""
        return self.status.get("phase") or "Pending"

    @property
    def ready(self) -> bool:
        """Whether the pod's Ready condition holds."""
        return is_ready(self.status)

    @property
    def ending(self) -> bool:
        """Whether the pod's end was requested from its worker."""
        return self.record is not None and self.record.termination_requested
