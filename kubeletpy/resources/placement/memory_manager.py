"""Keeps track, also on disk, of which NUMA nodes containers have memory on, and assigns it.

:class:`~kubeletpy.resources.placement.static_memory.StaticMemory` makes the decisions. One allocation is one
write. Must never let a pod be admitted whose memory is not booked on the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import spelled
from kubeletpy.base.structs import replace
from kubeletpy.metrics.resources import PlacementMetrics
from kubeletpy.pods.pod import HeldResource, Pod
from kubeletpy.resources.placement.id_lists import format_ids
from kubeletpy.resources.placement.memory_requests import MEMORY, requested_memory
from kubeletpy.resources.placement.memory_state import (
    Block,
    MemoryState,
    read_memory_state,
    write_memory_state,
)
from kubeletpy.resources.placement.pod_pool import containers_in_order, shares_part
from kubeletpy.resources.placement.refusal import not_written
from kubeletpy.resources.placement.state_file import Form, StateFile
from kubeletpy.resources.placement.static_manager import StaticManager
from kubeletpy.resources.placement.static_memory import StaticMemory
from kubeletpy.runtime_manager.additions import ContainerAdditions

log = logging.getLogger(__name__)

NONE = "None"
_FORM = Form(
    "memory_manager_state",
    "memoryManagerPolicy",
    "blocks of memory",
    read_memory_state,
    write_memory_state,
)


class MemoryManager(StaticManager[MemoryState, StaticMemory]):
    """A provider of memory (``ResourceProvider`` and ``ContainerProvider``)."""

    name = MEMORY

    def __init__(
        self, policy: StaticMemory | None, root_dir: Path, metrics: PlacementMetrics
    ) -> None:
        """``policy`` None: memoryManagerPolicy None."""
        state = MemoryState(NONE) if policy is None else policy.initial()
        file = StateFile(root_dir, _FORM)
        super().__init__(
            policy,
            state,
            file,
            metrics,
            requests=metrics.memory_requests,
            errors=metrics.memory_errors,
        )

    # -- ResourceProvider -----------------------------------------------------------------------

    async def settle(self, pod: Pod) -> None:
        """See ResourceProvider."""
        names = self._unsettled.pop(pod.uid, [])
        source = self._source(pod)
        try:
            await self._file.write(self.state)
        except OSError as error:
            self._count_refusal(source)
            # blocks of init containers have shrunk for later ones: release the whole pod
            if self._policy is not None:
                others = {*self.state.entries, *self.state.pools} - {pod.uid}
                self.state = self._policy.without_all_but(self.state, others)
            self._file.write_soon(self.state)
            raise not_written(_FORM.name, error) from error
        for name in names:
            self._note(pod, name, source)

    def release(self, uids: Collection[str]) -> None:
        """See ResourceProvider."""
        if self._policy is None:
            return
        for uid in self._unsettled.keys() - set(uids):
            del self._unsettled[uid]
        before = self.state
        self.state = self._policy.without_all_but(before, uids)
        if self.state is not before:
            left = sorted({*before.entries, *before.pools} - {*self.state.entries})
            log.info("memory is free again", extra={"pods": left})
            self._file.write_soon(self.state)

    # -- what containers get --------------------------------------------------------------------

    async def provide(
        self,
        pod: Pod,
        container: api.Container,
        pod_ips: tuple[str, ...],
        given: ContainerAdditions,
    ) -> ContainerAdditions:
        """The NUMA nodes that a container's memory comes from, for its config."""
        nodes = self.nodes_of(pod.uid, container["name"])
        if not nodes:
            return given
        return replace(given, placement=replace(given.placement, cpuset_mems=format_ids(nodes)))

    def nodes_of(self, uid: str, container: str) -> frozenset[int]:
        """The NUMA nodes of a container's memory; empty: any."""
        blocks = self.state.container_blocks(uid, container) or ()
        return frozenset(node for block in blocks for node in block.nodes or ())

    def owns(self, pod: Pod, container: str) -> bool:
        """See StaticManager."""
        held = bool(self.state.container_blocks(pod.uid, container))
        own = partial(requested_memory, pod, pod_level=True)
        return held and not shares_part(pod, container, own)

    def own_blocks(self, pod: Pod, container: str) -> Sequence[Block]:
        """The memory that is booked for a container alone."""
        if not self.owns(pod, container):
            return ()
        return self.state.container_blocks(pod.uid, container) or ()

    def pool_of(self, uid: str) -> Sequence[Block]:
        """The memory of a pod that is placed as one; empty: it is not."""
        return self.state.pools.get(uid, ())

    def allocatable(self) -> list[Block]:
        """The memory that can be, or is, booked: by node and type."""
        return [
            Block((node,), kind, table.allocatable)
            for node, memory in sorted(self.state.nodes.items())
            for kind, table in sorted(memory.tables.items())
            if table.allocatable
        ]

    def held_by(self, pod: Pod) -> list[HeldResource]:
        """The memory that is booked for each container of a pod, or shared in it."""
        return [
            HeldResource(
                name,
                block.type,
                f"{spelled(block.size, binary=True)} "
                f"{'booked' if self.owns(pod, name) else 'shared in the pod'}",
                block.nodes or (),
            )
            for name in (container["name"] for container in containers_in_order(pod))
            for block in self.state.container_blocks(pod.uid, name) or ()
        ]

    # -- inside ---------------------------------------------------------------------------------

    def _note(self, pod: Pod, container: str, source: str) -> None:
        nodes = format_ids(self.nodes_of(pod.uid, container))
        log.info(
            "memory booked", extra={"pod": pod.key, "container": container, "numa_nodes": nodes}
        )
        self._count_allocation(pod, container, source)
