"""Queries CSI drivers for the health of their storage here, and reports it to the CSINode.

All drivers are queried concurrently, once per period; one write contains all answers. A call or a
write that fails changes nothing and is repeated in the next period. Source:
docs/reference/behaviour-storage.md, sr2.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from kubeletpy.base.api.times import format_time
from kubeletpy.base.clock import Clock
from kubeletpy.base.tasks import run_together
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import CSINODES, KubeApi, PatchType
from kubeletpy.metrics.volumes import CsiMetrics
from kubeletpy.volumes.claims.operation import OperationFailed
from kubeletpy.volumes.csi.drivers import CsiDrivers
from kubeletpy.volumes.csi.node_object import owned_by
from kubeletpy.volumes.csi.storage_health import Conditions, changed_storage_health

log = logging.getLogger(__name__)

DEFAULT_PERIOD_S = 60.0
"""Between two rounds, if the configured period is 0 or less."""


class StorageHealthMonitor:
    """The health of drivers' storage. Make it inside a running event loop."""

    def __init__(
        self,
        node_name: str,
        node_uid: Callable[[], str],
        drivers: CsiDrivers,
        kube_api: KubeApi | None,
        metrics: CsiMetrics,
        *,
        clock: Clock,
        period: float,
    ) -> None:
        """Args:
        node_uid: of the Node object; empty: not known yet.
        kube_api: None: standalone, there are the metrics alone.
        period: seconds between two rounds; 0 or less: a minute.
        """
        self._node_name = node_name
        self._node_uid = node_uid
        self._drivers = drivers
        self._api = kube_api
        self._metrics = metrics
        self._clock = clock
        self._period = period if period > 0 else DEFAULT_PERIOD_S
        self._problems: dict[str, str] = {}
        """Driver -> why its last call failed; empty name: why the last write did."""

    async def run(self) -> None:
        """Query drivers until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(self._period)

    async def round(self) -> None:
        """Query every registered driver once, and write what differs."""
        names = self._drivers.names
        self._metrics.storage_unknown(names)
        for gone in self._problems.keys() - {"", *names}:
            del self._problems[gone]
        answers = zip(names, await run_together(*map(self._query_health, names)), strict=True)
        reported = {name: found for name, found in answers if found is not None}
        for name, conditions in reported.items():
            keys = ((each["status"], each["reason"]) for each in conditions)
            self._metrics.storage_reported(name, keys)
        if reported and self._api is not None:
            await self._write(self._api, reported)

    async def _query_health(self, name: str) -> Conditions | None:
        driver = self._drivers.get(name)
        if driver is None:
            return None
        try:
            found = await driver.client.storage_health()
        except OperationFailed as error:
            if self._is_new(name, error.message):
                extra = {"driver": name, "why": error.message}
                log.warning("health of a CSI driver's storage not read; it stays", extra=extra)
            return None
        self._problems.pop(name, None)
        return found

    async def _write(self, api: KubeApi, reported: Mapping[str, Conditions]) -> None:
        try:
            found = await api.get(CSINODES, self._node_name)
            if not owned_by(found, self._node_uid()):
                return  # of a Node object that was deleted: another CSINode replaces it
            old = (found.get("status") or {}).get("storageHealth") or ()
            new = changed_storage_health(old, reported, format_time(self._clock.now()))
            if new is not None:
                uid = (found.get("metadata") or {}).get("uid") or ""
                patch = {"metadata": {"uid": uid}, "status": {"storageHealth": new}}
                kind = PatchType.MERGE
                await api.patch(
                    CSINODES, self._node_name, patch, subresource="status", patch_type=kind
                )
        except ApiError as error:
            if self._is_new("", error.message):
                extra = {"csinode": self._node_name, "why": error.message}
                log.warning(
                    "health of CSI drivers' storage not written; is feature gate CSIVolumeHealth "
                    "on in the API server?",
                    extra=extra,
                )
            return
        self._problems.pop("", None)

    def _is_new(self, subject: str, problem: str) -> bool:
        """Whether a failure is another one than the last, which was logged."""
        new = self._problems.get(subject) != problem
        self._problems[subject] = problem
        return new
