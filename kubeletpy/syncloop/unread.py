"""Pods for which a source has something that can't be read: they are left as they are.

An API object at least has the identity of its pod. An invalid manifest has none: any pod from
such a source that no readable manifest accounts for may be its earlier version. Must never hold
back a pod whose place a readable manifest has taken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.syncloop.merge import Merge

log = logging.getLogger(__name__)


class UnreadPods:
    """Determined anew at each call; costs nothing while every manifest can be read."""

    def __init__(
        self,
        merge: Merge,
        pods: PodManager,
        cache: PodStatusCache,
        worker: Callable[[str], object],
    ) -> None:
        """``worker(uid)``: not None for a pod that this agent has known, thus no riddle."""
        self._merge = merge
        self._pods = pods
        self._cache = cache
        self._worker = worker
        self._reported: frozenset[str] = frozenset()

    def holds(self, uid: str) -> bool:
        """Whether a pod may be one that a source has but that can't be read."""
        return uid in self._merge.unknown or self._may_be_nameless(uid)

    def uids(self) -> frozenset[str]:
        """All of them."""
        if not self._merge.nameless:
            self._reported = frozenset()
            return self._merge.unknown
        held = frozenset(uid for uid in self._cache if self._may_be_nameless(uid))
        for uid in held - self._reported:
            log.warning(
                "a pod is left running: it may belong to a manifest that can't be read",
                extra={"uid": uid},
            )
        self._reported = held
        return self._merge.unknown | held

    def _may_be_nameless(self, uid: str) -> bool:
        if not self._merge.nameless or self._pods.get(uid) or self._worker(uid) is not None:
            return False
        status = self._cache.status(uid)
        if status is None or status.source not in self._merge.nameless:
            return False
        successor = self._pods.by_name(status.namespace, status.name)
        return successor is None or not successor.is_static
