"""``volumesInUse`` of this node: what was reported, what must be, what that delays. Pure.

A volume leaves the list only when nothing of it is left here: the controller detaches unlisted
volumes even if they are mounted. Source: docs/reference/behaviour-storage.md, se2, sv.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims.attached import not_in_use_yet, volumes_in_use
from kubeletpy.volumes.claims.model import VolumeSpec, Waits
from kubeletpy.volumes.operations.model import Operation, PodDemand, Volume


class InUse:
    """The list."""

    def __init__(self) -> None:
        self._listed: list[str] | None = None
        self._sent: frozenset[str] = frozenset()
        """The list of the newest write, whatever became of it."""
        self._surely: frozenset[str] | None = None
        """The volumes in every list that the API may have by now; None: nothing was written yet."""

    def report(self) -> list[str] | None:
        """For the next status update of the node; None: not known yet, the API's list stays."""
        if self._listed is None:
            return None
        self._sent = frozenset(self._listed)
        self._surely = self._sent if self._surely is None else self._surely & self._sent
        return list(self._listed)

    def written(self) -> bool:
        """The API has the list that was reported last; returns whether that makes volumes usable.

        A write that failed may have been done: until the next one has succeeded, the API may have
        either list.
        """
        more = self._surely is not None and self._surely != self._sent
        self._surely = self._sent
        return more

    def unreported(self, spec: VolumeSpec) -> Waits | None:
        """Why an attachable volume must not be used yet; None: it may be used.

        The API may still show it as in use while a status without it is on its way, or has arrived
        unseen.
        """
        if not spec.attachable or self._surely is None or spec.unique_name in self._surely:
            return None
        return not_in_use_yet(f'volume "{spec.unique_name}"')

    def update(
        self,
        demands: Iterable[PodDemand],
        actual: Mapping[str, Volume],
        running: Iterable[Operation],
    ) -> bool:
        """Compute the list again; whether it has changed."""
        wanted = (spec for each in demands for spec in each.specs)
        there = {name for name, volume in actual.items() if volume.attachable}
        worked_on = {each.unique_name for each in running if each.spec and each.spec.attachable}
        listed = volumes_in_use(wanted, there | worked_on)
        changed = listed != self._listed
        self._listed = listed
        return changed


def attachable_as_shown(
    demands: Iterable[PodDemand], actual: Mapping[str, Volume], shown: frozenset[str]
) -> dict[str, Volume]:
    """Volumes found on disk that the API shows in use are attached; returns those that change.

    For volumes that a pod needs, the API object decides: a driver may no longer need attaching, and
    the controller detaches only unlisted volumes.
    """
    known = {spec.unique_name for each in demands for spec in each.specs}
    return {
        name: replace(actual[name], attachable=True)
        for name in (shown & actual.keys()) - known
        if not actual[name].attachable
    }
