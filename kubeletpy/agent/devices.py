"""Device plugins: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kubeletpy.agent.component import Component, Task
from kubeletpy.agent.context import BuildContext
from kubeletpy.agent.pod_state import PodState
from kubeletpy.base.api.types import ResourceStatus
from kubeletpy.config.gates import FeatureGates
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.devices.device_manager import DeviceManager
from kubeletpy.resources.devices.plugin import over_socket


def build_devices(context: BuildContext, state: PodState) -> tuple[DeviceManager, Component]:
    """The manager of devices, and its component."""
    outside, signals = context.outside, context.signals
    topology = outside.machine.topology
    devices = DeviceManager(
        Path(context.flags.device_plugins_dir),
        outside.metrics.devices,
        nodes=tuple(topology.nodes) or (0,) if topology is not None else (0,),
        pod_runs=lambda uid: uid in state.cache.running(),
        is_active=state.uses_node,
        node_changed=signals.node_changed,
        pod_changed=signals.pod_changed,
        open_plugin=outside.device_plugins or over_socket,
        listen=outside.sockets,
    )
    component = Component(
        devices,
        (Task("devices", devices.plugins.run),),
        start=devices.start,
        close=devices.close,
    )
    return devices, component


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
