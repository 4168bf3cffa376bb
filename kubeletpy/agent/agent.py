"""One node agent: its rooms and the tasks they run as.

The same agent runs on a node and on virtual time. Must never decide anything about a pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from kubeletpy.agent.rooms import AgentRooms
from kubeletpy.events.recorder import NORMAL, node_reference
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.node.lease import LeaseKeeper
from kubeletpy.node.manager import NodeManager

log = logging.getLogger(__name__)

STOP_S = 3.0
"""How long a stopping agent waits for calls under way."""


class Agent(AgentRooms):
    """One node agent. Make it inside a running event loop."""

    async def run(self) -> None:
        """Run until cancelled; containers go on without us."""
        self.metrics.node.node_name.labels(self.parts.node.name).set(1)
        self.recorder.event(
            node_reference(self.parts.node.name), NORMAL, "Starting", "Starting kubelet."
        )
        await self.monitor.check()
        try:
            async with asyncio.TaskGroup() as group:
                for name, work in self._tasks():
                    group.create_task(work, name=name)
        finally:
            await self._stop()

    def _tasks(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        tasks = [
            ("runtime-monitor", self.monitor.run()),
            ("pleg", self.pleg.run()),
            ("runtime-events", self.stream.run()),
            ("sync-loop", self.loop.run()),
            ("stuck-pods", self.stuck_pods.run()),
            ("dead-containers", self.dead.run()),
            ("container-gc", self.upkeep.collect_containers()),
            ("image-gc", self.upkeep.collect_images()),
        ]
        if self.cgroups is not None:
            tasks.append(("cgroups", self.cgroups.run()))
        tasks += [(f"source-{name}", make()) for name, make in self._sources.items()]
        tasks += [(name, make()) for name, make in self.companions]
        if self.local_storage is not None:
            tasks.append(("local-storage", self.local_storage.run()))
        if self.shutdown.enabled:
            tasks.append(("node-shutdown", self.shutdown.run()))
        if self._events is not None:
            tasks.append(("events", self._events.run()))
        if self.node is not None:
            api = self.parts.heartbeat_api or self.parts.kube_api
            assert api is not None, "a node manager comes with an API"
            tasks.append(("node", self.node.run()))
            tasks.append(("own-node", self.own_node.run()))
            tasks.append(("node-lease", self._keep_lease(api, self.node)))
            tasks.append(("static-pods-mirrors", self._mirror_when_registered(self.node)))
        return tasks

    async def _stop(self) -> None:
        """Let go within STOP_S: what is unfinished is taken up by the next start."""
        try:
            async with asyncio.timeout(STOP_S):
                await self.workers.close()
                await self.probes.close()
                self.early_looks.close()
                if self.mirrors is not None:
                    await self.mirrors.close()
                await self.statuses.close()
                await self.directories.close()
                self.allocations.close()
                self.gate.close()
                await self.allocated.close()
                await self.actuated.close()
                if self.cgroups is not None:
                    await self.cgroups.close()
                await self.runtime.drain(STOP_S / 2)
        except TimeoutError:
            log.info("stopped with calls under way")

    async def _keep_lease(self, api: KubeApi, node: NodeManager) -> None:
        await node.registered.wait()
        keeper = LeaseKeeper(
            api,
            self.parts.clock,
            self.parts.node.name,
            self.parts.node.lease_duration_s,
            node_uid=lambda: node.uid,
            rng=self.parts.rng,
        )
        await keeper.run()

    async def _mirror_when_registered(self, node: NodeManager) -> None:
        await node.registered.wait()
        self.loop.sync_static_pods()
