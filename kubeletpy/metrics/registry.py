"""All metrics of one agent, with the kubelet's names (docs/reference/metrics.csv).

Built once per agent and handed to its parts; nothing here is global.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion
from kubeletpy.metrics import node as metrics_node
from kubeletpy.metrics.families import Families, every_gate, render
from kubeletpy.metrics.pods import (
    HookMetrics,
    PlegMetrics,
    PodCountMetrics,
    PodStartMetrics,
    PodWorkerMetrics,
    ProbeMetrics,
    ResizeMetrics,
)
from kubeletpy.metrics.resources import (
    CredentialProviderMetrics,
    DeviceMetrics,
    DraMetrics,
    ImageMetrics,
    PlacementMetrics,
    PodResourcesMetrics,
    PullRecordMetrics,
)
from kubeletpy.metrics.volumes import (
    CsiMetrics,
    PluginMetrics,
    PodCertificateMetrics,
    VolumeMetrics,
    VolumeStatsMetrics,
)


class Metrics:
    """The agent's metrics by subject, in a registry of their own (``registry``)."""

    def __init__(
        self, version: KubernetesVersion = NEWEST, enabled: Callable[[str], bool] = every_gate
    ) -> None:
        families = Families(version, enabled)
        self.registry = families.registry
        self.runtime = metrics_node.RuntimeMetrics(families)
        self.workers = PodWorkerMetrics(families)
        self.starts = PodStartMetrics(families)
        self.pods = PodCountMetrics(families)
        self.pleg = PlegMetrics(families)
        self.volumes = VolumeMetrics(families)
        self.volume_stats = VolumeStatsMetrics(families)
        self.pod_certificates = PodCertificateMetrics(families)
        self.csi = CsiMetrics(families)
        self.dra = DraMetrics(families)
        self.plugins = PluginMetrics(families)
        self.devices = DeviceMetrics(families)
        self.pod_resources = PodResourcesMetrics(families)
        self.pods_api = metrics_node.PodsApiMetrics(families)
        self.images = ImageMetrics(families)
        self.pull_records = PullRecordMetrics(families)
        self.credential_providers = CredentialProviderMetrics(families)
        self.node = metrics_node.NodeMetrics(families)
        self.resizes = ResizeMetrics(families)
        self.placement = PlacementMetrics(families)
        self.rest_client = metrics_node.RestClientMetrics(families)
        self.http = metrics_node.HttpMetrics(families)
        self.process = metrics_node.ProcessMetrics(families)
        self.hooks = HookMetrics(families)
        self.certificates = metrics_node.CertificateMetrics(families)
        apart = Families(version)
        self.probe_registry = apart.registry
        self.probes = ProbeMetrics(apart)
        metrics_node.show_start(apart)
        checks = Families(version)
        self.sli_registry = checks.registry
        metrics_node.show_start(checks)
        self.health = metrics_node.HealthMetrics(checks)

    def render(self) -> bytes:
        """A scrape, in the text format of exposition.CONTENT_TYPE."""
        return render(self.registry)

    def render_probes(self) -> bytes:
        """A scrape of the probe metrics, which have an endpoint of their own."""
        return render(self.probe_registry)

    def render_slis(self) -> bytes:
        """A scrape of the health check metrics, which have an endpoint of their own."""
        self.health.run()
        return render(self.sli_registry)
