"""What the pod resources API says, from pods and what they have. Pure.

Source: docs/reference/behaviour-resources.md, rw; docs/reference/pod-resources-v1.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from kubeletpy.api import types as api
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.remote.generated import podresources_pb2 as v1
from kubeletpy.remote.generated import podresources_v1alpha1_pb2 as v1alpha1

Devices = Mapping[str, Mapping[str, Sequence[int]]]
"""Resource -> device id -> the NUMA nodes that it is near to."""


class Held(Protocol):
    """Who knows what devices there are, and who has them."""

    def devices_of(self, uid: str, container: str) -> Devices:
        """Those of one container."""
        ...

    def all_devices_of(self, uid: str) -> Mapping[str, Devices]:
        """Those of each container of a pod."""
        ...

    def healthy_devices(self) -> Devices:
        """Those that can be given, or are."""
        ...


def list_v1(pods: Iterable[Pod], held: Held) -> v1.ListPodResourcesResponse:
    """Of all active pods."""
    found = [pod_v1(pod, held) for pod in pods if not pod.is_terminal_in_api]
    return v1.ListPodResourcesResponse(pod_resources=found)


def pod_v1(pod: Pod, held: Held) -> v1.PodResources:
    """Of one pod: its sidecars, then its containers."""
    return v1.PodResources(
        name=pod.name,
        namespace=pod.namespace,
        containers=[
            v1.ContainerResources(
                name=each["name"],
                devices=devices_v1(held.devices_of(pod.uid, each["name"])),
            )
            for each in _lasting(pod)
        ],
    )


def allocatable_v1(held: Held) -> v1.AllocatableResourcesResponse:
    """What could be given on this node."""
    return v1.AllocatableResourcesResponse(devices=devices_v1(held.healthy_devices()))


def devices_v1(devices: Devices) -> list[v1.ContainerDevices]:
    """An entry for each device and node it is near to; one without nodes if it is near none."""
    found = []
    for resource, near in sorted(devices.items()):
        for each, nodes in sorted(near.items()):
            if not nodes:
                found.append(v1.ContainerDevices(resource_name=resource, device_ids=[each]))
            for node in nodes:
                at = v1.TopologyInfo(nodes=[v1.NUMANode(ID=node)])
                entry = v1.ContainerDevices(resource_name=resource, device_ids=[each], topology=at)
                found.append(entry)
    return found


def list_v1alpha1(pods: Iterable[Pod], held: Held) -> v1alpha1.ListPodResourcesResponse:
    """Of all pods, as long as they are known; devices of a resource in one entry."""
    found = []
    for pod in pods:
        has = held.all_devices_of(pod.uid)
        containers = [
            v1alpha1.ContainerResources(
                name=each["name"],
                devices=[
                    v1alpha1.ContainerDevices(resource_name=resource, device_ids=sorted(near))
                    for resource, near in sorted(has.get(each["name"], {}).items())
                ],
            )
            for each in pod.containers
        ]
        found.append(
            v1alpha1.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)
        )
    return v1alpha1.ListPodResourcesResponse(pod_resources=found)


def _lasting(pod: Pod) -> Iterator[api.Container]:
    yield from (each for each in pod.init_containers if is_sidecar(each))
    yield from pod.containers
