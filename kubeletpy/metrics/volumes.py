"""Metrics of volumes: how many there are, and how long operations on them take. Numbers only."""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.metrics.families import Families

OPERATION_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
DESIRED, ACTUAL = "desired_state_of_world", "actual_state_of_world"
MOUNT, UNMOUNT, OWN = "volume_mount", "volume_unmount", "volume_apply_access_control"
MIGRATED = ("false", "true")
"""The label of volumes of an in-tree kind that a CSI driver serves."""


class VolumeMetrics:
    """Metrics of the volume manager."""

    def __init__(self, families: Families) -> None:
        self.total_volumes = families.gauge(
            "volume_manager_total_volumes",
            "Volumes of pods: those required, and those set up.",
            "plugin_name",
            "state",
        )
        self.operation_duration = families.histogram(
            "storage_operation_duration_seconds",
            "Time that one operation on a volume took.",
            "volume_plugin",
            "operation_name",
            "status",
            "migrated",
            buckets=OPERATION_SECONDS,
        )
        self.operation_total = families.histogram(
            "volume_operation_total_seconds",
            "Time from the first request for a volume until it was there.",
            "plugin_name",
            "operation_name",
            buckets=OPERATION_SECONDS,
        )
        self.reconstructed = families.counter(
            "reconstruct_volume_operations_total",
            "Volumes of an agent before this one that were taken over.",
        )
        self.reconstruct_errors = families.counter(
            "reconstruct_volume_operations_errors_total",
            "Volumes of an agent before this one that could not be taken over.",
        )
        self.force_cleaned = families.counter(
            "force_cleaned_failed_volume_operations_total",
            "Volumes of unknown pods that were to be taken down.",
        )
        self.force_clean_errors = families.counter(
            "force_cleaned_failed_volume_operation_errors_total",
            "Volumes of unknown pods that could not be taken down.",
        )

    def done(
        self,
        operation: str,
        plugin: str,
        seconds: float,
        *,
        ok: bool = True,
        migrated: bool = False,
    ) -> None:
        """An operation on a volume ended. ``migrated``: an in-tree kind served by a CSI driver."""
        status = "success" if ok else "fail-unknown"
        self.operation_duration.labels(plugin, operation, status, MIGRATED[migrated]).observe(
            seconds
        )

    def first_set_up(self, plugin: str, seconds: float) -> None:
        """A volume is available, ``seconds`` after it was first requested."""
        self.operation_total.labels(plugin, "overall_volume_mount").observe(seconds)

    def moved(self, state: str, by: Mapping[str, int]) -> None:
        """The number of volumes has changed, by plugin."""
        for plugin, number in by.items():
            self.total_volumes.labels(plugin, state).inc(number)
