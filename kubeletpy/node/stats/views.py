"""Builds the served statistics on demand: the summary and the two scrapes.

Formatting runs in a thread, so that the scrape of a full node blocks nothing. Must never keep
anything of a pod except its last cpu times, and those only while it runs. A format's module is
loaded on first use: many nodes serve only one or two.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.tasks import run_together
from kubeletpy.node.stats import proc_text
from kubeletpy.node.stats.collector import StatsCollector
from kubeletpy.node.stats.group_files import read_text
from kubeletpy.node.stats.rates import WINDOW_MIN_NS, Rates
from kubeletpy.node.stats.usage import Disks, Reading
from kubeletpy.remote.errors import CRIError, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService

if TYPE_CHECKING:
    from kubeletpy.node.stats.cadvisor import MachineInfo

log = logging.getLogger(__name__)

SECOND_READING_S = 1.1 * WINDOW_MIN_NS / 1e9
"""Time from a reading to the next one by which it has rates."""

FROM_FILES, FROM_RUNTIME = "cadvisor", "cri"
WRITERS = 2
"""Documents written at once, on threads separate from those that start pods: clients decide how
many are requested."""


class StatsViews:
    """The views of one node.

    Args:
        from_runtime: None, or the runtime, which writes the cadvisor scrape itself if it can.
        provider: called with which one writes it: FROM_FILES or FROM_RUNTIME.
    """

    def __init__(
        self,
        collector: StatsCollector,
        node_name: str,
        machine: Callable[[], MachineInfo],
        *,
        from_runtime: RuntimeService | None = None,
        provider: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._collector = collector
        self._node_name = node_name
        self._machine = machine
        self._runtime = from_runtime
        self._descriptors: Sequence[cri.MetricDescriptor] | None = None
        self._provider = provider
        self._rates = Rates()
        self._rating = asyncio.Lock()
        self._threads = PatientThreads(WRITERS)
        provider(FROM_FILES)

    async def summary(self, *, only_cpu_and_memory: bool) -> bytes:
        """The document of /stats/summary, as JSON."""
        if only_cpu_and_memory:
            reading, rates = await self._rated(self._collector.usage)
            return await self._threads.run(self._summary, reading, rates, None)
        (reading, rates), disks = await run_together(
            self._rated(self._collector.detail), self._collector.disks()
        )
        return await self._threads.run(self._summary, reading, rates, disks)

    async def _rated(
        self, read: Callable[[float], Awaitable[Reading]]
    ) -> tuple[Reading, Mapping[str, int]]:
        """A reading, and the cpu rates up to it.

        The first request after a start, or after a long time, waits for a second reading.
        """
        from kubeletpy.node.stats.summary import rated

        reading = await read(-math.inf)
        async with self._rating:
            rates, lacking = await self._threads.run(rated, reading, self._rates)
        if lacking:
            await asyncio.sleep(SECOND_READING_S)
            reading = await read(asyncio.get_running_loop().time())
            async with self._rating:
                rates, _ = await self._threads.run(rated, reading, self._rates)
        return reading, rates

    async def resource_metrics(self) -> bytes:
        """The scrape of /metrics/resource."""
        from kubeletpy.node.stats import resource

        return await self._threads.run(resource.render, await self._collector.usage())

    async def log_metrics(self) -> bytes:
        """The disk usage of container logs, for /metrics."""
        from kubeletpy.node.stats import log_metrics

        return log_metrics.render(await self._collector.disks(), self._collector.refs())

    async def cadvisor_metrics(self) -> bytes:
        """The scrape of /metrics/cadvisor."""
        if self._runtime is not None:
            try:
                return await self._from_runtime(self._runtime)
            except CRIError as error:
                level = logging.DEBUG if isinstance(error, Unimplemented) else logging.WARNING
                log.log(level, "the runtime gives no metrics", extra={"why": str(error)})
                self._provider(FROM_FILES)
        return await self._threads.run(self._cadvisor, await self._collector.detail())

    async def _from_runtime(self, runtime: RuntimeService) -> bytes:
        if not self._descriptors:
            self._descriptors = await runtime.list_metric_descriptors()
        pods = await runtime.list_pod_sandbox_metrics()
        self._provider(FROM_RUNTIME)
        from kubeletpy.node.stats import cri_metrics

        return await self._threads.run(cri_metrics.render, self._descriptors, pods)

    def _summary(self, reading: Reading, rates: Mapping[str, int], disks: Disks | None) -> bytes:
        from kubeletpy.node.stats.summary import summary

        document = summary(reading, rates, disks, self._node_name)
        return json.dumps(document, separators=(",", ":")).encode()

    def _cadvisor(self, reading: Reading) -> bytes:
        from kubeletpy.node.stats import cadvisor

        devices = proc_text.devices(read_text("/proc/diskstats"))
        return cadvisor.render(reading, self._machine(), devices)
