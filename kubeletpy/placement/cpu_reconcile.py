"""Moves containers that run to the CPUs that they should have.

Containers without CPUs of their own share a pool, which gets smaller and larger while they run.
After a start nobody knows what they were last given, so each is told once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kubeletpy.placement.id_lists import format_ids
from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService

log = logging.getLogger(__name__)

TOGETHER_S = 0.02
"""Changes of this long are seen to at once."""


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container that runs, of a pod that uses the node."""

    id: str
    name: str
    uid: str
    """Of its pod."""


class CpuReconciler:
    """Tells the runtime."""

    def __init__(
        self,
        runtime: RuntimeService,
        running: Callable[[], Iterable[RunningContainer]],
        cpus_of: Callable[[str, str], frozenset[int]],
        period: float,
    ) -> None:
        """Args:
        cpus_of: the CPUs of a container, by uid of its pod and its name.
        period: seconds after which a look is taken without a reason, too.
        """
        self._runtime = runtime
        self._running = running
        self._cpus_of = cpus_of
        self._period = period
        self._look = asyncio.Event()
        self._told: dict[str, str] = {}
        """By id of the container, what the runtime was last told."""
        self._said: set[str] = set()
        """Containers with a failure that was logged."""

    def look_soon(self, uid: str = "") -> None:
        """Something changed: who runs, or who has which CPUs."""
        self._look.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._period):
                    await self._look.wait()
                await asyncio.sleep(TOGETHER_S)
            except TimeoutError:
                pass
            self._look.clear()
            await self.reconcile()

    async def reconcile(self) -> None:
        """Tell the runtime of all containers that are not where they should be."""
        running = list(self._running())
        ids = {each.id for each in running}
        self._told = {key: told for key, told in self._told.items() if key in ids}
        self._said &= ids
        for each in running:
            cpus = format_ids(self._cpus_of(each.uid, each.name))
            if cpus and self._told.get(each.id) != cpus:
                await self._tell(each, cpus)

    async def _tell(self, container: RunningContainer, cpus: str) -> None:
        resources = cri.LinuxContainerResources(cpuset_cpus=cpus)
        try:
            await self._runtime.update_container_resources(container.id, resources)
        except NotFound:
            return  # it has ended meanwhile
        except CRIError as error:
            if container.id not in self._said:
                self._said.add(container.id)
                log.warning(
                    "a container could not be moved to its CPUs; it is tried again",
                    extra={
                        "pod": container.uid,
                        "container": container.name,
                        "cpus": cpus,
                        "error": str(error),
                    },
                )
            return
        self._said.discard(container.id)
        self._told[container.id] = cpus
