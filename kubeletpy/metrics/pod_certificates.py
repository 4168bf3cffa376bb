"""The states of podCertificate sources."""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.metrics.families import MAX_SERIES, Families


class PodCertificateMetrics:
    """``kubelet_podcertificate_states``."""

    def __init__(self, families: Families) -> None:
        self._states = families.gauge(
            "kubelet_podcertificate_states",
            "podCertificate sources of projected volumes, by signer and state.",
            "signer_name",
            "state",
        )

    def show(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Show how many sources of each signer are in each state; MAX_SERIES at most."""
        self._states.clear()
        for (signer, state), count in sorted(counts.items())[:MAX_SERIES]:
            self._states.labels(signer, state).set(count)
