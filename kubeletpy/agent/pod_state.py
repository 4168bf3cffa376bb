"""Builds the parts about pods that all components share: sources, caches, status and events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from kubeletpy.agent.context import BuildContext, Component, Outside, Task
from kubeletpy.agent.flight_recorder import build_flight_recorder
from kubeletpy.base import structs
from kubeletpy.base.tasks import Backlog
from kubeletpy.config import KubeletSettings
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import (
    NORMAL,
    WARNING,
    EventRecorder,
    NodeUidRecorder,
    node_reference,
    pod_reference,
)
from kubeletpy.kubeapi.events.writer import EventWriter, KeptEvents, LogRecorder
from kubeletpy.kubeapi.protocol import PODS, KubeApi
from kubeletpy.kubeapi.reflector import Reflector
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.node.own_node import OwnNode
from kubeletpy.pods.pod import SOURCE_API, SOURCE_FILE, SOURCE_HTTP
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.resources import NODE_ALLOCATABLE_GATE as CLAIMS_COUNT
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.podworkers.history import DecisionHistory, ReasonCache
from kubeletpy.podworkers.start_latency import StartLatency
from kubeletpy.podworkers.state_machine import (
    RequeueSettings,
    WorkerMachine,
    WorkerQueries,
    tick_of,
)
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.workers import PodWorkers, log_impossible
from kubeletpy.status.status_manager import ApiStatusManager
from kubeletpy.syncloop.housekeeping import Housekeeping, Remains, UnreadPods
from kubeletpy.syncloop.lifecycle import ActivePods
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.syncloop.merge import NAMELESS, Merge
from kubeletpy.syncloop.mirror import ApiMirrorKeeper
from kubeletpy.syncloop.sources.file import FileSource
from kubeletpy.syncloop.sources.manifest import ReadySources

if TYPE_CHECKING:
    from kubeletpy.base.api import types as api
    from kubeletpy.base.api.types import JSON
    from kubeletpy.syncloop.sources.file import PodSource
    from kubeletpy.syncloop.sources.static_uids import Decided, StaticUids


# Sources of pods.

NODE_KNOWN_S = 10.0
"""How long pods from the API wait for the node's own object at startup."""


def expected_sources(
    settings: KubeletSettings, kube_api: KubeApi | None, supplied: Sequence[PodSource]
) -> ReadySources:
    """The sources that must have shown their pods before anything is cleaned up.

    Raises ValueError if two of the given ones have one name: each would take the other's pods away.
    """
    if len({source.name for source in supplied}) < len(supplied):
        raise ValueError("each source of pods needs a name of its own")
    return ReadySources(
        [SOURCE_API] * (kube_api is not None)
        + [SOURCE_FILE] * bool(settings.static_pod_path)
        + [SOURCE_HTTP] * bool(settings.static_pod_url)
        + [source.name for source in supplied]
    )


class PodSources(NamedTuple):
    """The sources of pods for the rest of the composition root.

    Attributes:
        tasks: one for each source.
        problems: which manifests of static pods can't be used.
        api_back: called when the API answers again.
    """

    tasks: list[Task]
    problems: list[Callable[[], str]]
    api_back: list[Callable[[], None]]


