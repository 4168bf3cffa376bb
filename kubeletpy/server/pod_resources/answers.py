"""Answers of the pod resources API, from pods and their allocated resources. Pure.

Source: docs/reference/behaviour-resources.md, rw; docs/reference/pod-resources-v1.json.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.remote.generated import podresources_pb2 as v1
from kubeletpy.remote.generated import podresources_v1alpha1_pb2 as v1alpha1
from kubeletpy.resources.dra.model import ContainerClaim
from kubeletpy.resources.placement.state import Block

DevicesHeld = Mapping[str, Mapping[str, Sequence[int]]]
"""Resource -> device id -> the NUMA nodes that it is near."""


class NodeAllocations(Struct, frozen=True):
    """The functions of the managers that allocate the node's resources.

    Attributes:
        devices: returns the devices of each container, by uid of its pod and its name.
        healthy_devices: returns the devices that are or can be allocated.
        own_cpus, own_memory: return what is exclusive to a container of a pod, by its name.
        pool_cpus, pool_memory: return what a pod has that is placed as one, by its uid.
        allocatable_cpus, allocatable_memory: return what is, or can be, exclusive to a container.
        claims: returns the prepared resource claims that a container uses.
    """

    devices: Callable[[], Mapping[tuple[str, str], DevicesHeld]]
    healthy_devices: Callable[[], DevicesHeld]
    own_cpus: Callable[[Pod, str], Collection[int]]
    pool_cpus: Callable[[str], Collection[int]]
    allocatable_cpus: Callable[[], Collection[int]]
    own_memory: Callable[[Pod, str], Sequence[Block]]
    pool_memory: Callable[[str], Sequence[Block]]
    allocatable_memory: Callable[[], Sequence[Block]]
    claims: Callable[[Pod, api.Container], Sequence[ContainerClaim]]


def list_v1(pods: Iterable[Pod], allocations: NodeAllocations) -> v1.ListPodResourcesResponse:
    """Return the answer of v1 for all active pods."""
    held = allocations.devices()
    found = [_pod_v1(pod, allocations, held) for pod in pods if not pod.is_terminal_in_api]
    return v1.ListPodResourcesResponse(pod_resources=found)


def pod_v1(pod: Pod, allocations: NodeAllocations) -> v1.PodResources:
    """Return the resources of one pod: its sidecars, then its containers."""
    return _pod_v1(pod, allocations, allocations.devices())


def _pod_v1(
    pod: Pod, allocations: NodeAllocations, held: Mapping[tuple[str, str], DevicesHeld]
) -> v1.PodResources:
    return v1.PodResources(
        name=pod.name,
        namespace=pod.namespace,
        cpu_ids=sorted(allocations.pool_cpus(pod.uid)),
        memory=memory_v1(allocations.pool_memory(pod.uid)),
        containers=[
            v1.ContainerResources(
                name=each["name"],
                devices=devices_v1(held.get((pod.uid, each["name"]), {})),
                cpu_ids=sorted(allocations.own_cpus(pod, each["name"])),
                memory=memory_v1(allocations.own_memory(pod, each["name"])),
                dynamic_resources=claims_v1(allocations.claims(pod, each)),
            )
            for each in _lasting(pod)
        ],
    )


def allocatable_v1(allocations: NodeAllocations) -> v1.AllocatableResourcesResponse:
    """Return the resources that can be allocated on this node."""
    return v1.AllocatableResourcesResponse(
        devices=devices_v1(allocations.healthy_devices()),
        cpu_ids=sorted(allocations.allocatable_cpus()),
        memory=memory_v1(allocations.allocatable_memory()),
    )


def memory_v1(blocks: Iterable[Block]) -> list[v1.ContainerMemory]:
    """Return an entry for each block, with all its nodes."""
    return [
        v1.ContainerMemory(
            memory_type=block.type,
            size=block.size,
            topology=v1.TopologyInfo(nodes=[v1.NUMANode(ID=node) for node in block.nodes or ()]),
        )
        for block in blocks
    ]


def claims_v1(claims: Iterable[ContainerClaim]) -> list[v1.DynamicResource]:
    """Return an entry for each claim, with an entry for each of its devices."""
    return [
        v1.DynamicResource(
            claim_name=claim.name,
            claim_namespace=claim.namespace,
            claim_resources=[
                v1.ClaimResource(
                    cdi_devices=[v1.CDIDevice(name=name) for name in device.cdi],
                    driver_name=driver,
                    pool_name=device.pool,
                    device_name=device.name,
                    share_id=device.share,
                )
                for driver, devices in claim.devices.items()
                for device in devices
            ],
        )
        for claim in claims
    ]


def devices_v1(devices: DevicesHeld) -> list[v1.ContainerDevices]:
    """Return an entry for each device and node that it is near, or one without a node."""
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


def list_v1alpha1(
    pods: Iterable[Pod], allocations: NodeAllocations
) -> v1alpha1.ListPodResourcesResponse:
    """Return the answer of v1alpha1 for all known pods; a resource's devices share an entry."""
    found, held = [], allocations.devices()
    for pod in pods:
        containers = [
            v1alpha1.ContainerResources(
                name=each["name"],
                devices=[
                    v1alpha1.ContainerDevices(resource_name=resource, device_ids=sorted(near))
                    for resource, near in sorted(held.get((pod.uid, each["name"]), {}).items())
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
