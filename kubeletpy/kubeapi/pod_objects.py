"""Access of volumes and environments to the configMaps and secrets of pods.

How changes are noticed is ``configMapAndSecretChangeDetectionStrategy``: objects are watched
(:mod:`kubeletpy.kubeapi.objects`), or read when they are requested
(:mod:`kubeletpy.kubeapi.objects_on_request`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.tracked_object import ObjectKey


class PodObjects(Protocol):
    """The objects that the pods of this node use, by name."""

    def on_change(self, wake: Callable[[str], None]) -> None:
        """Have ``wake(pod uid)`` called for each pod that uses an object that was seen to change,
        or that can be read only now."""
        ...

    def register(
        self, uid: str, live: Collection[ObjectKey], on_demand: Collection[ObjectKey] = ()
    ) -> None:
        """Set which objects a pod uses; those it no longer uses are dropped.

        Args:
            uid: of the pod.
            live: objects whose changes the pod must see.
            on_demand: objects that are read now and then.
        """
        ...

    def unread(self, uid: str) -> Collection[ObjectKey]:
        """The objects that a pod uses and that no watch has shown yet."""
        ...

    def release(self, uid: str) -> None:
        """A pod has ended."""
        ...

    async def get(self, key: ObjectKey) -> JSON | None:
        """An object that a pod is registered for; None when it does not exist. Never change it.

        Raises:
            ApiError: it cannot be read (NoAnswerYet: so far); pods that use it are woken once it
                can.
        """
        ...

    async def close(self) -> None:
        """Stop all requests."""
        ...
