"""Builds an agent: the core, the guards of the node, the observers, and the signals between them.

:mod:`.core` builds the parts that run pods; the observers are built from it. The few circular
connections are signals, all connected in :func:`_connect`. Components are started and their tasks
created in the order of ``components``, and closed in reverse order.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from kubeletpy.agent.agent import Agent
from kubeletpy.agent.context import Component, Outside, Task
from kubeletpy.agent.core import Core
from kubeletpy.agent.eviction import Eviction, Upkeep, build_eviction
from kubeletpy.agent.served import Endpoints, serving_certificate
from kubeletpy.base.structs import Struct, replace
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.config.flags import OfflineStart
from kubeletpy.node.build import RuntimeStart
from kubeletpy.node.facts import NodeAddresses, host_addresses, node_name
from kubeletpy.node.guards.oom_watch import SignalWatch
from kubeletpy.node.stats.collector import group_files, pod_paths
from kubeletpy.observe.explain.death_watch import CgroupCounters, DeathWatch
from kubeletpy.observe.explain.snapshot import RemovedPods, Snapshots
from kubeletpy.observe.explain.stuck import StuckPods
from kubeletpy.observe.foresee.model import NodeQueries
from kubeletpy.pods.resources import MEMORY_VOLUMES_GATE as MEMORY_VOLUMES
from kubeletpy.server.logs.rotate import LogRotator, RotationSettings
from kubeletpy.server.pod_resources.server import PodResourcesServer
from kubeletpy.server.tls import ServingCertificate

if TYPE_CHECKING:
    from kubeletpy.agent.offline import Offline
    from kubeletpy.base.api.types import JSON
    from kubeletpy.observe.foresee.model import Foreseen
    from kubeletpy.server.pod_resources.answers import NodeAllocations
    from kubeletpy.server.pods_api.server import PodsServer


# Builds the observers of the core: explain, plan and the servers.

_UNITS = {
    "/containerd.sock": "containerd.service",
    "/crio.sock": "crio.service",
    "/cri-dockerd.sock": "cri-docker.service",
}
"""Socket names of runtimes -> the units that their packages install."""


class Observers(Struct, frozen=True):
    """The observers of the core.

    Attributes:
        certificate: None: the server's is in files.
        pods_api: None: the pods API is not served.
    """

    components: list[Component]
    deaths: DeathWatch
    stuck: StuckPods
    removed: RemovedPods
    certificate: ServingCertificate | None
    pods_api: PodsServer | None


def build_observers(core: Core, eviction: Eviction) -> Observers:
    """Raises ServerError if the server can't work with these settings."""
    loop, devices, claims, pressure = core.loop, core.devices, core.claims, eviction.pressure
    deaths, death_components = build_death_watch(core)
    snapshots = Snapshots(
        core.state.pods,
        core.workers,
        core.state.queries,
        core.state.statuses,
        cache=core.state.cache,
        reasons=core.state.reasons,
        probes=core.probes,
        clock=core.outside.clock,
        runtime_error=core.health.runtime_error,
        network_error=core.monitor.network_error,
        awaits_admission=loop.awaits_admission,
        shutting_down=lambda: core.admission.shutdown.shutting_down,
        awaited_plugins=devices.awaited,
        offline=starts.verdict if (starts := core.offline_starts) is not None else None,
        volume_waits=core.storage.claims.reports,
        claim_waits=claims.manager.waits,
        failing_watches=core.storage.failing_watches,
        held=lambda pod: [
            *core.placement.cpus.held_by(pod),
            *core.placement.memory.held_by(pod),
            *devices.held_by(pod),
            *claims.manager.held_by(pod),
        ],
        missing_secrets=core.pull_secrets.missing,
        node=core.node.own.current,
        pulls=core.images.manager.pulls,
        runtime_good_at=lambda: core.monitor.good_at,
        runtime_start=runtime_start(
            core.settings.container_runtime_endpoint if core.outside.sockets else "",
            core.root,
            systemd=Path("/run/systemd/system").is_dir(),
        ),
        node_name=core.node_name,
        excluded=eviction.excluded,
        deaths=deaths.causes,
    )
    node = NodeQueries(
        core.node_name,
        core.state.pods,
        core.outside.images.image_status,
        judge=core.admission.gate.foresee,
        others=loop.admitted_pods,
        place=core.placement.preview,
        allocated=core.allocations.allocated,
        resized=core.allocations.resized,
        seen=core.state.cache.status,
        probes=core.probes.results,
        intends=core.runtime.executor.intends,
        traces=core.state.traces,
        levels=lambda: to_builtins(pressure.report())["levels"] if pressure is not None else (),
        evictions=eviction.order,
        settings=core.runtime.settings,
        memory_volumes=core.settings.feature_gates.enabled(MEMORY_VOLUMES),
    )

    async def foresee(requested: JSON) -> Foreseen:
        from kubeletpy.observe.foresee.foreseer import Foreseer  # loaded with the first request

        return await Foreseer(node).foresee(requested)

    removed = RemovedPods(snapshots.facts, deaths.causes)
    certificate, certificate_components = serving_certificate(core)
    resources_api = _pod_resources(core) if core.outside.sockets else None
    pods_api = _pods_api(core) if core.outside.sockets else None
    local_apis = [each for each in (resources_api, pods_api) if each is not None]
    endpoints = Endpoints(
        core,
        eviction,
        snapshots,
        foresee,
        removed,
        certificate,
        problems=[
            core.cgroups.problem,
            *core.node.problems(),
            *core.sources.problems,
            *(each.problem for each in local_apis),
        ],
    )
    return Observers(
        [
            *death_components,
            *certificate_components,
            *(Component(each, start=each.start, close=each.close) for each in local_apis),
            *endpoints.components,
        ],
        deaths,
        StuckPods(snapshots.ending, snapshots.facts, core.recorder),
        removed,
        certificate,
        pods_api,
    )


