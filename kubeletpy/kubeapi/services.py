"""The services of the cluster, followed with one watch, for the environment of containers.

Keeps only what the variables need. Must never keep a container from starting because of a malformed
service.
"""

from __future__ import annotations

import random
from typing import cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import SERVICES, KubeApi, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector

FIRST_LIST_S = 2.0
"""How long a reader waits for the first list."""
_MASTER = ("default", "kubernetes")


class ServiceList:
    """The cluster's services."""

    def __init__(self, kube_api: KubeApi, *, rng: random.Random | None = None) -> None:
        self._services: dict[str, dict[str, api.Service]] = {}
        self._reflector = Reflector(
            kube_api, SERVICES, on_replace=self._replaced, on_event=self._changed, rng=rng
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._reflector.run()

    async def of_namespace(self, namespace: str, *, wait: bool = True) -> list[api.Service] | None:
        """The services of a namespace, and default/kubernetes; None when never listed.

        ``wait``: wait a short while for the first list.
        """
        if not (wait or self._reflector.synced.is_set()):
            return None
        try:
            await self._reflector.first_answer(FIRST_LIST_S)
        except ApiError:
            return None
        found = list(self._services.get(namespace, {}).values())
        master = self._services.get(_MASTER[0], {}).get(_MASTER[1])
        if namespace != _MASTER[0] and master is not None:
            found.append(master)
        return found

    def _replaced(self, items: list[JSON]) -> None:
        self._services = {}
        for item in items:
            self._store_service(item)

    def _changed(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            metadata = event.object["metadata"]
            namespace = metadata.get("namespace", "")
            self._services.get(namespace, {}).pop(metadata["name"], None)
        else:
            self._store_service(event.object)

    def _store_service(self, item: JSON) -> None:
        metadata, spec = item["metadata"], item.get("spec")
        if not isinstance(spec, dict):
            return
        kept = {
            "metadata": {"name": metadata["name"], "namespace": metadata.get("namespace", "")},
            "spec": {k: spec[k] for k in ("clusterIP", "clusterIPs", "ports", "type") if k in spec},
        }
        by_name = self._services.setdefault(kept["metadata"]["namespace"], {})
        by_name[metadata["name"]] = cast(api.Service, kept)
