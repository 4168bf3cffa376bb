"""The pods of a node: what housekeeping passes to the components that clean up after pods. Pure."""

from __future__ import annotations

from kubeletpy.base.structs import Struct


class NodePods(Struct, frozen=True):
    """Uids."""

    desired: frozenset[str]
    """Those in the configuration, even while their admission is undecided."""
    possibly_running: frozenset[str]
    """Those whose containers may run: not yet stopped by their worker, or in the runtime."""

    @property
    def existing(self) -> frozenset[str]:
        """All of them."""
        return self.desired | self.possibly_running
