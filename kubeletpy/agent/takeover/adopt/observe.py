"""Observes a node that was taken over: through the API, the agent's socket and systemd."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Callable, Mapping, Sequence

from kubeletpy.agent.takeover.adopt.host import Host
from kubeletpy.agent.takeover.adopt.watch import (
    PodSeen,
    WatchObservation,
    is_ready,
    pods_seen,
    renewed_at,
)
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.tasks import run_together
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import LEASES, NODES, PODS, KubeApi
from kubeletpy.node.lease import NAMESPACE

ANSWER_S = 10.0
"""Seconds in which the API server must answer."""

Refused = Callable[[Sequence[str]], tuple[str, ...]]
"""Returns those pods (namespace/name) whose status the API does not accept, with the reason."""


class NodeObserver:
    """Observes one node."""

    def __init__(
        self, kube_api: KubeApi, node_name: str, host: Host, clock: Clock, refused: Refused
    ) -> None:
        self._kube_api, self._name, self._host = kube_api, node_name, host
        self._clock, self._refused = clock, refused
        self._last: tuple[float, JSON, JSON, Mapping[str, PodSeen]] = (0.0, {}, {}, {})

    async def pods(self) -> Mapping[str, PodSeen]:
        """The pods of the node. Raises ApiError or TimeoutError."""
        async with asyncio.timeout(ANSWER_S):
            listed = await self._kube_api.list(PODS, field_selector=f"spec.nodeName={self._name}")
        return pods_seen(listed.get("items") or ())

    async def observe(self) -> WatchObservation:
        """Everything that is watched. Raises HostError."""
        unit = await asyncio.to_thread(self._host.unit)
        try:
            async with asyncio.timeout(ANSWER_S):
                node, lease, pods = await run_together(
                    self._kube_api.get(NODES, self._name),
                    self._kube_api.get(LEASES, self._name, NAMESPACE),
                    self.pods(),
                )
            self._last = self._clock.now(), node, lease, pods
        except (ApiError, TimeoutError):
            pass  # the last answer stays; its age is judged
        answered, node, lease, pods = self._last
        return WatchObservation(
            self._clock.now(),
            unit.running,
            unit.restarts,
            is_ready(node),
            renewed_at(lease),
            pods,
            answered,
            await asyncio.to_thread(self._refused, [each.key for each in pods.values()]),
        )


async def is_healthy(address: str, port: int) -> bool:
    """Whether a program answers the kubelet's health check; port 0: it has none."""
    return not port or await asyncio.to_thread(_healthy, address, port)


def _healthy(address: str, port: int) -> bool:
    connection = http.client.HTTPConnection(address, port, timeout=2.0)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
