"""What a scrape shows: the registry, plus what is counted only on request."""

from __future__ import annotations

from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.status_cache import PodStatusCache


class Scrape:
    """Renders the agent's metrics."""

    def __init__(self, metrics: Metrics, pods: PodManager, cache: PodStatusCache) -> None:
        self._metrics = metrics
        self._pods = pods
        self._cache = cache

    def render(self) -> bytes:
        """One scrape; first counts what is in the specs and in the runtime."""
        known = (*self._pods.pods(), *self._pods.mirrors())
        containers = sum(len(pod.ephemeral_containers) for pod in known)
        self._metrics.pods.ephemeral_containers(containers)
        self._metrics.pods.in_runtime(*self._cache.counts())
        return self._metrics.render()