def build_sources(
    context: BuildContext,
    loop: SyncLoop,
    own_node: OwnNode,
    decided: Decided,
    *,
    from_record: Callable[[], bool],
) -> PodSources:
    """``decided`` records a decision about a pod (uid). ``from_record`` is called before each full
    set of the API is delivered, and returns whether it is from a record of the API."""
    settings, kube_api, name = context.settings, context.kube_api, own_node.name
    tasks, problems, api_back = sources = PodSources([], [], [])
    if kube_api is not None:
        # the pods that the cluster has bound to this node, and the mirrors; not those of other
        # nodes: the Node authorizer would refuse
        def deliver_all(pods: list[JSON]) -> None:
            # a record lacks the last seconds: what it does not have is left as it is
            missing = [NAMELESS] if from_record() else []
            loop.deliver(SOURCE_API, [*cast("list[api.Pod]", pods), *missing])

        reflector = Reflector(
            kube_api,
            PODS,
            on_replace=deliver_all,
            on_event=lambda event: loop.deliver_event(
                SOURCE_API, event.type, cast("api.Pod", event.object)
            ),
            field_selector=f"spec.nodeName={name}",
            rng=context.outside.rng,
        )
        api_back.append(reflector.hurry)

        async def follow() -> None:
            # running pods are admitted again: not before the node's labels and taints are known
            await own_node.wait_synced(within=NODE_KNOWN_S)
            await reflector.run()

        tasks.append(Task(f"source-{SOURCE_API}", follow))
    uids: StaticUids | None = None
    if settings.static_pod_path or settings.static_pod_url:
        from kubeletpy.syncloop.sources import static_uids  # few nodes have static pods

        record = context.root / static_uids.RECORD
        uids = static_uids.StaticUids(context.outside.runtime, kube_api, record, decided)
    if settings.static_pod_path:
        files = FileSource(
            Path(settings.static_pod_path),
            name,
            loop.deliver,
            loop.unreadable,
            check_frequency=settings.file_check_frequency,
            uids=uids,
        )
        problems.append(files.problem)
        tasks.append(Task(f"source-{SOURCE_FILE}", files.run))
    if settings.static_pod_url:
        from kubeletpy.syncloop.sources.http import HttpSource  # brings aiohttp; few nodes have one

        url = HttpSource(
            settings.static_pod_url,
            name,
            loop.deliver,
            headers=dict(settings.static_pod_url_header),
            check_frequency=settings.http_check_frequency,
            uids=uids,
        )
        tasks.append(Task(f"source-{SOURCE_HTTP}", url.run))
    for source in context.outside.pod_sources:
        from kubeletpy.syncloop.sources.file import SuppliedSource  # few programs bring one

        tasks.append(Task(f"source-{source.name}", SuppliedSource(source, name, loop.deliver).run))
    return sources


class PodState(structs.Component):
    """The state of all pods, for the rest of the composition root.

    Attributes:
        pods, cache: the pods of the sources; what the runtime has of them.
        machine: the state of the workers; ``queries`` reads it.
        statuses: what is reported about the pods.
        sources: which sources have shown their pods.
        merge: joins the sources; ``unread`` are the pods that it could not read.
        components: of all these, for the agent.
    """

    context: BuildContext

    def __post_init__(self) -> None:
        context = self.context
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
            newest=lambda pod: self.pods.get(pod.uid),
            on_change=context.signals.status_changed,
            traces=self.traces,
            backlog=context.backlog,
            rng=outside.rng,
        )
        self.sources = expected_sources(settings, context.kube_api, outside.pod_sources)
        claims_count = context.gates.enabled(CLAIMS_COUNT)
        rights = outside.machine.facts.rights
        self.merge = Merge(
            node_name=node_name,
            claims_count=claims_count,
            one_network=rights is not None and not rights.owns_network,
        )
        self.unread = UnreadPods(self.merge, self.pods, self.cache, self.queries.record)
        self.active = ActivePods(self.pods, self.queries, self.statuses.get_status)
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


# The recorder of events.


class Events(structs.Struct, frozen=True):
    """The recorder of all components."""

    recorder: KeptEvents
    components: list[Component]


def build_events(
    outside: Outside, node_name: str, backlog: Backlog, node_uid: Callable[[], str]
) -> Events:
    """Events are sent to the API, or logged without one.

    ``node_uid`` returns the uid of the Node object, for events about it.
    """
    to: EventRecorder = LogRecorder()
    components: list[Component] = []
    if outside.api is not None:
        to = writer = EventWriter(
            outside.api.events, outside.clock, node_name, backlog, rng=outside.rng
        )
        tasks = Task("events", writer.write_normal), Task("event-warnings", writer.write_warnings)
        components.append(Component(writer, tasks))
    recorder = KeptEvents(NodeUidRecorder(to, node_name, node_uid), outside.clock)

    async def announce() -> None:
        recorder.event(node_reference(node_name), NORMAL, Reason.STARTING, "Starting kubelet.")

    components.append(Component(recorder, start=announce))
    return Events(recorder, components)


def build_housekeeping(
    context: BuildContext, state: PodState, workers: PodWorkers, mirrors: ApiMirrorKeeper | None
) -> Housekeeping:
    """Build the cleanup after pods."""
    return Housekeeping(
        state.pods,
        workers,
        state.statuses.forget_except,
        state.cache,
        active=state.active,
        queries=state.queries,
        delete_mirror=mirrors.delete if mirrors is not None else lambda mirror: None,
        reconcile_mirror=mirrors.reconcile if mirrors is not None else lambda pod, mirror: None,
        found=context.signals.pods_counted,
        metrics=context.outside.metrics.pods,
    )