def build_death_watch(core: Core) -> tuple[DeathWatch, list[Component]]:
    """Build the watch that decides why containers end, and its components."""
    state, outside, log = core.state, core.outside, core.oom_watch
    clock, host = outside.clock, outside.machine.guarded
    groups = group_files(clock) if host is not None else None

    def read_reports() -> None:
        if log is not None:
            with suppress(OSError):  # the task that follows the log meets the error, too
                log.read_some()
        if signals is not None:
            signals.read_some()

    watch = DeathWatch(
        state.cache,
        state.pods,
        state.queries,
        state.statuses,
        CgroupCounters(groups, pod_paths(state.pods, core.cgroups.tree)),
        state.traces,
        core.recorder,
        clock,
        core.workers.decided,
        signals_since=lambda: signals.since if signals is not None else None,
        log_followed=lambda: log is not None and log.caught_up,
        read_reports=read_reports,
    )
    signals = SignalWatch(host.open_process_events, watch.signaled) if host is not None else None
    state.cache.subscribe(watch.changed)
    found = [Component(watch, (Task("deaths", watch.run),), close=watch.close)]
    if signals is not None:
        found.append(Component(signals, (Task("process-events", signals.run),)))
    return watch, found


def runtime_start(endpoint: str, root: Path, *, systemd: bool) -> RuntimeStart:
    """Find what starts the runtime of an endpoint ("": it has none) for an agent with that root.

    ./up.sh keeps its runtime in the directory ``containerd`` beside the agent's ``node/kubelet``.
    """
    socket = endpoint.removeprefix("unix://")
    units = (unit for name, unit in _UNITS.items() if socket.endswith(name))
    return RuntimeStart(
        endpoint,
        next(units, "") if systemd else "",
        by_up=socket == str(root.parent.parent / "containerd" / "containerd.sock"),
    )


