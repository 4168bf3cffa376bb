"""All metrics of one agent, with the kubelet's names (docs/reference/metrics.csv).

Built once per agent and handed to its parts; nothing here is global.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion
from kubeletpy.base.structs import Component
from kubeletpy.metrics import node as metrics_node
from kubeletpy.metrics import pods, resources, volumes
from kubeletpy.metrics.families import Families, every_gate, render


class Metrics(Component):
    """The agent's metrics by subject, in a registry of their own (``registry``)."""

    version: KubernetesVersion = NEWEST
    enabled: Callable[[str], bool] = every_gate

    def __post_init__(self) -> None:
        families = Families(self.version, self.enabled)
        self.registry = families.registry
        self.runtime = metrics_node.RuntimeMetrics(families)
        self.workers = pods.PodWorkerMetrics(families)
        self.starts = pods.PodStartMetrics(families)
        self.pods = pods.PodCountMetrics(families)
        self.pleg = pods.PlegMetrics(families)
        self.volumes = volumes.VolumeMetrics(families)
        self.volume_stats = volumes.VolumeStatsMetrics(families)
        self.pod_certificates = volumes.PodCertificateMetrics(families)
        self.csi = volumes.CsiMetrics(families)
        self.dra = resources.DraMetrics(families)
        self.plugins = volumes.PluginMetrics(families)
        self.devices = resources.DeviceMetrics(families)
        self.pod_resources = resources.PodResourcesMetrics(families)
        self.pods_api = metrics_node.PodsApiMetrics(families)
        self.images = resources.ImageMetrics(families)
        self.pull_records = resources.PullRecordMetrics(families)
        self.credential_providers = resources.CredentialProviderMetrics(families)
        self.node = metrics_node.NodeMetrics(families)
        self.resizes = pods.ResizeMetrics(families)
        self.placement = resources.PlacementMetrics(families)
        self.rest_client = metrics_node.RestClientMetrics(families)
        self.http = metrics_node.HttpMetrics(families)
        self.process = metrics_node.ProcessMetrics(families)
        self.hooks = pods.HookMetrics(families)
        self.certificates = metrics_node.CertificateMetrics(families)
        apart = Families(self.version)
        self.probe_registry = apart.registry
        self.probes = pods.ProbeMetrics(apart)
        metrics_node.show_start(apart)
        checks = Families(self.version)
        self.sli_registry = checks.registry
        metrics_node.show_start(checks)
        self.health = metrics_node.HealthMetrics(checks)

    def render(self) -> bytes:
        """A scrape, in the text format of exposition.CONTENT_TYPE."""
        self.process.show_features()
        return render(self.registry)

    def render_probes(self) -> bytes:
        """A scrape of the probe metrics, which have an endpoint of their own."""
        return render(self.probe_registry)

    def render_slis(self) -> bytes:
        """A scrape of the health check metrics, which have an endpoint of their own."""
        self.health.run()
        return render(self.sli_registry)
