"""The components' facts about one pod at one moment: the input of each explanation. Pure.

Data only, taken by :mod:`kubeletpy.observe.explain.snapshot`; must never reach into a component.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.images.policy import PullPosition
from kubeletpy.kubeapi.watch_state import FailingWatch
from kubeletpy.metrics.trace.model import PodTrace
from kubeletpy.node.build import RuntimeStart
from kubeletpy.observe.explain.deaths import DeathCause
from kubeletpy.pods.pod import DISRUPTION_TARGET, Excluded, HeldResource, Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus, ProbeResults, StartError
from kubeletpy.podworkers.history import HistoryEntry, LastSync
from kubeletpy.podworkers.records import SyncOutcome, WorkerRecord
from kubeletpy.probes.schedule import ProbeReport
from kubeletpy.resources.admission.checks import tolerates, untolerated
from kubeletpy.resources.admission.offline import OfflineVerdict
from kubeletpy.resources.devices.model import AwaitedPlugins
from kubeletpy.resources.dra.model import ClaimWait
from kubeletpy.status.conditions import is_ready
from kubeletpy.status.store import WriteProblem
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
    shutting_down: bool = False
    """The node is about to go down."""
    """The pod's admission is still undecided."""
    awaited_plugins: AwaitedPlugins | None = None
    """Device plugins that its admission waits for."""
    offline: OfflineVerdict | None = None
    """Why it waits for the API server, which has not answered since the agent's start."""
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
    excluded: Excluded | None = None
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
    deaths: Mapping[str, DeathCause] = field(default_factory=dict)
    """Container id -> why it ended."""
    log_ends: Mapping[str, str] = field(default_factory=dict)
    """Container name -> the last line of its latest log; only where it was requested."""

    @property
    def outcome(self) -> SyncOutcome | None:
        """How the last sync ended; None if there was none, or it was cut short."""
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


TAINT_REASON = "TaintToleration"
"""The reason for a pod that does not tolerate the node's taints of effect NoExecute."""
BY_TAINT_MANAGER = "DeletionByTaintManager"
"""The reason of the condition that a taint manager sets on a pod before it deletes it."""
EFFECT = "NoExecute"
MAX_TAINTS = 5


def refused_for(
    pod: Pod, status: Mapping[str, Any], node: Mapping[str, Any] | None
) -> tuple[NodeTaint, ...]:
    """Return the taints that a pod was refused for and that the node still has."""
    if status.get("reason") != TAINT_REASON:
        return ()
    return _node_taints(untolerated(pod, _taints(node), EFFECT))


def deleted_for(pod: Pod, node: Mapping[str, Any] | None) -> tuple[NodeTaint, ...] | None:
    """Return the taints that a pod was deleted for and the node still has, or None for other pods.

    Without the condition (the cluster's taint manager may be without it) a pod that is deleted
    while the node has a taint that it never tolerates is taken for one.
    """
    if not pod.being_deleted:
        return None
    taints = _taints(node)
    if never := untolerated(pod, taints, EFFECT):
        return _node_taints(never)
    if not any(_is_taint_managers(each) for each in pod.status.get("conditions") or ()):
        return None
    tolerations = pod.spec.get("tolerations") or ()
    limited = [each for each in tolerations if each.get("tolerationSeconds") is not None]
    bounded = Pod({**pod.object, "spec": {**pod.spec, "tolerations": limited}})
    return _node_taints(
        each for each in taints if each.get("effect") == EFFECT and tolerates(bounded, each)
    )


def _is_taint_managers(condition: Mapping[str, Any]) -> bool:
    return (
        condition.get("type") == DISRUPTION_TARGET
        and condition.get("status") == "True"
        and condition.get("reason") == BY_TAINT_MANAGER
    )


def _taints(node: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = ((node or {}).get("spec") or {}).get("taints") or []
    return found


def _node_taints(taints: Iterable[Mapping[str, Any]]) -> tuple[NodeTaint, ...]:
    return tuple(
        NodeTaint(str(each.get("key") or ""), str(each.get("value") or ""), str(each["effect"]))
        for each in list(taints)[:MAX_TAINTS]
    )
