"""Which pods a node has: what housekeeping passes to the rooms that clean up after pods. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodePods:
    """Uids."""

    desired: frozenset[str]
    """In the configuration, also while nobody knows whether they may run here."""
    possibly_running: frozenset[str]
    """Pods whose containers may run: with a worker that has not stopped them, or in the runtime."""

    @property
    def known(self) -> frozenset[str]:
        """All of them."""
        return self.desired | self.possibly_running
