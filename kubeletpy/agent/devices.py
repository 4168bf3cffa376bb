"""Device plugins, and who tells others of devices: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kubeletpy.agent.outside import Outside
from kubeletpy.agent.room import Room, Task
from kubeletpy.agent.signals import Signals
from kubeletpy.config import NodeFlags
from kubeletpy.devices.manager import DeviceManager
from kubeletpy.devices.plugin import over_socket
from kubeletpy.pod_resources.server import PodResourcesServer
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.status_cache import PodStatusCache


def build_devices(
    flags: NodeFlags,
    outside: Outside,
    signals: Signals,
    cache: PodStatusCache,
    *,
    nodes: Sequence[int],
    is_active: Callable[[str], bool],
) -> tuple[DeviceManager, Room]:
    """Args:
    nodes: ids of the machine's NUMA nodes.
    is_active: whether a pod uses the node.
    """
    devices = DeviceManager(
        Path(flags.device_plugins_dir),
        outside.metrics.devices,
        nodes=nodes,
        pod_runs=lambda uid: uid in cache.running(),
        is_active=is_active,
        node_changed=signals.node_changed,
        pod_changed=signals.pod_changed,
        open_plugin=outside.device_plugins or over_socket,
        listen=outside.sockets,
    )
    room = Room(
        devices,
        (Task("devices", devices.run),),
        start=devices.start,
        keep=lambda found: devices.release(found.known),
        close=devices.close,
    )
    return devices, room


def pod_resources(
    outside: Outside,
    root: Path,
    devices: DeviceManager,
    cache: PodStatusCache,
    *,
    active: Callable[[], Sequence[Pod]],
    pods: Callable[[], Sequence[Pod]],
    sources_ready: Callable[[], bool],
) -> list[Room]:
    """Args:
    root: the kubelet's root directory.
    active: pods that use the node.
    pods: all pods that are asked for.
    """
    if not outside.sockets:
        return []

    def release() -> None:
        if sources_ready():
            devices.release({pod.uid for pod in active()} | cache.running())

    server = PodResourcesServer(
        root / "pod-resources",
        outside.metrics.pod_resources,
        devices,
        active=active,
        pods=pods,
        release=release,
    )
    return [Room(server, start=server.start, close=server.close)]
