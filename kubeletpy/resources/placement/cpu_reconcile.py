"""Moves running containers to the CPUs that they should have.

Containers without CPUs of their own share a pool, which shrinks and grows while they run. After a
start it is not known what they were last given, so each is updated once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from kubeletpy.base.structs import Struct
from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.resources.placement.id_lists import format_ids

log = logging.getLogger(__name__)

TOGETHER_S = 0.02
"""Changes within this time are handled together."""


class RunningContainer(Struct, frozen=True):
    """A running container of a pod that uses the node."""

    id: str
    name: str
    uid: str
    """Its pod's."""


class CpuReconciler:
    """Updates containers in the runtime to the CPUs that they should have."""

    def __init__(
        self,
        runtime: RuntimeService,
        running: Callable[[], Iterable[RunningContainer]],
        cpus_of: Callable[[str, str], frozenset[int]],
        period: float,
    ) -> None:
        """Args:
        cpus_of: the CPUs of a container, by uid of its pod and its name.
        period: seconds after which it reconciles even without a reason.
        """
        self._runtime = runtime
        self._running = running
        self._cpus_of = cpus_of
        self._period = period
        self._due = asyncio.Event()
        self._sent: dict[str, str] = {}
        """The CPUs last sent to the runtime, by id of the container."""
        self._logged: set[str] = set()
        """Containers whose failure has been logged."""

    def reconcile_soon(self, uid: str = "") -> None:
        """Reconcile soon: other containers run, or they have other CPUs. ``uid`` is ignored."""
        self._due.set()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._period):
                    await self._due.wait()
                await asyncio.sleep(TOGETHER_S)
            except TimeoutError:
                pass
            self._due.clear()
            await self.reconcile()

    async def reconcile(self) -> None:
        """Update all containers in the runtime that are not where they should be."""
        running = list(self._running())
        ids = {each.id for each in running}
        self._sent = {key: cpus for key, cpus in self._sent.items() if key in ids}
        self._logged &= ids
        for each in running:
            cpus = format_ids(self._cpus_of(each.uid, each.name))
            if cpus and self._sent.get(each.id) != cpus:
                await self._update_cpuset(each, cpus)

    async def _update_cpuset(self, container: RunningContainer, cpus: str) -> None:
        resources = cri.LinuxContainerResources(cpuset_cpus=cpus)
        try:
            await self._runtime.update_container_resources(container.id, resources)
        except NotFound:
            return  # it has ended meanwhile
        except CRIError as error:
            if container.id not in self._logged:
                self._logged.add(container.id)
                log.warning(
                    "a container could not be moved to its CPUs; trying again",
                    extra={
                        "pod": container.uid,
                        "container": container.name,
                        "cpus": cpus,
                        "error": str(error),
                    },
                )
            return
        self._logged.discard(container.id)
        self._sent[container.id] = cpus
