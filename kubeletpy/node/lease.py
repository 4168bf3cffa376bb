"""The node heartbeat: a Lease renewed every quarter of its duration (KEP-589)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from kubeletpy.base.api.times import format_micro_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import wait_within
from kubeletpy.kubeapi.errors import AlreadyExists, ApiError, NotFound
from kubeletpy.kubeapi.protocol import LEASES, KubeApi, PatchType

log = logging.getLogger(__name__)

NAMESPACE = "kube-node-lease"
RENEW_SHARE = 0.25
JITTER = 0.04
FIRST_RETRY_S, LAST_RETRY_S = 0.2, 7.0


def until_renewal(period: float, chance: float, *, in_step: bool) -> float:
    """Seconds until the next renewal.

    A jitter of 4 % takes half an hour to spread nodes that began together, so the first period
    after a start or an outage is cut short at random.

    Args:
        chance: a random number from 0 to 1.
        in_step: other nodes have probably renewed at the same time.
    """
    return period * chance if in_step else period * (1 + JITTER * chance)


class LeaseKeeper(Component):
    """Creates the lease when it is missing and renews it, for as long as :meth:`run` runs."""

    kube_api: KubeApi
    clock: Clock
    node_name: str
    duration_s: int
    node_uid: Callable[[], str]
    """Returns the uid of the Node, the lease's owner; empty: the API has no Node, and no lease is
    created for it."""
    answered_again: Callable[[], None] = lambda: None
    """Called when a renewal works after one that did not."""
    rng: random.Random | None = None

    def __post_init__(self) -> None:
        self._rng = self.rng or random.Random()
        self._failing = False
        self._why = ""
        self._now = asyncio.Event()
        self._in_step = True
        """The next renewal may coincide with those of other nodes: all have just started, or have
        met the same outage."""

    def problem(self) -> str:
        """Why the API does not hear from this node; empty when it does."""
        if not self._failing:
            return ""
        return f"the API can't be used: the node's lease is not renewed: {self._why}"

    def node_replaced(self) -> None:
        """The Node object was created anew: renew at once, and make it the lease's owner."""
        self._now.set()

    async def run(self) -> None:
        """Renew until cancelled. A failed renewal is retried soon and logged once."""
        period = self.duration_s * RENEW_SHARE
        retry = FIRST_RETRY_S
        while True:
            try:
                await self.renew()
            except ApiError as error:
                if not self._failing:
                    log.warning(
                        "could not renew the node lease; trying again",
                        extra={"lease": f"{NAMESPACE}/{self.node_name}", "why": str(error)},
                    )
                self._failing = self._in_step = True
                self._why = str(error)
                await asyncio.sleep(min(retry, period) * (0.75 + self._rng.random() / 2))
                retry = min(retry * 2, LAST_RETRY_S)
                continue
            if self._failing:
                self.answered_again()
            pause = until_renewal(period, self._rng.random(), in_step=self._in_step)
            self._failing = self._in_step = False
            retry = FIRST_RETRY_S
            self._now.clear()
            await wait_within(self._now, pause)

    async def renew(self) -> None:
        """Renew once; creates the lease when there is none. Raises ApiError."""
        spec: JSON = {
            "holderIdentity": self.node_name,
            "leaseDurationSeconds": self.duration_s,
            "renewTime": format_micro_time(self.clock.now()),
        }
        try:
            lease = await self._patch({"spec": spec})
        except NotFound:
            if uid := self.node_uid():
                await self._create(spec, uid)
            return
        owners = (lease.get("metadata") or {}).get("ownerReferences") or ()
        uid = self.node_uid()
        if uid and all(owner.get("uid") != uid for owner in owners):
            try:
                await self._patch({"metadata": {"ownerReferences": self._owners(uid)}})
            except ApiError as error:
                # the lease is renewed anyway; the next renewal tries again
                log.warning("the lease's owner was not changed", extra={"why": str(error)})

    async def _patch(self, patch: JSON) -> JSON:
        return await self.kube_api.patch(
            LEASES, self.node_name, patch, NAMESPACE, patch_type=PatchType.MERGE
        )

    def _owners(self, uid: str) -> list[JSON]:
        return [{"apiVersion": "v1", "kind": "Node", "name": self.node_name, "uid": uid}]

    async def _create(self, spec: JSON, uid: str) -> None:
        metadata: JSON = {
            "name": self.node_name,
            "namespace": NAMESPACE,
            "ownerReferences": self._owners(uid),
        }
        lease: JSON = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }
        try:
            await self.kube_api.create(LEASES, lease, NAMESPACE)
        except AlreadyExists:
            log.debug("the lease appeared meanwhile; the next renewal takes it")
