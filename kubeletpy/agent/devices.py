"""Device plugins, and the API that shows their devices to others: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.agent.outside import Outside
from kubeletpy.agent.room import Room, Task
from kubeletpy.agent.signals import Signals
from kubeletpy.api.types import ResourceStatus
from kubeletpy.config import NodeFlags
from kubeletpy.config.gates import FeatureGates
from kubeletpy.devices.manager import DeviceManager
from kubeletpy.devices.plugin import over_socket
from kubeletpy.dra.manager import ClaimManager
from kubeletpy.placement.cpu_manager import CpuManager
from kubeletpy.placement.memory_manager import MemoryManager
from kubeletpy.pod_resources.server import PodResourcesServer
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.status_cache import PodStatusCache

if TYPE_CHECKING:
    from kubeletpy.pod_resources.answers import Given


def build_devices(
    flags: NodeFlags,
    outside: Outside,
    signals: Signals,
    cache: PodStatusCache,
    *,
    is_active: Callable[[str], bool],
) -> tuple[DeviceManager, Room]:
    """``is_active``: whether a pod uses the node."""
    topology = outside.machine.topology
    devices = DeviceManager(
        Path(flags.device_plugins_dir),
        outside.metrics.devices,
        nodes=tuple(topology.nodes) or (0,) if topology is not None else (0,),
        pod_runs=lambda uid: uid in cache.running(),
        is_active=is_active,
        node_changed=signals.node_changed,
        pod_changed=signals.pod_changed,
        open_plugin=outside.device_plugins or over_socket,
        listen=outside.sockets,
    )
    room = Room(
        devices,
        (Task("devices", devices.plugins.run),),
        start=devices.start,
        close=devices.close,
    )
    return devices, room


def device_health(
    gates: FeatureGates,
    devices: DeviceManager,
    of_claims: Callable[[Pod], Mapping[str, list[ResourceStatus]]],
) -> Callable[[Pod], dict[str, list[ResourceStatus]]]:
    """allocatedResourcesStatus of each container: plugin devices first, then those of claims."""

    def health(pod: Pod) -> dict[str, list[ResourceStatus]]:
        if not gates.enabled("ResourceHealthStatus"):
            return {}
        found = {name: list(each) for name, each in devices.resources_status(pod.uid).items()}
        for name, each in of_claims(pod).items():
            found.setdefault(name, []).extend(each)
        return found

    return health


def pod_resources(
    outside: Outside,
    root: Path,
    devices: DeviceManager,
    *,
    cpus: CpuManager,
    memory: MemoryManager,
    claims: ClaimManager,
    active: Callable[[], Sequence[Pod]],
    pods: Callable[[], Sequence[Pod]],
    release: Callable[[], None],
) -> tuple[list[Room], Sequence[Callable[[], str]]]:
    """The rooms, and the functions that say why the API is not served.

    Args:
    root: the kubelet's root directory.
    active: pods that use the node.
    pods: all desired pods.
    release: takes back what other pods hold.
    """
    if not outside.sockets:
        return [], ()

    def sources() -> Given:
        from kubeletpy.pod_resources.answers import Given

        return Given(devices, cpus, memory, claims)

    server = PodResourcesServer(
        root / "pod-resources",
        outside.metrics.pod_resources,
        sources,
        active=active,
        pods=pods,
        release=release,
    )
    return [Room(server, start=server.start, close=server.close)], (server.problem,)
