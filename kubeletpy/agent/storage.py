"""Builds the parts about volumes: their contents, their plugins and their health."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
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


class Storage(Struct, frozen=True, dict=True, eq=False):
    """The storage objects, each made when it is first needed."""

    context: BuildContext
    pod: Callable[[str], Pod | None]
    """Finds a pod by uid."""
    other_plugins: Handlers
    """Handle plugin types other than CSI drivers."""

    @cached_property
    def slots(self) -> WatchSlots:
        """The watches of single objects."""
        return WatchSlots()

    @cached_property
    def objects(self) -> PodObjects:
        """The configMaps and secrets of pods; connect it (``on_change``)."""
        context, kube_api = self.context, self.context.kube_api
        strategy = context.settings.config_map_and_secret_change_detection_strategy
        if kube_api is None or strategy == "Watch":
            return WatchedObjects(kube_api, rng=context.outside.rng, slots=self.slots)
        from kubeletpy.kubeapi.objects_on_request import ObjectsOnRequest, object_ttl

        cached = strategy == "Cache"
        ttl = (lambda: object_ttl(context.newest_node())) if cached else None
        return ObjectsOnRequest(kube_api, ttl=ttl)

    @cached_property
    def tokens(self) -> PodTokens:
        """The tokens of pods' service accounts."""
        outside = self.context.outside
        tokens = PodTokens(self.context.kube_api, outside.clock, rng=outside.rng)
        tokens.on_due(self.context.signals.pod_changed)
        return tokens

    # -- volume kinds ---------------------------------------------------------------------------

    @cached_property
    def csi(self) -> Csi | None:
        """The plugin of CSI drivers; None: no plugins are registered."""
        context, outside = self.context, self.context.outside
        if outside.plugins is None:
            return None
        csi = Csi(
            context.root,
            context.node_name,
            context.kube_api,
            self.tokens,
            outside.metrics.csi,
            rng=outside.rng,
            calls=outside.driver_calls,
        )
        csi.writer.on_ready(context.signals.node_changed)
        return csi

    @cached_property
    def kinds(self) -> list[VolumePlugin]:
        """The plugins of volumes that claims are bound to."""
        root, kube_api = self.context.root, self.context.kube_api
        attaches = kube_api is not None and self.context.options.controller_attach_detach
        iscsi, fc = "kubernetes.io/iscsi", "kubernetes.io/fc"
        return [
            LatePlugin("kubernetes.io/local-volume", "local", root, lambda: _local(root)),
            HostPathPlugin(root),
            NfsPlugin(root),
            LatePlugin(iscsi, "iscsi", root, lambda: _iscsi(root, kube_api, attaches)),
            LatePlugin(fc, "fc", root, lambda: _fc(root, attaches)),
            *([self.csi.plugin] if self.csi is not None else []),
        ]

    # -- volumes of claims, volumes of pods -----------------------------------------------------

    @cached_property
    def reporter(self) -> Reporter:
        """Reports the operations on volumes of claims."""
        return Reporter(self.context.recorder, self.context.outside.metrics.volumes)

    @cached_property
    def claims(self) -> VolumeManager:
        """The volumes of claims."""
        context, outside, csi = self.context, self.context.outside, self.csi
        options, kube_api, rng = context.options, context.kube_api, outside.rng
        watched = WatchedObjects(
            kube_api, rng=rng, slots=self.slots, keep=kept, read_when_forbidden=True
        )
        label, gate = outside.machine.kernel.selinux_label, context.gates.enabled("SELinuxMount")
        objects = ClaimObjects(
            watched,
            self.kinds,
            options.name,
            context.newest_node,
            controller_attaches=options.controller_attach_detach,
            selinux=SELinux(label, gate),
        )
        expander = Expander(kube_api, context.recorder, outside.clock, options.name)
        return VolumeManager(
            self.kinds,
            objects,
            VolumeActs(expander, self.reporter),
            self.reporter,
            changed=context.signals.pod_changed,
            in_use_changed=context.signals.node_changed,
            full=csi.handler.full if csi is not None else lambda driver: False,
        )

    @cached_property
    def meter(self) -> VolumeMeter:
        """Measures how full volumes are."""
        context, outside = self.context, self.context.outside
        meter = VolumeMeter(
            self.claims.mounted,
            self.claims.measure,
            UsageReporter(context.recorder, outside.metrics.volume_stats, self.pod),
            outside.clock,
            period=context.settings.volume_stats_agg_period,
            health=context.gates.enabled("CSIVolumeHealth"),
            rng=outside.rng,
        )
        self.reporter.on_change(meter.poke)
        return meter

    @cached_property
    def bundles(self) -> TrustBundles | None:
        """The trust bundles of projected volumes; None: there is no API, or the gate is off."""
        context, kube_api = self.context, self.context.kube_api
        if kube_api is None or not context.gates.enabled("ClusterTrustBundleProjection"):
            return None
        from kubeletpy.volumes.projected.trust_bundles import TrustBundles

        bundles = TrustBundles(kube_api, rng=context.outside.rng)
        bundles.on_change(context.signals.pod_changed)
        return bundles

    @cached_property
    def certificates(self) -> PodCertificates | None:
        """The certificates of projected volumes; None: there is no API, or the gate is off."""
        context, outside, kube_api = self.context, self.context.outside, self.context.kube_api
        if kube_api is None or not context.gates.enabled("PodCertificateRequest"):
            return None
        from kubeletpy.volumes.projected.pod_certificates.certificates import PodCertificates

        certificates = PodCertificates(
            kube_api,
            context.node_name,
            context.node_uid,
            context.recorder,
            outside.clock,
            metrics=outside.metrics.pod_certificates,
            rng=outside.rng,
        )
        certificates.on_change(context.signals.pod_changed)
        return certificates

    @cached_property
    def rights(self) -> MountRights:
        """Mounts that the machine and the embedding program allow."""
        return self.context.outside.mounts

    @cached_property
    def allocatable(self) -> Mapping[str, str]:
        """Resources of the node that pods may request."""
        options = self.context.options
        return allocatable(capacity(self.context.outside.machine.facts, options), options)

    @cached_property
    def volumes(self) -> NodeVolumes:
        """All volumes of pods."""
        context, gates = self.context, self.context.gates
        return NodeVolumes(
            context.pods_dir,
            self.objects,
            self.tokens,
            context.recorder,
            context.outside.clock,
            allocatable=self.allocatable,
            metrics=context.outside.metrics.volumes,
            claims=self.claims,
            bundles=self.bundles,
            certificates=self.certificates,
            features=VolumeFeatures(
                empty_dir_mode=gates.enabled(MODE_GATE), file_owners=gates.enabled(OWNERS_GATE)
            ),
            rights=self.rights,
        )

    # -- what container environments take from the API ------------------------------------------

    @cached_property
    def services(self) -> ServiceList | None:
        """The services of the cluster; None: there is no API."""
        kube_api = self.context.kube_api
        return None if kube_api is None else ServiceList(kube_api, rng=self.context.outside.rng)

    @cached_property
    def environment(self) -> ContainerEnvironment:
        """The variables of containers that start."""
        services = self.services
        return ContainerEnvironment(
            self.context.pods_dir,
            self.objects,
            # static pods start without an API, and thus without services
            services=None
            if services is None
            else lambda pod: services.of_namespace(pod.namespace, wait=not pod.is_static),
            host_ips=self.context.host_ips,
            allocatable=self.allocatable,
        )

    def failing_watches(self, uid: str) -> Sequence[FailingWatch]:
        """The watches that keep failing: of services, and of objects that a pod uses and that were
        never read."""
        kube_api = self.context.kube_api
        if kube_api is None:
            return ()
        unread = self.objects.unread(uid)
        keys = {(key.resource.plural, key.namespace, key.name) for key in unread}
        return kube_api.failing_watches.of_objects({(SERVICES.plural, "", ""), *keys})

    # -- health, with gate CSIVolumeHealth ------------------------------------------------------

    @cached_property
    def health(self) -> VolumeHealthMonitor | None:
        """The health of volumes, each queried every volumeStatsAggPeriod."""
        context, csi, gates = self.context, self.csi, self.context.gates
        reported = version_facts(gates.version).reports_volume_health
        if csi is None or not gates.enabled("CSIVolumeHealth") or not reported:
            return None
        return VolumeHealthMonitor(
            lambda: [each for each in self.claims.mounted() if each.left.plugin == csi.plugin.name],
            csi.plugin.health,
            context.signals.pod_changed,
            context.outside.clock,
            period=context.settings.volume_stats_agg_period,
        )

    def volume_health(self, uid: str) -> Sequence[api.PodVolumeHealth]:
        """The health of a pod's volumes."""
        return self.health.of_pod(uid) if self.health is not None else ()

    @cached_property
    def components(self) -> list[Component]:
        """The components, in the order in which they start."""
        claims, services = self.claims, self.services
        closed = (each for each in (self.bundles, self.certificates) if each is not None)
        return [
            Component(self.objects, close=self.objects.close),
            Component(
                claims,
                (Task("volumes", claims.run),),
                keep=lambda found: claims.pods_known(),
                close=claims.close,
            ),
            Component(self.meter, (Task("volume-usage", self.meter.run),)),
            Component(self.tokens, close=self.tokens.close),
            *(Component(each, close=each.close) for each in closed),
            *([Component(services, (Task("services", services.run),))] if services else []),
            *self._plugin_components(),
        ]

    def _plugin_components(self) -> list[Component]:
        context, outside, csi = self.context, self.context.outside, self.csi
        if csi is None or outside.plugins is None:
            return []
        handlers = {CSI: csi.handler, **self.other_plugins}
        registry, metrics = context.root / "plugins_registry", outside.metrics.plugins
        manager = PluginManager(registry, handlers, outside.plugins, metrics)
        tasks = Task("csi-drivers", csi.objects.run), Task("csi-node", csi.writer.run)
        components = [
            Component(csi, tasks, close=csi.close),
            Component(manager, (Task("plugins", manager.run),)),
        ]
        if (health := self.health) is not None:
            storage = StorageHealthMonitor(
                context.node_name,
                context.node_uid,
                csi.drivers,
                context.kube_api,
                outside.metrics.csi,
                clock=outside.clock,
                period=context.settings.volume_stats_agg_period,
            )
            components += [
                Component(health, (Task("volume-health", health.run),)),
                Component(storage, (Task("storage-health", storage.run),)),
            ]
        return components


def _local(root: Path) -> VolumePlugin:
    from kubeletpy.volumes.intree.local import LocalPlugin

    return LocalPlugin(root)


def _iscsi(root: Path, kube_api: KubeApi | None, controller: bool) -> VolumePlugin:
    from kubeletpy.volumes.intree.iscsi.plugin import IscsiPlugin

    return IscsiPlugin(root, kube_api, controller=controller)


def _fc(root: Path, controller: bool) -> VolumePlugin:
    from kubeletpy.volumes.intree.fc.plugin import FcPlugin

    return FcPlugin(root, controller=controller)
