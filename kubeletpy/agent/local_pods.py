"""The pods API on its socket: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kubeletpy.agent.outside import Outside
from kubeletpy.agent.room import Room
from kubeletpy.agent.signals import Signals
from kubeletpy.config.gates import FeatureGates
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.status.manager import ApiStatusManager


def local_pods(
    outside: Outside,
    gates: FeatureGates,
    signals: Signals,
    *,
    root: Path,
    pods: PodManager,
    statuses: ApiStatusManager,
    ready: Callable[[], bool],
) -> tuple[list[Room], Sequence[Callable[[], str]]]:
    """The room, and what says why the API is not served; none while its gate is off.

    ``ready``: whether all pod sources have delivered.
    """
    if not (outside.sockets and gates.enabled("PodsAPI")):
        return [], ()
    from kubeletpy.pods_api.server import PodsServer  # gRPC is not needed without it

    server = PodsServer(
        root / "pods-api",
        outside.metrics.pods_api,
        ready=ready,
        pods=pods.pods,
        pod=pods.get,
        status=statuses.get_status,
        known=statuses.uids,
        shown=statuses.shown,
    )
    signals.status_changed.connect(server.changed)
    return [Room(server, start=server.start, close=server.close)], (server.problem,)
