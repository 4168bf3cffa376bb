"""Volumes, and what else containers find in them: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kubeletpy.agent.outside import Outside
from kubeletpy.agent.room import Room, Task
from kubeletpy.agent.signals import Signals
from kubeletpy.config import KubeletSettings
from kubeletpy.events.recorder import EventRecorder
from kubeletpy.kubeapi.objects import WatchedObjects
from kubeletpy.kubeapi.services import ServiceList
from kubeletpy.node.options import NodeOptions
from kubeletpy.node.resources import allocatable, capacity
from kubeletpy.plugins.manager import PluginManager
from kubeletpy.plugins.model import CSI
from kubeletpy.plugins.protocol import Handlers
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.volumes import ClaimVolumes, kept
from kubeletpy.volumes.csi.build import Csi
from kubeletpy.volumes.environment import ContainerEnvironment
from kubeletpy.volumes.intree.host_path import HostPathPlugin
from kubeletpy.volumes.intree.local import LocalPlugin
from kubeletpy.volumes.intree.nfs import NfsPlugin
from kubeletpy.volumes.manager import NodeVolumes
from kubeletpy.volumes.plugin import VolumePlugin
from kubeletpy.volumes.selinux import SELinux
from kubeletpy.volumes.tokens import PodTokens
from kubeletpy.volumes.usage import VolumeMeter
from kubeletpy.volumes.usage_reporter import UsageReporter


@dataclass(frozen=True, slots=True)
class Storage:
    """What the root goes on with. ``csi`` None: no plugins are asked to register."""

    rooms: list[Room]
    volumes: NodeVolumes
    claims: ClaimVolumes
    meter: VolumeMeter
    environment: ContainerEnvironment
    tokens: PodTokens
    csi: Csi | None


def build_storage(
    outside: Outside,
    options: NodeOptions,
    recorder: EventRecorder,
    signals: Signals,
    *,
    root: Path,
    settings: KubeletSettings,
    pod: Callable[[str], Pod | None],
    plugins: Handlers,
) -> Storage:
    """``root`` is the kubelet's root directory; ``pod`` finds one by uid; ``plugins`` are the
    handlers of other types than CSI drivers."""
    machine, clock, rng, metrics = outside.machine, outside.clock, outside.rng, outside.metrics
    kube_api = outside.api.pods if outside.api is not None else None
    pods_dir, gates = root / "pods", settings.feature_gates
    node_allocatable = allocatable(capacity(machine.facts, options), options)
    objects, tokens = WatchedObjects(kube_api, rng=rng), PodTokens(kube_api, clock, rng=rng)
    objects.on_change(signals.pod_changed)
    tokens.on_due(signals.pod_changed)

    # -- kinds of volumes -----------------------------------------------------------------------
    kinds: list[VolumePlugin] = [LocalPlugin(root), HostPathPlugin(root), NfsPlugin(root)]
    plugin_rooms: list[Room] = []
    csi: Csi | None = None
    if outside.plugins is not None:
        csi = Csi(
            root,
            options.name,
            kube_api,
            tokens,
            metrics.csi,
            rng=rng,
            calls=outside.driver_calls,
        )
        csi.writer.on_ready(signals.node_changed)
        kinds.append(csi.plugin)
        manager = PluginManager(
            root / "plugins_registry",
            {CSI: csi.handler, **plugins},
            outside.plugins,
            metrics.plugins,
        )
        plugin_rooms = [
            Room(
                csi,
                (Task("csi-drivers", csi.objects.run), Task("csi-node", csi.writer.run)),
                close=csi.close,
            ),
            Room(manager, (Task("plugins", manager.run),)),
        ]

    # -- volumes of claims, volumes of pods -----------------------------------------------------
    claims = ClaimVolumes(
        kube_api,
        kinds,
        recorder,
        clock,
        node_name=options.name,
        node=lambda: signals.newest_node() or {},
        objects=WatchedObjects(kube_api, rng=rng, keep=kept, read_when_forbidden=True),
        metrics=metrics.volumes,
        selinux=SELinux(machine.kernel.selinux_label, gates.enabled("SELinuxMount")),
        changed=signals.pod_changed,
        in_use_changed=signals.node_changed,
    )
    meter = VolumeMeter(
        claims.mounted,
        claims.measure,
        UsageReporter(recorder, metrics.volume_stats, pod, health=gates.enabled("CSIVolumeHealth")),
        clock,
        period=settings.volume_stats_agg_period,
        rng=rng,
    )
    claims.on_counted(meter.poke)
    volumes = NodeVolumes(
        pods_dir,
        objects,
        tokens,
        recorder,
        clock,
        allocatable=node_allocatable,
        metrics=metrics.volumes,
        claims=claims,
    )

    # -- what containers read of the API in their environment ------------------------------------
    services = ServiceList(kube_api, rng=rng) if kube_api is not None else None
    environment = ContainerEnvironment(
        pods_dir,
        objects,
        # static pods start without an API, and so without services
        services=None
        if services is None
        else lambda pod: services.of_namespace(pod.namespace, wait=not pod.is_static),
        host_ips=machine.node_ips,
        allocatable=node_allocatable,
    )
    rooms = [
        Room(objects, close=objects.close),
        Room(
            claims,
            (Task("volumes", claims.run),),
            keep=lambda found: claims.pods_known(),
            close=claims.close,
        ),
        Room(meter, (Task("volume-usage", meter.run),)),
        Room(tokens, close=tokens.close),
        *([Room(services, (Task("services", services.run),))] if services is not None else []),
        *plugin_rooms,
    ]
    return Storage(rooms, volumes, claims, meter, environment, tokens, csi)
