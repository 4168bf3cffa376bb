"""Keeps whose memory is of which NUMA node, on the disk too, and tells containers theirs.

What is decided is decided by :class:`~kubeletpy.placement.static_memory.StaticMemory`. One
allocation is one write. Must never let a pod be let in whose memory is not booked on the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from kubeletpy.api import types as api
from kubeletpy.metrics.placement import PlacementMetrics
from kubeletpy.placement.hints import Hint, Hints
from kubeletpy.placement.id_lists import format_ids
from kubeletpy.placement.memory_state import MemoryState, read_memory_state, write_memory_state
from kubeletpy.placement.refusal import AllocationRefused, not_written
from kubeletpy.placement.state_file import StateFile
from kubeletpy.placement.state_json import StateError
from kubeletpy.placement.static_memory import MEMORY, StaticMemory, wanted
from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.additions import ContainerAdditions

log = logging.getLogger(__name__)

FILE = "memory_manager_state"
NONE = "None"


class MemoryManager:
    """A provider of memory (``ResourceProvider`` and ``ContainerProvider``)."""

    name = MEMORY

    def __init__(
        self, policy: StaticMemory | None, root_dir: Path, metrics: PlacementMetrics
    ) -> None:
        """``policy`` None: memoryManagerPolicy None."""
        self._policy = policy
        self._file = StateFile(root_dir / FILE)
        self._metrics = metrics
        self.state = MemoryState(NONE) if policy is None else policy.initial()

    async def start(self) -> None:
        """Go on with what the file says. Raises StateUnusable."""
        text = self._file.read()
        if text is not None:
            self.state = self._checked(text)
        try:
            await self._file.write(write_memory_state(self.state))
        except OSError as error:
            raise self._file.unusable(error.strerror or str(error)) from error

    async def close(self) -> None:
        """Have written what is to be written."""
        await self._file.close()

    # -- ResourceProvider -----------------------------------------------------------------------

    def hints(self, pod: Pod, container: api.Container | None) -> Hints:
        """See ResourceProvider."""
        return {} if self._policy is None else self._policy.hints(self.state, pod, container)

    async def allocate(self, pod: Pod, container: api.Container, hint: Hint) -> None:
        """See ResourceProvider."""
        if self._policy is None or not wanted(pod, container):
            return
        self._metrics.memory_requests.inc()
        before = self.state
        try:
            self.state = self._policy.allocate(before, pod, container, hint)
            if self.state is not before:
                await self._write_given(pod, container["name"], before)
        except AllocationRefused:
            self._metrics.memory_errors.inc()
            self._metrics.allocation_errors.labels(MEMORY, "node").inc()
            raise

    def release(self, uids: Collection[str]) -> None:
        """See ResourceProvider."""
        if self._policy is None:
            return
        before = self.state
        self.state = self._policy.without_all_but(before, uids)
        if self.state is not before:
            gone = sorted(before.entries.keys() - self.state.entries.keys())
            log.info("memory is free again", extra={"pods": gone})
            self._file.write_soon(write_memory_state(self.state))

    # -- what containers get --------------------------------------------------------------------

    async def provide(
        self,
        pod: Pod,
        container: api.Container,
        pod_ips: tuple[str, ...],
        given: ContainerAdditions,
    ) -> ContainerAdditions:
        """The NUMA nodes that a container's memory is of, for its config."""
        nodes = self.nodes_of(pod.uid, container["name"])
        if not nodes:
            return given
        return replace(given, placement=replace(given.placement, cpuset_mems=format_ids(nodes)))

    def nodes_of(self, uid: str, container: str) -> frozenset[int]:
        """The NUMA nodes of a container's memory; empty: any."""
        blocks = self.state.of(uid, container) or ()
        return frozenset(node for block in blocks for node in block.nodes or ())

    # -- inside ---------------------------------------------------------------------------------

    def _checked(self, text: str) -> MemoryState:
        try:
            found = read_memory_state(text)
        except StateError as error:
            raise self._file.unusable(error) from error
        if found.policy != self.state.policy:
            raise self._file.unusable(
                f'memoryManagerPolicy is "{self.state.policy}", and the memory in it was given by '
                f'"{found.policy}"'
            )
        if self._policy is None or (not found.nodes and not found.entries):
            return self.state
        if why := self._policy.problem(found):
            raise self._file.unusable(why)
        return found

    async def _write_given(self, pod: Pod, container: str, before: MemoryState) -> None:
        try:
            await self._file.write(write_memory_state(self.state))
        except OSError as error:
            self.state = before
            self._file.write_soon(write_memory_state(before))
            raise not_written(FILE, error) from error
        nodes = format_ids(self.nodes_of(pod.uid, container))
        log.info(
            "memory booked", extra={"pod": pod.key, "container": container, "numa_nodes": nodes}
        )
        self._metrics.allocations.labels(MEMORY, "node").inc()
        self._metrics.assignments.labels(MEMORY, "node_exclusive").inc()
