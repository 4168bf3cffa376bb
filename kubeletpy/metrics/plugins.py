"""Metrics of plugin sockets. Source: docs/reference/metrics.csv."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.volumes import ACTUAL, DESIRED


class PluginMetrics:
    """Which sockets exist; the code that discovers them bounds their number."""

    def __init__(self, families: Families) -> None:
        self.total_plugins = families.gauge(
            "plugin_manager_total_plugins",
            "Sockets of plugins: those found, and those registered.",
            "socket_path",
            "state",
        )

    def show(self, wanted: Sequence[str], registered: Sequence[str]) -> None:
        """Set which sockets exist, and which are registered."""
        self.total_plugins.clear()
        for state, paths in ((DESIRED, wanted), (ACTUAL, registered)):
            for path in paths:
                self.total_plugins.labels(path, state).set(1)
