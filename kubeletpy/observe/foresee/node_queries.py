"""Queries that the foreseer makes of the agent. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kubeletpy.base.structs import Struct
from kubeletpy.runtime_manager.config.settings import RuntimeSettings

if TYPE_CHECKING:
    from kubeletpy.metrics.trace.model import PodTrace
    from kubeletpy.node.eviction.report import EvictionOrder
    from kubeletpy.pods.decision import Decision
    from kubeletpy.pods.pod import Pod
    from kubeletpy.pods.pod_manager import PodManager
    from kubeletpy.pods.probe_results import ProbeResults
    from kubeletpy.pods.runtime_status import PodRuntimeStatus
    from kubeletpy.pods.sync_results import SyncIntent
    from kubeletpy.remote.protocol import ImageService
    from kubeletpy.resources.admission.verdict import Verdict
    from kubeletpy.resources.allocation.feasibility import Infeasible


class NodeQueries(Struct, frozen=True):
    """The queries that the foreseer makes of the agent.

    Attributes:
        judge: would a pod be admitted beside the others, and whom would it preempt?
        others: the admitted pods but one, by uid.
        place: where on the machine a pod would go; raises AllocationRefused.
        allocated: a pod with the resources allocated to it.
        resized: a pod as it would be run after a resize.
        seen: what the runtime has of a pod (uid); None: not read yet.
        probes: the results of a pod's probes.
        intends: what the runtime sync would do.
        traces: of the pods that this agent has started.
        levels: the node's eviction thresholds with what is left (eviction.report.Level).
        evictions: in which order pods would be evicted, with a pod among them and others (uids)
            removed.
        memory_volumes: whether a resize may change the size limits of volumes in memory.
        settings: of the node's sandboxes and containers.
    """

    node_name: str
    pods: PodManager
    images: ImageService
    judge: Callable[[Pod, Sequence[Pod]], tuple[Verdict, Sequence[Pod]]]
    others: Callable[[str], Sequence[Pod]]
    place: Callable[[Pod], Sequence[Decision]]
    allocated: Callable[[Pod], Pod]
    resized: Callable[[Pod], Pod | Infeasible]
    seen: Callable[[str], PodRuntimeStatus | None]
    probes: Callable[[Pod], ProbeResults]
    intends: Callable[[Pod, PodRuntimeStatus, ProbeResults], SyncIntent]
    traces: Iterable[PodTrace]
    levels: Callable[[], Sequence[Mapping[str, Any]]]
    evictions: Callable[[Pod, Collection[str]], Awaitable[Sequence[EvictionOrder]]]
    memory_volumes: bool
    settings: RuntimeSettings = RuntimeSettings()
