"""Metrics of access to images: pull records and credential provider plugins."""

from __future__ import annotations

from kubeletpy.metrics.families import SECONDS, Families


class PullRecordMetrics:
    """images.metrics.RecordMetrics on the registry."""

    def __init__(self, families: Families) -> None:
        self.checks = families.counter(
            "kubelet_imagemanager_image_mustpull_checks_total",
            "Checks whether a pod may use an image on the node without a pull, by result.",
            "result",
        )
        self.disk_intents = families.gauge(
            "kubelet_imagemanager_ondisk_pullintents", "ImagePullIntent files on disk."
        )
        self.disk_records = families.gauge(
            "kubelet_imagemanager_ondisk_pulledrecords", "ImagePulledRecord files on disk."
        )
        self.memory_intents = families.gauge(
            "kubelet_imagemanager_inmemory_pullintents_usage_percent",
            "How full the memory for ImagePullIntents is, in percent.",
        )
        self.memory_records = families.gauge(
            "kubelet_imagemanager_inmemory_pulledrecords_usage_percent",
            "How full the memory for ImagePulledRecords is, in percent.",
        )

    def access_checked(self, result: str) -> None:
        """A pod's access to an image on the node was checked."""
        self.checks.labels(result).inc()

    def records_on_disk(self, intents: int, records: int) -> None:
        """Set the number of files of each kind."""
        self.disk_intents.set(intents)
        self.disk_records.set(records)

    def records_in_memory(self, intents: int, records: int) -> None:
        """Set how full the memory for them is, in percent."""
        self.memory_intents.set(intents)
        self.memory_records.set(records)


class CredentialProviderMetrics:
    """images.metrics.ProviderMetrics on the registry."""

    def __init__(self, families: Families) -> None:
        self.errors = families.counter(
            "kubelet_credential_provider_plugin_errors_total",
            "Calls of credential provider plugins that failed.",
            "plugin_name",
        )
        self.duration = families.histogram(
            "kubelet_credential_provider_plugin_duration",
            "Seconds that calls of credential provider plugins took.",
            "plugin_name",
            buckets=SECONDS,
        )
        self.config_info = families.gauge(
            "kubelet_credential_provider_config_info",
            "1 for the hash of the credential provider configuration in use.",
            "hash",
        )

    def provider_called(self, name: str, seconds: float, *, failed: bool) -> None:
        """A plugin was run; ``name`` is from the configuration."""
        self.duration.labels(name).observe(seconds)
        if failed:
            self.errors.labels(name).inc()

    def configured(self, config_hash: str) -> None:
        """The configuration was read."""
        self.config_info.labels(config_hash).set(1)
