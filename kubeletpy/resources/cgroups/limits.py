"""Changes the limits of a pod's cgroup while the pod runs.

Implements :class:`kubeletpy.runtime_manager.pod_limits.PodCgroupLimits`. Must never decide which
limits a pod should have, nor in which order they change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from kubeletpy.pods.pod import Pod, PodLimits, PodLimitsError
from kubeletpy.resources.cgroups.errors import CgroupError
from kubeletpy.resources.cgroups.limits_read import as_requested, memory_usage
from kubeletpy.resources.cgroups.pod_cgroups import PodCgroups
from kubeletpy.resources.cgroups.tree import CgroupTree
from kubeletpy.resources.cgroups.values import CgroupResources


class KernelPodLimits:
    """The limits in the tree that the node's pods are in."""

    def __init__(self, tree: CgroupTree, cgroups: PodCgroups) -> None:
        self._tree = tree
        self._cgroups = cgroups

    def requested(self, pod: Pod) -> PodLimits | None:
        """The limits that the pod's spec requests. Raises PodLimitsError."""
        with _as_pod_limits_error():
            return _plain(self._tree.pod_limits(pod))

    def current(self, pod: Pod) -> PodLimits:
        """The limits that the pod's cgroup has now. Raises PodLimitsError."""
        with _as_pod_limits_error():
            wanted = self._tree.pod_limits(pod)
            version = self._tree.files.version
            return _plain(as_requested(version, self._tree.read_limits(pod), wanted))

    def memory_usage(self, pod: Pod) -> int:
        """Bytes that the pod uses now. Raises PodLimitsError."""
        with _as_pod_limits_error():
            files = self._tree.files
            used = memory_usage(files.version, partial(files.read_file, self._tree.pod_path(pod)))
            if used is None:
                raise CgroupError("missing pod memory usage")
            return used

    async def write(self, pod: Pod, limits: PodLimits) -> None:
        """Set the limits that are given. Raises PodLimitsError.

        The kernel reclaims memory before the write returns, so this waits in a thread.
        """
        given = CgroupResources(
            shares=limits.shares,
            quota_us=limits.quota_us,
            period_us=limits.period_us,
            memory=limits.memory,
        )
        with _as_pod_limits_error():
            path = self._tree.pod_path(pod)
            if limits.memory is None:
                self._tree.files.write(path, given)
            else:
                await asyncio.to_thread(self._tree.files.write, path, given)
            await self._tree.files.settle(path)
        self._cgroups.resized(pod)


def _plain(limits: CgroupResources) -> PodLimits:
    return PodLimits(limits.shares, limits.quota_us, limits.period_us, limits.memory or None)


@contextmanager
def _as_pod_limits_error() -> Iterator[None]:
    try:
        yield
    except CgroupError as error:
        raise PodLimitsError(str(error)) from error