def _pod_resources(core: Core) -> PodResourcesServer:
    """The pod resources API, for programs on this node."""

    def sources() -> NodeAllocations:
        from kubeletpy.server.pod_resources.answers import NodeAllocations

        cpus, memory = core.placement.cpus, core.placement.memory
        return NodeAllocations(
            devices=core.devices.by_container,
            healthy_devices=core.devices.healthy_devices,
            own_cpus=cpus.own_cpus,
            pool_cpus=cpus.pool_of,
            allocatable_cpus=cpus.allocatable,
            own_memory=memory.own_blocks,
            pool_memory=memory.pool_of,
            allocatable_memory=memory.allocatable,
            claims=core.claims.manager.container_claims,
        )

    return PodResourcesServer(
        core.root / "pod-resources",
        core.outside.metrics.pod_resources,
        sources,
        active=core.state.active,
        pods=core.state.pods.pods,
        release=core.placement.release,
    )


def _pods_api(core: Core) -> PodsServer | None:
    """The pods API, for programs on this node; None: its feature gate is off."""
    if not core.gates.enabled("PodsAPI"):
        return None
    from kubeletpy.server.pods_api.server import PodsServer  # gRPC is not needed without it

    return PodsServer(
        core.root / "pods-api",
        core.outside.metrics.pods_api,
        ready=core.state.sources.all,
        pods=core.state.pods.pods,
        pod=core.state.pods.get,
        status=core.state.statuses.get_status,
        known=core.state.statuses.uids,
        reported=core.state.statuses.reported,
    )


class _WholeCore(Core, frozen=True, dict=True, eq=False):
    """The core, with the garbage collection and the eviction that are built from it."""

    @cached_property
    def upkeep(self) -> Upkeep:
        return Upkeep(
            self.runtime.collector,
            self.images.gc,
            self.recorder,
            node_name=self.node_name,
            all_sources_ready=self.state.sources.all,
            removable=self.state.remains.removable,
            reported=self.state.statuses.is_reported,
            ended=self.state.queries.is_known_terminated,
            tracer=self.outside.tracer,
        )

    @cached_property
    def eviction(self) -> Eviction:
        return build_eviction(self, self.upkeep)

    def pressures(self) -> tuple[str, ...]:
        pressure = self.eviction.pressure
        return pressure.conditions if pressure is not None else ()


def _offline(flags: NodeFlags, outside: Outside) -> Offline | None:
    """Build the parts for starts without an API server; None, and no former record, if off."""
    if flags.offline_start == OfflineStart.NEVER:
        for left in Path(flags.root_dir).glob("offline_*"):  # it holds secrets
            with suppress(OSError):
                left.unlink()
        return None
    from kubeletpy.agent.offline import build_offline  # few nodes have it

    return build_offline(flags, outside, node_name(flags, outside.machine.facts.hostname))


def build(settings: KubeletSettings, flags: NodeFlags, outside: Outside) -> Agent:
    """Build one node agent without running it. Call it inside a running event loop.

    Raises:
        ConfigError: the credential providers that the flags name can't be used.
        ServerError: the server can't work with these settings.
    """
    offline = _offline(flags, outside)
    if offline is not None:
        outside = replace(outside, api=offline.clients)
    core = _WholeCore(settings, flags, outside, offline)
    outside.metrics.node.node_name.labels(core.node_name).set(1)
    rotator = LogRotator(
        outside.runtime,
        core.state.cache,
        settings.pod_logs_dir,
        RotationSettings.from_settings(settings),
        outside.clock,
    )
    observers = build_observers(core, core.eviction)
    node = core.node
    components = [
        *(offline.components() if offline is not None else ()),
        *node.components(core.loop.sync_static_pods),  # first: its requests wait for the API
        *core.components,
        core.upkeep.component(),
        *core.eviction.components,
        Component(rotator, (Task("log-rotation", rotator.run),)),
        Component(observers.stuck, (Task("stuck-pods", observers.stuck.run),)),
        *observers.components,
    ]
    _connect(core, core.upkeep, core.eviction, observers)
    core.signals.pods_counted.connect(
        *(component.keep for component in components if component.keep is not None)
    )
    return Agent(components, node.manager.ready if node.manager is not None else None)


