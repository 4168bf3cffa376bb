"""The node heartbeat: a Lease renewed each quarter of its duration (KEP-589)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from kubeletpy.api.times import format_micro_time
from kubeletpy.api.types import JSON
from kubeletpy.clock import Clock
from kubeletpy.kubeapi.errors import AlreadyExists, ApiError, NotFound
from kubeletpy.kubeapi.protocol import LEASES, KubeApi, PatchType

log = logging.getLogger(__name__)

NAMESPACE = "kube-node-lease"
RENEW_SHARE = 0.25
JITTER = 0.04
FIRST_RETRY_S, LAST_RETRY_S = 0.2, 7.0


class LeaseKeeper:
    """Creates the lease when it is missing and renews it, for as long as :meth:`run` runs."""

    def __init__(
        self,
        kube_api: KubeApi,
        clock: Clock,
        node_name: str,
        duration_s: int,
        *,
        node_uid: Callable[[], str],
        rng: random.Random | None = None,
    ) -> None:
        """``node_uid`` gives the Node's uid, the lease's owner; empty while it is not known."""
        self._api = kube_api
        self._clock = clock
        self._name = node_name
        self._duration_s = duration_s
        self._node_uid = node_uid
        self._rng = rng or random.Random()
        self._failing = False

    async def run(self) -> None:
        """Renew until cancelled. A failed renewal is tried again soon; the log says it once."""
        period = self._duration_s * RENEW_SHARE
        retry = FIRST_RETRY_S
        while True:
            try:
                await self.renew()
            except ApiError as error:
                if not self._failing:
                    log.warning(
                        "could not renew the node lease; trying again",
                        extra={"lease": f"{NAMESPACE}/{self._name}", "why": str(error)},
                    )
                self._failing = True
                await asyncio.sleep(min(retry, period) * (0.75 + self._rng.random() / 2))
                retry = min(retry * 2, LAST_RETRY_S)
                continue
            self._failing = False
            retry = FIRST_RETRY_S
            await asyncio.sleep(period * (1 + JITTER * self._rng.random()))

    async def renew(self) -> None:
        """One renewal; creates the lease when there is none. Raises ApiError."""
        spec: JSON = {
            "holderIdentity": self._name,
            "leaseDurationSeconds": self._duration_s,
            "renewTime": format_micro_time(self._clock.now()),
        }
        try:
            await self._api.patch(
                LEASES, self._name, {"spec": spec}, NAMESPACE, patch_type=PatchType.MERGE
            )
        except NotFound:
            await self._create(spec)

    async def _create(self, spec: JSON) -> None:
        metadata: JSON = {"name": self._name, "namespace": NAMESPACE}
        if uid := self._node_uid():
            metadata["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": uid}
            ]
        lease: JSON = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }
        try:
            await self._api.create(LEASES, lease, NAMESPACE)
        except AlreadyExists:
            log.debug("the lease appeared meanwhile; the next renewal takes it")
