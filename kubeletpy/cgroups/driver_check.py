"""Finds out from new sandboxes whether the runtime uses the cgroup driver that the agent uses.

A runtime with another driver puts containers where no limit of a pod holds and no statistics find
them, or it refuses every sandbox. The node is then not Ready. Must never change a cgroup, nor keep
a pod from starting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kubeletpy.cgroups.driver_mismatch import is_placed, mismatch, used_by_error, used_elsewhere
from kubeletpy.cgroups.errors import CgroupError
from kubeletpy.cgroups.names import Driver
from kubeletpy.cgroups.tree import CgroupTree
from kubeletpy.events.reasons import Reason
from kubeletpy.events.recorder import WARNING, EventRecorder, node_reference
from kubeletpy.pods.pod import Pod

log = logging.getLogger(__name__)

MAX_SEARCHES = 20
"""Sandboxes that are searched for in the complete hierarchy until the runtime connects again.

Those of some runtimes are nowhere.
"""


class DriverCheck:
    """Implements :class:`~kubeletpy.runtime_manager.sandbox_watch.SandboxWatch`."""

    def __init__(
        self,
        tree: CgroupTree,
        recorder: EventRecorder,
        *,
        node_name: str,
        runtime_name: str,
        on_change: Callable[[], None],
    ) -> None:
        """``on_change`` is called when :meth:`problem` changes."""
        self._tree = tree
        self._recorder = recorder
        self._node = node_reference(node_name)
        self._runtime_name = runtime_name
        self._on_change = on_change
        self._used: Driver | None = None
        """The driver that the runtime was seen to use; None: not known yet."""
        self._searches = 0

    def problem(self) -> str:
        """Why no pod can run well here; empty: nothing is known to be wrong."""
        agent = self._tree.names.driver
        if self._used is None or self._used is agent:
            return ""
        reported = self._tree.options.driver_reported
        return mismatch(agent, self._used, self._runtime_name, reported=reported)

    def connection_changed(self, connected: bool) -> None:
        """A runtime that was started again may have another driver: nothing is known of it."""
        if connected:
            self._searches = 0
            self._set(None)

    async def made(self, pod: Pod, sandbox_id: str, handler: str) -> None:
        """A runtime has made a sandbox: see where it is. Other handlers may have other drivers."""
        agent = self._tree.names.driver
        if handler or self._used is agent:
            return
        try:
            parent = self._tree.pod_path(pod)
        except CgroupError:
            return  # the sandbox has none
        if is_placed(sandbox_id, self._tree.files.children(parent)):
            self._set(agent)
            return
        if self._searches >= MAX_SEARCHES:
            return
        self._searches += 1

        def other(name: str) -> bool:
            return used_elsewhere(agent, sandbox_id, parent, name) is not None

        found = await asyncio.to_thread(self._tree.files.find, other)
        if found is not None:
            used = used_elsewhere(agent, sandbox_id, parent, found.rpartition("/")[2])
            self._set(used, pod=pod.key, sandbox=found, expected=f"{parent}/")

    def refused(self, pod: Pod, handler: str, error: str) -> None:
        """A runtime has refused to make a sandbox."""
        if handler or self._used is not None:
            return
        try:
            parent = self._tree.pod_path(pod)
        except CgroupError:
            return
        used = used_by_error(self._tree.names.driver, parent, error)
        if used is not None:
            self._set(used, pod=pod.key)

    def _set(self, used: Driver | None, **seen: str) -> None:
        before, self._used = self.problem(), used
        problem = self.problem()
        if problem == before:
            return
        if problem:
            log.error(problem, extra=seen)
            self._recorder.event(self._node, WARNING, Reason.CGROUP_DRIVER_MISMATCH, problem)
        else:
            log.info("the cgroup driver mismatch is over, as far as is known")
        self._on_change()
