"""``volumesInUse`` of this node: what was reported, what has to be, what that holds up. Pure.

A volume leaves the list only when nothing of it is left here: the controller detaches what is not
listed, whatever is mounted. Source: docs/reference/behaviour-storage.md, se2, sv.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kubeletpy.volumes.attach.attached import not_in_use_yet
from kubeletpy.volumes.claims.model import VolumeSpec, Waits
from kubeletpy.volumes.operations.model import Operation, PodDemand, Volume


class InUse:
    """The list."""

    def __init__(self) -> None:
        self._listed: list[str] | None = None
        self._reported: frozenset[str] | None = None
        """What of it was written, or is being written; None: nothing by this process."""

    def report(self) -> list[str] | None:
        """For the node's status, about to be written; None: not known yet, the API's list stays."""
        if self._listed is None:
            return None
        self._reported = frozenset(self._listed)
        return list(self._listed)

    def unreported(self, spec: VolumeSpec) -> Waits | None:
        """Why an attachable volume must not be used yet: the API may show it in use from before,
        while a status without it is on its way."""
        if not spec.attachable or self._reported is None or spec.unique_name in self._reported:
            return None
        return not_in_use_yet(f'volume "{spec.unique_name}"')

    def update(
        self,
        demands: Iterable[PodDemand],
        actual: Mapping[str, Volume],
        running: Iterable[Operation],
    ) -> bool:
        """Make the list anew; whether it has changed."""
        wanted = {spec.unique_name for each in demands for spec in each.specs if spec.attachable}
        there = {name for name, volume in actual.items() if volume.attachable}
        worked_on = {each.unique_name for each in running if each.spec and each.spec.attachable}
        listed = sorted(wanted | there | worked_on)
        changed = listed != self._listed
        self._listed = listed
        return changed


def attachable_as_shown(
    demands: Iterable[PodDemand], actual: Mapping[str, Volume], shown: frozenset[str]
) -> dict[str, Volume]:
    """Volumes found on disk that the API shows in use: they are attached. Those that change.

    Of those that a pod wants its object says what they are: a driver may need no attaching any
    more, and the controller detaches only what is not listed.
    """
    known = {spec.unique_name for each in demands for spec in each.specs}
    return {
        name: replace(actual[name], attachable=True)
        for name in (shown & actual.keys()) - known
        if not actual[name].attachable
    }
