"""All metrics of one agent, with the kubelet's names (docs/reference/metrics.csv).

Built once per agent and handed to its parts; nothing here is global.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion
from kubeletpy.metrics.certificates import CertificateMetrics
from kubeletpy.metrics.csi import CsiMetrics
from kubeletpy.metrics.devices import DeviceMetrics, PodResourcesMetrics
from kubeletpy.metrics.dra import DraMetrics
from kubeletpy.metrics.exposition import render
from kubeletpy.metrics.families import Families, every_gate
from kubeletpy.metrics.http import HttpMetrics
from kubeletpy.metrics.image_credentials import CredentialProviderMetrics, PullRecordMetrics
from kubeletpy.metrics.images import ImageMetrics
from kubeletpy.metrics.node import NodeMetrics
from kubeletpy.metrics.placement import PlacementMetrics
from kubeletpy.metrics.pleg import PlegMetrics
from kubeletpy.metrics.plugins import PluginMetrics
from kubeletpy.metrics.pod_certificates import PodCertificateMetrics
from kubeletpy.metrics.pods import PodCountMetrics, PodStartMetrics, PodWorkerMetrics
from kubeletpy.metrics.pods_api import PodsApiMetrics
from kubeletpy.metrics.probes import HookMetrics, ProbeMetrics
from kubeletpy.metrics.process import ProcessMetrics, show_start
from kubeletpy.metrics.resizes import ResizeMetrics
from kubeletpy.metrics.rest_client import RestClientMetrics
from kubeletpy.metrics.runtime import RuntimeMetrics
from kubeletpy.metrics.slis import HealthMetrics
from kubeletpy.metrics.volume_stats import VolumeStatsMetrics
from kubeletpy.metrics.volumes import VolumeMetrics


class Metrics:
    """The agent's metrics by subject, in a registry of their own (``registry``)."""

    def __init__(
        self, version: KubernetesVersion = NEWEST, enabled: Callable[[str], bool] = every_gate
    ) -> None:
        families = Families(version, enabled)
        self.registry = families.registry
        self.runtime = RuntimeMetrics(families)
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
        self.pods_api = PodsApiMetrics(families)
        self.images = ImageMetrics(families)
        self.pull_records = PullRecordMetrics(families)
        self.credential_providers = CredentialProviderMetrics(families)
        self.node = NodeMetrics(families)
        self.resizes = ResizeMetrics(families)
        self.placement = PlacementMetrics(families)
        self.rest_client = RestClientMetrics(families)
        self.http = HttpMetrics(families)
        self.process = ProcessMetrics(families)
        self.hooks = HookMetrics(families)
        self.certificates = CertificateMetrics(families)
        apart = Families(version)
        self.probe_registry = apart.registry
        self.probes = ProbeMetrics(apart)
        show_start(apart)
        checks = Families(version)
        self.sli_registry = checks.registry
        show_start(checks)
        self.health = HealthMetrics(checks)

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
