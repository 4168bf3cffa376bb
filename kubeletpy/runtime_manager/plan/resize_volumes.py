"""Which of a pod's volumes in memory have another size than they should have.

Pure. A size is compared with the one that was last applied, not with what is mounted: a volume is
mounted no larger than the memory limit of its pod. Source: docs/reference/behaviour.md, c10;
KEP-6030.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.api.quantity import value
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import same_size, size_limits
from kubeletpy.pods.runtime_status import Decision


class VolumeUpdate(Struct, frozen=True):
    """A volume that is to be remounted with another size."""

    name: str
    size: str
    """The quantity as in the spec."""
    bytes: int
    before: str = ""
    """The size that was last applied; empty: it is not known."""
    shrinks: bool = False


class VolumeResizePlan(Struct, frozen=True):
    """The changes to the sizes of a pod's volumes."""

    updates: tuple[VolumeUpdate, ...] = ()
    adopted: tuple[tuple[str, str], ...] = ()
    """Names and sizes to be recorded: nothing is recorded for the pod, so it was just mounted."""

    @property
    def shrinking(self) -> tuple[VolumeUpdate, ...]:
        """The updates that must come before memory limits are changed."""
        return tuple(each for each in self.updates if each.shrinks)

    @property
    def growing(self) -> tuple[VolumeUpdate, ...]:
        """The updates that must come after them; among these the sizes that are not known."""
        return tuple(each for each in self.updates if not each.shrinks)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """For people: what is done, and why."""
        return tuple(
            Decision(
                f"resize volume {each.name}", f"sizeLimit {each.before or 'unknown'} -> {each.size}"
            )
            for each in self.updates
        )


NO_VOLUMES = VolumeResizePlan()


def plan_volume_resizes(pod: Pod, known: Mapping[str, str], *, recorded: bool) -> VolumeResizePlan:
    """Compare a pod's sizes as allocated with those last applied.

    ``recorded``: anything is recorded for the pod. If nothing is, its volumes have just been
    mounted with the sizes that it should have.
    """
    limits = size_limits(pod)
    if not recorded:
        return VolumeResizePlan(adopted=tuple(limits.items())) if limits else NO_VOLUMES
    updates = []
    for name, limit in limits.items():
        before = known.get(name, "")
        if same_size(before, limit):
            continue
        try:
            size = value(limit)
            shrinks = bool(before) and size < value(before)
        except ValueError:  # what is not a quantity was refused when it was to be mounted
            continue
        updates.append(VolumeUpdate(name, limit, size, before, shrinks))
    return VolumeResizePlan(tuple(updates))
