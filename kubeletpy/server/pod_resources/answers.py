"""Answers of the pod resources API, from pods and their allocated resources. Pure.

Source: docs/reference/behaviour-resources.md, rw; docs/reference/pod-resources-v1.json.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.remote.generated import podresources_pb2 as v1
from kubeletpy.remote.generated import podresources_v1alpha1_pb2 as v1alpha1
from kubeletpy.resources.dra.model import ContainerClaim
from kubeletpy.resources.placement.state import Block

DevicesHeld = Mapping[str, Mapping[str, Sequence[int]]]
"""Resource -> device id -> the NUMA nodes that it is near."""


class Devices(Protocol):
    """Lists the devices of the node, and those of each container."""

    def by_container(self) -> Mapping[tuple[str, str], DevicesHeld]:
        """Return the devices of each container, by uid of its pod and its name."""
        ...

    def healthy_devices(self) -> DevicesHeld:
        """Return the devices that are or can be allocated."""
        ...


class Cpus(Protocol):
    """Lists the CPUs of containers."""

    def own_cpus(self, pod: Pod, container: str) -> Collection[int]:
        """Return the CPUs that are exclusive to a container."""
        ...

    def pool_of(self, uid: str) -> Collection[int]:
        """Return the CPUs of a pod that is placed as one."""
        ...

    def allocatable(self) -> Collection[int]:
        """Return the CPUs that are, or can be, exclusive to a container."""
        ...


class Memory(Protocol):
    """Lists the memory of containers."""

    def own_blocks(self, pod: Pod, container: str) -> Sequence[Block]:
        """Return the memory booked for a container."""
        ...

    def pool_of(self, uid: str) -> Sequence[Block]:
        """Return the memory booked for a pod that is placed as one."""
        ...

    def allocatable(self) -> Sequence[Block]:
        """Return the memory that is, or can be, booked."""
        ...


class PreparedClaims(Protocol):
    """Lists the prepared resource claims of containers."""

    def container_claims(self, pod: Pod, container: api.Container) -> Sequence[ContainerClaim]:
        """Return the claims that a container uses."""
        ...


class NodeAllocations(Struct, frozen=True):
    """The managers that allocate the node's resources."""

    devices: Devices
    cpus: Cpus
    memory: Memory
    claims: PreparedClaims


def list_v1(pods: Iterable[Pod], allocations: NodeAllocations) -> v1.ListPodResourcesResponse:
    """Return the answer of v1 for all active pods."""
    held = allocations.devices.by_container()
    found = [_pod_v1(pod, allocations, held) for pod in pods if not pod.is_terminal_in_api]
    return v1.ListPodResourcesResponse(pod_resources=found)


def pod_v1(pod: Pod, allocations: NodeAllocations) -> v1.PodResources:
    """Return the resources of one pod: its sidecars, then its containers."""
    return _pod_v1(pod, allocations, allocations.devices.by_container())


def _pod_v1(
    pod: Pod, allocations: NodeAllocations, held: Mapping[tuple[str, str], DevicesHeld]
) -> v1.PodResources:
    return v1.PodResources(
        name=pod.name,
        namespace=pod.namespace,
        cpu_ids=sorted(allocations.cpus.pool_of(pod.uid)),
        memory=memory_v1(allocations.memory.pool_of(pod.uid)),
        containers=[
            v1.ContainerResources(
                name=each["name"],
                devices=devices_v1(held.get((pod.uid, each["name"]), {})),
                cpu_ids=sorted(allocations.cpus.own_cpus(pod, each["name"])),
                memory=memory_v1(allocations.memory.own_blocks(pod, each["name"])),
                dynamic_resources=claims_v1(allocations.claims.container_claims(pod, each)),
            )
            for each in _lasting(pod)
        ],
    )


def allocatable_v1(allocations: NodeAllocations) -> v1.AllocatableResourcesResponse:
    """Return the resources that can be allocated on this node."""
    return v1.AllocatableResourcesResponse(
        devices=devices_v1(allocations.devices.healthy_devices()),
        cpu_ids=sorted(allocations.cpus.allocatable()),
        memory=memory_v1(allocations.memory.allocatable()),
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
    found, held = [], allocations.devices.by_container()
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
