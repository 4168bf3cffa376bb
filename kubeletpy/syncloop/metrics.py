"""The sync loop's metrics. Must never import a metrics library: the registry is outside. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class PlegMetrics(Protocol):
    """kubelet_pleg_* and kubelet_evented_pleg_*; seconds unless stated otherwise."""

    def relist_done(self, seconds: float, interval: float | None, unix_time: float) -> None:
        """A full relist took ``seconds``, ``interval`` after the one before, ending now."""
        ...

    def pod_relist_done(self, seconds: float) -> None:
        """One pod was read again."""
        ...

    def stream_connected(self) -> None:
        """The runtime's event stream is connected."""
        ...

    def stream_failed(self) -> None:
        """The runtime's event stream could not be opened, or broke."""
        ...

    def event_received(self, latency: float) -> None:
        """An event came ``latency`` after the runtime made it."""
        ...


class NoPlegMetrics:
    """Counts nothing."""

    def relist_done(self, seconds: float, interval: float | None, unix_time: float) -> None:
        """Do nothing."""

    def pod_relist_done(self, seconds: float) -> None:
        """Do nothing."""

    def stream_connected(self) -> None:
        """Do nothing."""

    def stream_failed(self) -> None:
        """Do nothing."""

    def event_received(self, latency: float) -> None:
        """Do nothing."""


class LoopMetrics(Protocol):
    """The gauges and counters of housekeeping. Label ``static`` is "" or "true"."""

    def pods(self, desired: Mapping[str, int], active: Mapping[str, int], mirrors: int) -> None:
        """kubelet_desired_pods{static}, kubelet_active_pods{static}, kubelet_mirror_pods."""
        ...

    def working(self, counts: Mapping[tuple[str, str, str], int]) -> None:
        """kubelet_working_pods by (lifecycle, config, static)."""
        ...

    def restarted(self, static: str) -> None:
        """kubelet_restarted_pods_total{static}."""
        ...

    def orphan_found(self) -> None:
        """kubelet_orphaned_runtime_pods_total."""
        ...


class NoLoopMetrics:
    """Counts nothing."""

    def pods(self, desired: Mapping[str, int], active: Mapping[str, int], mirrors: int) -> None:
        """Do nothing."""

    def working(self, counts: Mapping[tuple[str, str, str], int]) -> None:
        """Do nothing."""

    def restarted(self, static: str) -> None:
        """Do nothing."""

    def orphan_found(self) -> None:
        """Do nothing."""
