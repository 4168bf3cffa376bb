"""How long the steps of a node's start took, reported once each.

For a node that the API already had there is nothing to report: it was started before. Times are
passed in. Source: the kubelet's node startup latency tracker.
"""

from __future__ import annotations

from typing import Protocol

from kubeletpy.base.clock import Clock


class StartupMetrics(Protocol):
    """Where the steps are reported, in seconds; None: the machine's boot time is unknown."""

    def registered(
        self, pre_kubelet: float | None, pre_registration: float, registration: float
    ) -> None:
        """kubelet_node_startup_{pre_kubelet,pre_registration,registration}_duration_seconds."""
        ...

    def ready(self, post_registration: float, whole: float | None) -> None:
        """kubelet_node_startup_post_registration_duration_seconds, ..._duration_seconds."""
        ...


class NodeStartup:
    """From the machine's boot to the node's first Ready."""

    def __init__(
        self,
        metrics: StartupMetrics,
        clock: Clock,
        *,
        booted_at: float | None,
        started_at: float,
    ) -> None:
        """``booted_at`` and ``started_at`` (of this process) in Unix seconds."""
        self._metrics = metrics
        self._clock = clock
        self._booted_at = booted_at
        self._started_at = started_at
        self._first_try: float | None = None
        self._registered: float | None = None
        self._ready = False

    def registering(self) -> None:
        """The node is about to be registered."""
        if self._first_try is None:
            self._first_try = self._clock.now()

    def registered(self) -> None:
        """The API has created the node."""
        if self._first_try is None or self._registered is not None:
            return
        self._registered = now = self._clock.now()
        booted = self._booted_at
        self._metrics.registered(
            None if booted is None else self._started_at - booted,
            self._first_try - self._started_at,
            now - self._first_try,
        )

    def ready(self) -> None:
        """The API shows the node as Ready."""
        if self._registered is None or self._ready:
            return
        self._ready = True
        now, booted = self._clock.now(), self._booted_at
        self._metrics.ready(now - self._registered, None if booted is None else now - booted)