def _connect(core: Core, upkeep: Upkeep, eviction: Eviction, observers: Observers) -> None:
    """Connect each signal to its listeners, in the order in which they are called."""
    signals, loop, monitor = core.signals, core.loop, core.monitor
    own_node, shutdown, storage = core.node.own, core.admission.shutdown, core.storage
    pressure, certificate = eviction.pressure, observers.certificate
    signals.pod_changed.connect(loop.sync_pod)
    storage.objects.on_change(loop.sync_pod)
    signals.pod_reported.connect(core.state.starts.reported, core.state.statuses.reconcile)
    pods_api = observers.pods_api
    known, get_status = core.offline, core.state.statuses.get_status
    signals.status_changed.connect(
        *([pods_api.changed] if pods_api is not None else ()),
        *([lambda uid: known.keep_status(uid, get_status(uid))] if known is not None else ()),
    )
    signals.probe_settled.connect(loop.probe_settled)
    signals.pod_finished.connect(
        lambda uid: upkeep.collect_soon(),
        # also for a pod that came and went between two passes: nothing else shows that it existed
        lambda uid: core.housekeeping.republish_pods(),
        loop.housekeeping_soon,
        lambda uid: shutdown.pod_finished(),
        *([eviction.keeper.pod_finished] if eviction.keeper is not None else ()),
        *([observers.removed.finished] if core.outside.sockets else ()),
    )
    signals.container_stopping.connect(observers.deaths.stopping)
    signals.process_killed.connect(observers.deaths.killed)
    signals.republish_pods.connect(core.housekeeping.republish_pods)
    if core.node.manager is not None:
        signals.node_changed.connect(core.node.manager.poke)
    manager, lease, slices = core.node.manager, core.node.lease, core.claims.slices
    csi_writer = storage.csi.writer if storage.csi is not None else None
    signals.node_replaced.connect(
        loop.node_replaced,
        *([lease.node_replaced] if lease is not None else []),
        *([csi_writer.node_replaced] if csi_writer is not None else []),
        *([lambda: slices.node_replaced(own_node.uid())] if slices is not None else []),
    )
    signals.runtime_health_changed.connect(loop.runtime_health_changed, signals.node_changed)
    signals.shutdown_changed.connect(
        lambda: core.runtime.stop_slots.hurry(shutdown.shutting_down),
        signals.node_changed,
        loop.show_readiness,
    )
    # by the watch or by a response, whichever comes first: before the first status is written
    last_left = [lambda: pressure.node_reported(own_node.current())] if pressure is not None else []
    cloud = [partial(_take_addresses, core, core.cloud_ips)] if core.cloud_ips is not None else []
    signals.node_reported.connect(
        *cloud,
        *last_left,
        storage.claims.replan_soon,
        lambda: core.runtime_upkeep.node_reported(own_node.current()),
        *(
            [lambda: csi_writer.node_reported(own_node.as_reported())]
            if csi_writer is not None
            else []
        ),
        *([manager.node_reported] if manager is not None else []),
    )
    signals.node_answered.connect(
        *cloud,
        *last_left,
        storage.claims.replan_soon,
        *([certificate.node_changed] if certificate is not None else []),
        *([csi_writer.node_answered] if csi_writer is not None else []),
    )
    signals.api_back.connect(*core.sources.api_back)
    if (on_connection := core.outside.on_connection) is not None:
        on_connection(monitor.connection_changed)
        on_connection(core.runtime_upkeep.connection_changed)
        on_connection(core.runtime.starter.connection_changed)
        if core.cgroups.driver_check is not None:
            on_connection(core.cgroups.driver_check.connection_changed)
    for take in cloud:  # until the API shows the node, those with which it will be registered
        take()


def _take_addresses(core: Core, cloud_ips: NodeAddresses) -> None:
    """Take the addresses of the Node object; pods show new ones at once, or can start by now."""
    status = core.node.own.current().get("status") or {}
    if cloud_ips.replace(host_addresses(status.get("addresses") or ())):
        for pod in core.state.active():
            core.signals.pod_changed(pod.uid)
