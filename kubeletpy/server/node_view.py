"""The server handlers' view of the agent: read-only, nothing that changes a pod.

It is apart because the server is built with it before aiohttp and the handlers are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.node.stats.collector import StatsViews
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.runtime_status import ContainerStatus, PodRuntimeStatus
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.protocol import RuntimeService


class NodeView(Struct, frozen=True):
    """The queries that handlers make of the agent.

    Attributes:
        status_of: the newest API status of a pod by uid; None if none is kept.
        checks: health checks by name; empty text means healthy.
        configz: the settings as a KubeletConfiguration document.
        pod_logs_dir: podLogsDir; no log outside it is read.
        stats: resource usage on the node; None if it is not served.
        version: the Kubernetes version of the node and where it comes from, for /configz.
        allocated: the pods that use the node, with the resources allocated to them.
    """

    node_name: str
    pods: PodManager
    cache: PodStatusCache
    runtime: RuntimeService
    status_of: Callable[[str], api.PodStatus | None]
    checks: Mapping[str, Callable[[], str]]
    render_metrics: Callable[[], bytes]
    render_probe_metrics: Callable[[], bytes]
    configz: Callable[[], Mapping[str, Any]]
    pod_logs_dir: str
    stats: StatsViews | None = None
    render_slis: Callable[[], bytes] = bytes
    allocated: Callable[[], Sequence[Pod]] = tuple
    version: Callable[[], Mapping[str, str] | None] = lambda: None

    def pod(self, namespace: str, name: str, uid: str = "") -> Pod | None:
        """Return a pod by name; with ``uid`` (or that of its mirror) only if it matches."""
        found = self.pods.by_name(namespace, name)
        if found is None or (uid and self.pods.translate_uid(uid) != found.uid):
            return None
        return found

    def status(self, pod: Pod) -> api.PodStatus:
        """Return the newest status: the agent's own, else that of the object."""
        return self.status_of(pod.uid) or pod.status

    def in_runtime(self, pod: Pod) -> PodRuntimeStatus | None:
        """Return the runtime's status of a pod, or None if it has none."""
        return self.cache.status(pod.uid)

    def container(self, pod: Pod, name: str) -> ContainerStatus | None:
        """Return the newest record of a container; a running one takes precedence."""
        status = self.in_runtime(pod)
        if status is None:
            return None
        running = [each for each in status.running_containers if each.name == name]
        return running[0] if running else status.newest(name)


def declared_container(pod: Pod, name: str) -> api.Container | None:
    """Return a container of any kind in a pod's spec, or None."""
    spec: Any = pod.spec
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            if container.get("name") == name:
                found: api.Container = container
                return found
    return None
