"""Builds the parts about pods that all components share: a part of the composition root.

The pods of all sources, what runs of them, and what is reported about them. Must never decide
anything about a pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.agent.component import Component
from kubeletpy.agent.context import BuildContext
from kubeletpy.agent.flight_recorder import build_flight_recorder
from kubeletpy.agent.pod_sources import expected_sources
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, pod_reference
from kubeletpy.metrics.trace.spans import Traces
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
from kubeletpy.syncloop.active_pods import ActivePods
from kubeletpy.syncloop.merge import Merge
from kubeletpy.syncloop.remains import Remains
from kubeletpy.syncloop.unread import UnreadPods


class PodState:
    """The state of all pods, for the rest of the composition root.

    Attributes:
        pods, cache: the pods of the sources; what the runtime has of them.
        machine: the state of the workers; ``queries`` reads it.
        statuses: what is reported about the pods.
        sources: which sources have shown their pods.
        merge: joins the sources; ``unread`` are the pods that it could not read.
        components: of all these, for the agent.
    """

    def __init__(self, context: BuildContext) -> None:
        """Raises ValueError if two sources of pods have one name."""
        settings, outside = context.settings, context.outside
        metrics, node_name = outside.metrics, context.node_name
        self._clock = outside.clock
        self.pods, self.cache, self.reasons = PodManager(), PodStatusCache(), ReasonCache()
        requeue = RequeueSettings(settings.sync_frequency, tick=tick_of(node_name))
        self.machine = WorkerMachine(requeue, log_impossible)
        self.queries = WorkerQueries(self.machine)
        self.history = DecisionHistory()
        self.flight = build_flight_recorder(
            context.flags, self._clock, self.machine, context.root, node_name
        )
        self.traces = Traces(outside.tracer, span_log=self.flight.span)
        self.starts = starts = StartLatency(metrics.workers, self._clock)
        self.statuses = ApiStatusManager(
            context.kube_api,
            self._clock,
            mirror_of=self.pods.mirror_of,
            on_termination=metrics.starts.container_terminated,
            on_written=metrics.workers.pod_status_sync_duration.observe,
            on_refused=lambda pod, why: context.recorder.event(
                pod_reference(pod),
                WARNING,
                Reason.FAILED_STATUS_UPDATE,
                f"The API does not accept the pod's status: {why}",
            ),
            on_change=context.signals.status_changed,
            traces=self.traces,
            backlog=context.backlog,
            rng=outside.rng,
        )
        self.sources = expected_sources(settings, context.kube_api, outside.pod_sources)
        self.merge = Merge(claims_count=context.gates.enabled(CLAIMS_COUNT))
        self.unread = UnreadPods(self.merge, self.pods, self.cache, self.queries.record)
        self.active = ActivePods(self.pods, self.queries, self.statuses)
        self.remains = Remains(self.pods, self.queries, self.unread, self.statuses.is_reported)
        self.components = [
            *self.flight.components,
            Component(self.pods),
            Component(self.queries),
            Component(self.cache),
            Component(self.reasons),
            Component(starts, keep=lambda found: starts.forget_except(found.desired)),
            Component(self.statuses, close=self.statuses.close),
        ]

    def decided(self, uid: str, decisions: Sequence[Decision]) -> None:
        """Record decisions about a pod."""
        self.history.add(uid, decisions, self._clock.now())

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
