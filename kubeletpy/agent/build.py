"""Builds an agent: the core, the guards of the node, the observers, and the signals between them.

:mod:`.core` builds the parts that run pods; :mod:`.observers` is built from it. The few circular
connections are signals, all connected in :func:`_connect`. Components are started and their tasks
created in the order of ``components``, and closed in reverse order.
"""

from __future__ import annotations

from functools import partial

from kubeletpy.agent.agent import Agent
from kubeletpy.agent.context import Component, Outside, Task
from kubeletpy.agent.core import Core, build_core
from kubeletpy.agent.eviction import Eviction, Upkeep, build_eviction
from kubeletpy.agent.observers import Observers, build_observers
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.node.facts import NodeAddresses, host_addresses
from kubeletpy.server.logs.rotate import LogRotator, RotationSettings


def build(settings: KubeletSettings, flags: NodeFlags, outside: Outside) -> Agent:
    """Build one node agent without running it. Call it inside a running event loop.

    Raises:
        ConfigError: the credential providers that the flags name can't be used.
        ServerError: the server can't work with these settings.
    """
    core = build_core(settings, flags, outside)
    upkeep = Upkeep(
        core.runtime,
        core.images.gc,
        core.recorder,
        node_name=core.node_name,
        all_sources_ready=core.state.sources.all,
        removable=core.state.remains.removable,
        reported=core.state.statuses.is_reported,
        ended=core.state.queries.is_known_terminated,
        tracer=outside.tracer,
    )
    eviction = build_eviction(core, upkeep)
    rotator = LogRotator(
        outside.runtime,
        core.state.cache,
        settings.pod_logs_dir,
        RotationSettings.from_settings(settings),
        outside.clock,
    )
    observers = build_observers(core, eviction)
    node = core.node
    components = [
        *node.components(core.loop.sync_static_pods),  # first: its requests wait for the API
        *core.components,
        upkeep.component(),
        *eviction.components,
        Component(rotator, (Task("log-rotation", rotator.run),)),
        Component(observers.stuck, (Task("stuck-pods", observers.stuck.run),)),
        *observers.components,
    ]
    _connect(core, upkeep, eviction, observers)
    core.signals.pods_counted.connect(
        *(component.keep for component in components if component.keep is not None)
    )
    return Agent(components, node.manager.ready if node.manager is not None else None)


def _connect(core: Core, upkeep: Upkeep, eviction: Eviction, observers: Observers) -> None:
    """Connect each signal to its listeners, in the order in which they are called."""
    signals, loop, gate, monitor = core.signals, core.loop, core.admission.gate, core.monitor
    own_node, shutdown, storage = core.node.own, core.admission.shutdown, core.storage
    pressure, certificate = eviction.pressure, observers.certificate
    signals.pod_changed.connect(loop.sync_pod)
    storage.objects.on_change(loop.sync_pod)
    signals.pod_reported.connect(core.state.starts.reported, core.state.statuses.reconcile)
    signals.runtime_changed.connect(loop.runtime_changed)
    pods_api = observers.pods_api
    signals.status_changed.connect(*([pods_api.changed] if pods_api is not None else ()))
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
    signals.pressures.connect(lambda: pressure.conditions if pressure is not None else ())
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
        lambda: core.runtime.hurry(shutdown.shutting_down), signals.node_changed
    )
    # by the watch or by a response, whichever comes first: before the first status is written
    last_left = [lambda: pressure.node_reported(own_node.current())] if pressure is not None else []
    cloud = [partial(_take_addresses, core, core.cloud_ips)] if core.cloud_ips is not None else []
    signals.node_reported.connect(
        *cloud,
        *last_left,
        storage.claims.node_changed,
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
        storage.claims.node_changed,
        *([certificate.node_changed] if certificate is not None else []),
        *([csi_writer.node_answered] if csi_writer is not None else []),
    )
    signals.api_back.connect(*core.api_back)
    signals.node_health.connect(core.health.node_health)
    signals.newest_node.connect(own_node.current)
    signals.fits.connect(lambda pod: gate.fits(pod, loop.admitted_pods(but=pod.uid)))
    core.state.cache.subscribe(core.early_polls.changed)
    if (on_connection := core.outside.on_connection) is not None:
        on_connection(monitor.connection_changed)
        on_connection(core.runtime_upkeep.connection_changed)
        on_connection(core.runtime.connection_changed)
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
