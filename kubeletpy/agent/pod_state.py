"""Builds what all components share about pods: a part of the composition root.

The pods of all sources, what runs of them, and what is reported about them. Must never decide
anything about a pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.agent.component import Component
from kubeletpy.agent.context import BuildContext
from kubeletpy.agent.flight_recorder import Flight, build_flight_recorder
from kubeletpy.agent.pod_sources import expected_sources
from kubeletpy.clock import Clock
from kubeletpy.events.reasons import Reason
from kubeletpy.events.recorder import WARNING, pod_reference
from kubeletpy.pods.decision import Decision
from kubeletpy.pods.node_allocatable import GATE as CLAIMS_COUNT
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.history import DecisionHistory
from kubeletpy.podworkers.queries import WorkerQueries
from kubeletpy.podworkers.reason_cache import ReasonCache
from kubeletpy.podworkers.requeue import RequeueSettings, tick_of
from kubeletpy.podworkers.start_latency import StartLatency
from kubeletpy.podworkers.state_machine import WorkerMachine
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.workers import log_impossible
from kubeletpy.status.status_manager import ApiStatusManager
from kubeletpy.structs import Struct
from kubeletpy.syncloop.active_pods import ActivePods
from kubeletpy.syncloop.merge import Merge
from kubeletpy.syncloop.remains import Remains
from kubeletpy.syncloop.sources.ready import ReadySources
from kubeletpy.syncloop.unread import UnreadPods
from kubeletpy.trace.spans import Traces


class PodState(Struct, frozen=True, kw_only=True):
    """The state of all pods, for the rest of the composition root.

    Attributes:
        sources: which sources have shown their pods.
        merge: the pods of all sources; ``unread`` are those that it could not read.
        cache: the runtime's containers and sandboxes.
        machine: the state of the workers; ``queries`` reads it.
        history: the decisions about pods.
    """

    clock: Clock
    flight: Flight
    sources: ReadySources
    merge: Merge
    unread: UnreadPods
    pods: PodManager
    cache: PodStatusCache
    machine: WorkerMachine
    queries: WorkerQueries
    statuses: ApiStatusManager
    active: ActivePods
    remains: Remains
    reasons: ReasonCache
    starts: StartLatency
    history: DecisionHistory
    traces: Traces
    components: list[Component]

    def decided(self, uid: str, decisions: Sequence[Decision]) -> None:
        """Record decisions about a pod."""
        self.history.add(uid, decisions, self.clock.now())

    def uses_node(self, uid: str) -> bool:
        """Whether a pod uses the node."""
        return any(pod.uid == uid for pod in self.active())

    def users(self) -> frozenset[str] | None:
        """The pods that use the node, including those that were removed from it but still run.

        None: not all sources and the runtime have been read yet.
        """
        if not (self.sources.all() and self.cache.populated):
            return None
        return self.cache.running().union(pod.uid for pod in self.active())


def build_pod_state(context: BuildContext) -> PodState:
    """Raises ValueError if two sources of pods have one name."""
    settings, outside, recorder = context.settings, context.outside, context.recorder
    clock, metrics, kube_api = outside.clock, outside.metrics, context.kube_api
    pods, cache, reasons = PodManager(), PodStatusCache(), ReasonCache()
    requeue = RequeueSettings(settings.sync_frequency, tick=tick_of(context.node_name))
    machine = WorkerMachine(requeue, log_impossible)
    queries = WorkerQueries(machine)
    flight = build_flight_recorder(context.flags, clock, machine, context.root, context.node_name)
    traces = Traces(outside.tracer, span_log=flight.span)
    starts = StartLatency(metrics.workers, clock)
    statuses = ApiStatusManager(
        kube_api,
        clock,
        mirror_of=pods.mirror_of,
        on_termination=metrics.starts.container_terminated,
        on_written=metrics.workers.pod_status_sync_duration.observe,
        on_refused=lambda pod, why: recorder.event(
            pod_reference(pod),
            WARNING,
            Reason.FAILED_STATUS_UPDATE,
            f"The API does not accept the pod's status: {why}",
        ),
        on_change=context.signals.status_changed,
        traces=traces,
        rng=outside.rng,
    )
    merge = Merge(claims_count=context.gates.enabled(CLAIMS_COUNT))
    unread = UnreadPods(merge, pods, cache, queries.record)
    components = [
        *flight.components,
        Component(pods),
        Component(queries),
        Component(cache),
        Component(reasons),
        Component(starts, keep=lambda found: starts.forget_except(found.desired)),
        Component(statuses, close=statuses.close),
    ]
    return PodState(
        clock=clock,
        flight=flight,
        sources=expected_sources(settings, kube_api, outside.pod_sources),
        merge=merge,
        unread=unread,
        pods=pods,
        cache=cache,
        machine=machine,
        queries=queries,
        statuses=statuses,
        active=ActivePods(pods, queries, statuses),
        remains=Remains(pods, queries, unread, statuses.is_reported),
        reasons=reasons,
        starts=starts,
        history=DecisionHistory(),
        traces=traces,
        components=components,
    )
