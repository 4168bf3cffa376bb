"""The source *api*: the pods that the cluster has bound to this node, and the mirrors.

Lists once, then watches; hands on everything as it comes. Must never list another node's pods:
the Node authorizer would refuse.
"""

from __future__ import annotations

import logging
import random
from typing import Any, Protocol, cast

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.protocol import PODS, KubeApi, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector
from kubeletpy.pods.pod import SOURCE_API

logger = logging.getLogger(__name__)


class Deliveries(Protocol):
    """The receiver of what sources deliver: the sync loop."""

    def deliver(self, source: str, objects: list[api.Pod]) -> None:
        """Take a source's full set."""
        ...

    def deliver_event(self, source: str, event_type: str, obj: api.Pod) -> None:
        """Take one change of a source."""
        ...

    def unreadable(self, source: str, uid: str, problem: str) -> None:
        """Report a delivered pod that keeps its last good version, and what is wrong now."""
        ...


class ApiSource:
    """Follows ``spec.nodeName={node}``."""

    def __init__(
        self,
        kube_api: KubeApi,
        node_name: str,
        deliveries: Deliveries,
        *,
        rng: random.Random | None = None,
    ) -> None:
        self._deliveries = deliveries
        self._node_name = node_name
        self.reflector = Reflector(
            kube_api,
            PODS,
            on_replace=self._replace,
            on_event=self._event,
            field_selector=f"spec.nodeName={node_name}",
            rng=rng,
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        await self.reflector.run()

    def _replace(self, objects: list[Any]) -> None:
        self._deliveries.deliver(SOURCE_API, [pod for pod in objects if self._is_ours(pod)])

    def _is_ours(self, pod: Any) -> bool:
        """Whether a pod is bound to this node: an API that ignores the selector has all pods."""
        spec = pod.get("spec")
        node = spec.get("nodeName") if isinstance(spec, dict) else self._node_name
        if node == self._node_name:
            return True
        metadata = pod["metadata"]
        about = {"pod": metadata.get("name"), "namespace": metadata.get("namespace"), "node": node}
        logger.warning("ignoring a pod that is not bound to this node", extra=about)
        return False

    def _event(self, event: WatchEvent) -> None:
        if event.type != "DELETED" and not self._is_ours(event.object):
            return
        self._deliveries.deliver_event(SOURCE_API, event.type, cast("api.Pod", event.object))
