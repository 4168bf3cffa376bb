"""Builds the parts about volumes: their contents, their plugins and their health."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.agent.context import BuildContext, Component, Task
from kubeletpy.base.api import types as api
from kubeletpy.base.kubernetes_version import version_facts
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.objects import WatchedObjects
from kubeletpy.kubeapi.protocol import SERVICES, KubeApi
from kubeletpy.kubeapi.reflector import ServiceList
from kubeletpy.kubeapi.watch_state import FailingWatch, WatchSlots
from kubeletpy.node.facts import allocatable, capacity
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.plugins.model import CSI, Handlers
from kubeletpy.resources.plugins.plugin_manager import PluginManager
from kubeletpy.volumes.claims.model import SELinux
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.containers.environment import ContainerEnvironment
from kubeletpy.volumes.csi.csi_plugin import Csi
from kubeletpy.volumes.csi.registration import StorageHealthMonitor
from kubeletpy.volumes.files.disk import MountRights
from kubeletpy.volumes.intree.base import HostPathPlugin, LatePlugin
from kubeletpy.volumes.intree.nfs import NfsPlugin
from kubeletpy.volumes.node.node_volumes import NodeVolumes
from kubeletpy.volumes.operations.acts import Expander, VolumeActs
from kubeletpy.volumes.operations.claim_objects import ClaimObjects, kept
from kubeletpy.volumes.operations.reporter import Reporter
from kubeletpy.volumes.pod_volumes.payload import OWNERS_GATE
from kubeletpy.volumes.pod_volumes.set_up import MODE_GATE, VolumeFeatures
from kubeletpy.volumes.projected.tokens import PodTokens
from kubeletpy.volumes.usage import UsageReporter, VolumeHealthMonitor, VolumeMeter
from kubeletpy.volumes.volume_manager import VolumeManager

if TYPE_CHECKING:
    from kubeletpy.kubeapi.tracked_object import PodObjects
    from kubeletpy.volumes.projected.pod_certificates.certificates import PodCertificates
    from kubeletpy.volumes.projected.trust_bundles import TrustBundles


class Storage(Struct, frozen=True):
    """The storage objects for the rest of the composition root.

    Attributes:
        objects: the configMaps and secrets of pods; connect it (``on_change``).
        csi: None: no plugins are registered.
        failing_watches: those that keep failing, of services and of objects that a pod (by uid)
            uses and that were never read.
        volume_health: of the volumes of a pod (by uid).
    """

    components: list[Component]
    objects: PodObjects
    volumes: NodeVolumes
    claims: VolumeManager
    meter: VolumeMeter
    environment: ContainerEnvironment
    tokens: PodTokens
    rights: MountRights
    csi: Csi | None
    failing_watches: Callable[[str], Sequence[FailingWatch]]
    volume_health: Callable[[str], Sequence[api.PodVolumeHealth]]


def build_storage(
    context: BuildContext, *, pod: Callable[[str], Pod | None], plugins: Handlers
) -> Storage:
    """``pod`` finds a pod by uid; ``plugins`` handle plugin types other than CSI drivers."""
    settings, outside, options = context.settings, context.outside, context.options
    recorder, signals, root = context.recorder, context.signals, context.root
    machine, clock, rng, metrics = outside.machine, outside.clock, outside.rng, outside.metrics
    kube_api, gates, pods_dir = context.kube_api, context.gates, root / "pods"
    node_allocatable = allocatable(capacity(machine.facts, options), options)
    slots = WatchSlots()
    objects: PodObjects = WatchedObjects(kube_api, rng=rng, slots=slots)
    strategy = settings.config_map_and_secret_change_detection_strategy
    if kube_api is not None and strategy != "Watch":
        from kubeletpy.kubeapi.objects_on_request import ObjectsOnRequest, object_ttl

        cached = strategy == "Cache"
        objects = ObjectsOnRequest(
            kube_api, ttl=(lambda: object_ttl(signals.newest_node() or {})) if cached else None
        )
    tokens = PodTokens(kube_api, clock, rng=rng)
    tokens.on_due(signals.pod_changed)

    # -- volume kinds ---------------------------------------------------------------------------
    attaches = kube_api is not None and options.controller_attach_detach
    kinds: list[VolumePlugin] = [
        LatePlugin("kubernetes.io/local-volume", "local", root, lambda: _local(root)),
        HostPathPlugin(root),
        NfsPlugin(root),
        LatePlugin("kubernetes.io/iscsi", "iscsi", root, lambda: _iscsi(root, kube_api, attaches)),
        LatePlugin("kubernetes.io/fc", "fc", root, lambda: _fc(root, attaches)),
    ]
    plugin_components: list[Component] = []
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
        plugin_components = [
            Component(
                csi,
                (Task("csi-drivers", csi.objects.run), Task("csi-node", csi.writer.run)),
                close=csi.close,
            ),
            Component(manager, (Task("plugins", manager.run),)),
        ]

    # -- volumes of claims, volumes of pods -----------------------------------------------------
    claims, reporter = _volume_manager(context, kinds, csi, slots)
    meter = VolumeMeter(
        claims.mounted,
        claims.measure,
        UsageReporter(recorder, metrics.volume_stats, pod),
        clock,
        period=settings.volume_stats_agg_period,
        health=gates.enabled("CSIVolumeHealth"),
        rng=rng,
    )
    reporter.on_change(meter.poke)
    bundles: TrustBundles | None = None
    if kube_api is not None and gates.enabled("ClusterTrustBundleProjection"):
        from kubeletpy.volumes.projected.trust_bundles import TrustBundles

        bundles = TrustBundles(kube_api, rng=rng)
        bundles.on_change(signals.pod_changed)
    certificates: PodCertificates | None = None
    if kube_api is not None and gates.enabled("PodCertificateRequest"):
        from kubeletpy.volumes.projected.pod_certificates.certificates import PodCertificates

        certificates = PodCertificates(
            kube_api,
            options.name,
            context.node_uid,
            recorder,
            clock,
            metrics=metrics.pod_certificates,
            rng=rng,
        )
        certificates.on_change(signals.pod_changed)
    rights = MountRights(required=outside.mounts)
    volumes = NodeVolumes(
        pods_dir,
        objects,
        tokens,
        recorder,
        clock,
        allocatable=node_allocatable,
        metrics=metrics.volumes,
        claims=claims,
        bundles=bundles,
        certificates=certificates,
        features=VolumeFeatures(
            empty_dir_mode=gates.enabled(MODE_GATE), file_owners=gates.enabled(OWNERS_GATE)
        ),
        rights=rights,
    )

    # -- what container environments take from the API --------------------------------------------
    services = ServiceList(kube_api, rng=rng) if kube_api is not None else None
    environment = ContainerEnvironment(
        pods_dir,
        objects,
        # static pods start without an API, and thus without services
        services=None
        if services is None
        else lambda pod: services.of_namespace(pod.namespace, wait=not pod.is_static),
        host_ips=context.host_ips,
        allocatable=node_allocatable,
    )
    components = [
        Component(objects, close=objects.close),
        Component(
            claims,
            (Task("volumes", claims.run),),
            keep=lambda found: claims.pods_known(),
            close=claims.close,
        ),
        Component(meter, (Task("volume-usage", meter.run),)),
        Component(tokens, close=tokens.close),
        *([Component(bundles, close=bundles.close)] if bundles is not None else []),
        *([Component(certificates, close=certificates.close)] if certificates is not None else []),
        *([Component(services, (Task("services", services.run),))] if services is not None else []),
        *plugin_components,
    ]

    def failing_watches(uid: str) -> Sequence[FailingWatch]:
        if kube_api is None:
            return ()
        unread = [(key.resource.plural, key.namespace, key.name) for key in objects.unread(uid)]
        return kube_api.failing_watches.of_objects({(SERVICES.plural, "", ""), *unread})

    health = _health(context, csi, claims)
    components += health.components if health is not None else ()

    def volume_health(uid: str) -> Sequence[api.PodVolumeHealth]:
        return health.of_pod(uid) if health is not None else ()

    return Storage(
        components,
        objects,
        volumes,
        claims,
        meter,
        environment,
        tokens,
        rights,
        csi,
        failing_watches,
        volume_health,
    )


def _volume_manager(
    context: BuildContext, kinds: Sequence[VolumePlugin], csi: Csi | None, slots: WatchSlots
) -> tuple[VolumeManager, Reporter]:
    """The manager of claim-backed volumes, and the reporter of its operations."""
    options, outside, signals = context.options, context.outside, context.signals
    kube_api, recorder = context.kube_api, context.recorder
    gate = context.gates.enabled("SELinuxMount")
    objects = ClaimObjects(
        WatchedObjects(kube_api, rng=outside.rng, slots=slots, keep=kept, read_when_forbidden=True),
        kinds,
        options.name,
        lambda: signals.newest_node() or {},
        controller_attaches=options.controller_attach_detach,
        selinux=SELinux(outside.machine.kernel.selinux_label, gate),
    )
    reporter = Reporter(recorder, outside.metrics.volumes)
    expander = Expander(kube_api, recorder, outside.clock, options.name)
    manager = VolumeManager(
        kinds,
        objects,
        VolumeActs(expander, reporter),
        reporter,
        changed=signals.pod_changed,
        in_use_changed=signals.node_changed,
        full=csi.handler.full if csi is not None else lambda driver: False,
    )
    return manager, reporter


def _health(context: BuildContext, csi: Csi | None, claims: VolumeManager) -> StorageHealth | None:
    gates = context.gates
    desired = (
        gates.enabled("CSIVolumeHealth") and version_facts(gates.version).reports_volume_health
    )
    if csi is None or not desired:
        return None

    return build_storage_health(context, csi, claims)


def _local(root: Path) -> VolumePlugin:
    from kubeletpy.volumes.intree.local import LocalPlugin

    return LocalPlugin(root)


def _iscsi(root: Path, kube_api: KubeApi | None, controller: bool) -> VolumePlugin:
    from kubeletpy.volumes.intree.iscsi.plugin import IscsiPlugin

    return IscsiPlugin(root, kube_api, controller=controller)


def _fc(root: Path, controller: bool) -> VolumePlugin:
    from kubeletpy.volumes.intree.fc.plugin import FcPlugin

    return FcPlugin(root, controller=controller)


# The health of volumes and of drivers' storage, loaded with gate CSIVolumeHealth.


class StorageHealth(Struct, frozen=True):
    """The health checks of storage; ``of_pod`` returns the health of a pod's volumes, by its
    uid."""

    components: list[Component]
    of_pod: Callable[[str], Sequence[api.PodVolumeHealth]]


def build_storage_health(context: BuildContext, csi: Csi, claims: VolumeManager) -> StorageHealth:
    """Each volume and driver is queried every volumeStatsAggPeriod."""
    outside, signals, plugin = context.outside, context.signals, csi.plugin
    period, clock = context.settings.volume_stats_agg_period, outside.clock

    volumes = VolumeHealthMonitor(
        lambda: [each for each in claims.mounted() if each.left.plugin == plugin.name],
        plugin.health,
        signals.pod_changed,
        clock,
        period=period,
    )
    storage = StorageHealthMonitor(
        context.node_name,
        context.node_uid,
        csi.drivers,
        context.kube_api,
        outside.metrics.csi,
        clock=clock,
        period=period,
    )
    components = [
        Component(volumes, (Task("volume-health", volumes.run),)),
        Component(storage, (Task("storage-health", storage.run),)),
    ]
    return StorageHealth(components, volumes.of_pod)
