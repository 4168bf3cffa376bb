"""The cluster's ClusterTrustBundles, followed from the first pod that projects one.

Must never keep what no pod requests, nor more than MAX_BYTES. Source: KEP-3257.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component, replace
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.kubeapi.protocol import CLUSTERTRUSTBUNDLES, KubeApi, Resource, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector, first_served
from kubeletpy.volumes.files.paths import PayloadError
from kubeletpy.volumes.projected.trust_anchors import Bundle, anchors_of, bundle_of

VERSIONS = CLUSTERTRUSTBUNDLES, replace(CLUSTERTRUSTBUNDLES, version="v1beta1")
"""The first one that the server has is followed: v1 came with 1.37."""
FIRST_ANSWER_S = 1.0
"""How long a pod waits for the first list; it is woken when that comes later."""
MAX_BYTES = 64 << 20
"""Size of all certificates together."""


class TrustBundles(Component):
    """Follows all bundles, while any pod uses one; ``on_change`` wakes those pods."""

    api: KubeApi
    rng: random.Random

    def __post_init__(self) -> None:
        self._bundles: dict[str, Bundle] = {}
        self._users: set[str] = set()
        self._starting = asyncio.Lock()
        self._reflector: Reflector | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake: Callable[[str], None] = lambda uid: None

    def on_change(self, wake: Callable[[str], None]) -> None:
        """Have ``wake(pod uid)`` called for each pod with a projection when a bundle changed."""
        self._wake = wake

    async def anchors(self, uid: str, source: Mapping[str, Any]) -> bytes:
        """The file of a pod's clusterTrustBundle source.

        Raises:
            PayloadError: nothing is selected, or the cluster has too many.
            ApiError: the bundles are not known; the pod is woken when they are.
        """
        self._users.add(uid)
        await (await self._followed()).first_answer(FIRST_ANSWER_S)
        if (size := sum(each.size for each in self._bundles.values())) > MAX_BYTES:
            raise PayloadError(
                f"the ClusterTrustBundles of this cluster have {size} bytes of certificates, more "
                f"than {MAX_BYTES}"
            )
        return anchors_of(source, self._bundles)

    def release(self, uid: str) -> None:
        """Forget a pod that has ended; stop following after the last one."""
        self._users.discard(uid)
        if not self._users:
            self._stop_watch()

    async def close(self) -> None:
        """Stop following the bundles, and wait for the watch to end."""
        task = self._task
        self._stop_watch()
        await cancel_tasks((task,))

    async def _followed(self) -> Reflector:
        async with self._starting:
            return self._reflector or self._follow(await first_served(self.api, VERSIONS))

    def _follow(self, resource: Resource) -> Reflector:
        if not self._users:
            raise Unavailable("the pods with trust bundles have ended")
        self._reflector = Reflector(
            self.api, resource, on_replace=self._replaced, on_event=self._changed, rng=self.rng
        )
        self._task = asyncio.create_task(self._reflector.run(), name="watch trust bundles")
        return self._reflector

    def _stop_watch(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = self._reflector = None
        self._bundles = {}

    def _replaced(self, items: list[JSON]) -> None:
        self._store_bundles({bundle.name: bundle for bundle in map(bundle_of, items)})

    def _changed(self, event: WatchEvent) -> None:
        bundle = bundle_of(event.object)
        others = {name: each for name, each in self._bundles.items() if name != bundle.name}
        self._store_bundles(others if event.type == "DELETED" else {**others, bundle.name: bundle})

    def _store_bundles(self, bundles: dict[str, Bundle]) -> None:
        self._bundles = bundles
        for uid in sorted(self._users):
            self._wake(uid)
