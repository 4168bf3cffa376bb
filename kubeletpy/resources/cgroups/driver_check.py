"""Checks from new sandboxes whether the runtime uses the cgroup driver that the agent uses.

A runtime with another driver puts containers where no limit of a pod holds and no statistics find
them, or it refuses every sandbox. The node is then not Ready, also after the runtime was
reconfigured, until no container is left outside. The check changes no cgroup, and keeps no pod from
starting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import wait_within
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, node_reference
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.cgroups.driver_mismatch import (
    is_placed,
    left_outside,
    left_running,
    mismatch,
    used_by_error,
    used_elsewhere,
)
from kubeletpy.resources.cgroups.tree import CgroupTree
from kubeletpy.resources.cgroups.values import CgroupDriver, CgroupError

log = logging.getLogger(__name__)

RECHECK_S = 10.0
"""Between two searches for containers outside, as long as there are any."""
MAX_SEARCHES = 20
"""Sandboxes that are searched for in the complete hierarchy until the runtime connects again.

Those of some runtimes are nowhere.
"""


class DriverCheck(Component):
    """Observes where sandboxes are, as :class:`~kubeletpy.runtime_manager.protocol.SandboxWatch`.

    A mismatch is an event of the node, and the problem that keeps it from being Ready.
    """

    tree: CgroupTree
    recorder: EventRecorder
    node_name: str
    runtime_name: str
    pod_name: Callable[[str], str]
    """The name of the pod of a uid, for a person."""
    on_change: Callable[[], None]
    """Called when :meth:`problem` changes."""

    def __post_init__(self) -> None:
        self._node = node_reference(self.node_name)
        self._used: CgroupDriver | None = None
        """The driver that the runtime was seen to use; None: not known yet."""
        self._searches = 0
        self._left = ""
        """Which containers are outside although the runtime has the right driver."""
        self._unsearched = ""
        """The problem that lasts until a search shows whether any container is outside."""
        self._search_due = asyncio.Event()
        self._search_due.set()  # containers may be outside since before the agent's start

    def problem(self) -> str:
        """Return why no pod can run well here; empty if no problem is known."""
        agent = self.tree.names.driver
        if self._used is None or self._used is agent:
            return self._unsearched or self._left
        reported = self.tree.options.driver_reported
        return mismatch(agent, self._used, self.runtime_name, reported=reported)

    def connection_changed(self, connected: bool) -> None:
        """Forget the driver of a runtime that was started again: it may have another one."""
        if connected:
            self._searches = 0
            self._set(None)

    async def run(self) -> None:
        """Search now, after each connection of the runtime, and until nothing is left outside."""
        while True:
            await wait_within(self._search_due, RECHECK_S if self._left else None)
            self._search_due.clear()
            await self.search()

    async def search(self) -> None:
        """Find the pods with containers where a runtime with another driver put them."""
        names, files = self.tree.names, self.tree.files
        found = await asyncio.to_thread(
            files.find_running, lambda name: left_outside(names, name) is not None, names.kubepods
        )
        uids = {left_outside(names, path.rpartition("/")[2]) for path in found}
        pods = sorted(self.pod_name(uid) for uid in uids if uid is not None)
        before, known = self.problem(), bool(self._left)
        self._left, self._unsearched = left_running(pods, names.kubepods), ""
        self._report(before, is_new=not known, cgroups=found[:MAX_SEARCHES])

    async def made(self, pod: Pod, sandbox_id: str, handler: str) -> None:
        """Check where a runtime has made a sandbox. Other handlers may have other drivers."""
        agent = self.tree.names.driver
        if handler or self._used is agent:
            return
        try:
            parent = self.tree.pod_path(pod)
        except CgroupError:
            return  # the sandbox has none
        if is_placed(sandbox_id, self.tree.files.children(parent)):
            self._set(agent)
            return
        if self._searches >= MAX_SEARCHES:
            return
        self._searches += 1

        def other(name: str) -> bool:
            return used_elsewhere(agent, sandbox_id, parent, name) is not None

        found = await asyncio.to_thread(self.tree.files.find, other)
        if found is not None:
            used = used_elsewhere(agent, sandbox_id, parent, found.rpartition("/")[2])
            self._set(used, pod=pod.key, sandbox=found, expected=f"{parent}/")

    def refused(self, pod: Pod, handler: str, error: str) -> None:
        """Conclude the runtime's driver from its error when it refused to make a sandbox."""
        if handler or self._used is not None:
            return
        try:
            parent = self.tree.pod_path(pod)
        except CgroupError:
            return
        used = used_by_error(self.tree.names.driver, parent, error)
        if used is not None:
            self._set(used, pod=pod.key)

    def _set(self, used: CgroupDriver | None, **seen: str) -> None:
        before = self.problem()
        if used is None or (before and used is self.tree.names.driver):
            self._unsearched = before
            self._search_due.set()
        self._used = used
        self._report(before, is_new=True, **seen)

    def _report(self, before: str, *, is_new: bool, **seen: object) -> None:
        problem = self.problem()
        if problem == before:
            return
        if not problem:
            log.info("the cgroup driver mismatch is over")
        elif is_new:
            log.error(problem, extra=seen)
            self.recorder.event(self._node, WARNING, Reason.CGROUP_DRIVER_MISMATCH, problem)
        self.on_change()
