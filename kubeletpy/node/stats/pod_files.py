"""Reads a pod's cgroups and processes. Blocking: call it in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal

from kubeletpy.base.api.quantity import whole
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import replace
from kubeletpy.node.stats.group_files import GroupFiles, descriptors, with_kubelet_shares
from kubeletpy.node.stats.node_files import NodeFiles
from kubeletpy.node.stats.usage import (
    CgroupUsage,
    GroupKind,
    GroupStats,
    Network,
    PodReading,
    PodRef,
)
from kubeletpy.pods.cgroup_units import cpu_shares, shares_of_container
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import cpu_request
from kubeletpy.pods.runtime_status import ContainerStatus, PodRuntimeStatus, SandboxStatus


class RunningPod:
    """A pod's newest ready sandbox, and its running containers, one per name."""

    def __init__(self, status: PodRuntimeStatus) -> None:
        """Raises ValueError: no sandbox is ready."""
        self.ref = PodRef(status.uid, status.name, status.namespace)
        ready = [sandbox for sandbox in status.sandboxes if sandbox.ready]
        self.sandbox: SandboxStatus = max(ready, key=lambda sandbox: sandbox.rank)
        newest: dict[str, ContainerStatus] = {}
        for container in status.running_containers:
            old = newest.get(container.name)
            if old is None or old.rank < container.rank:
                newest[container.name] = container
        self.containers = tuple(newest.values())


class PodFiles:
    """Pods on this machine.

    Args:
        groups: None where there are no cgroups to read.
        node: reads interfaces.
        pod_path: a pod's cgroup by uid; None when it has none of its own.
        pod: the object of a pod by uid; None when no source has it.
    """

    def __init__(
        self,
        groups: GroupFiles | None,
        node: NodeFiles,
        clock: Clock,
        pod_path: Callable[[str], str | None],
        pod: Callable[[str], Pod | None] = lambda uid: None,
    ) -> None:
        self._groups = groups
        self._node = node
        self._clock = clock
        self._pod_path = pod_path
        self._pod = pod

    def read_pod(self, pod: RunningPod, located: Mapping[str, str], *, detail: bool) -> PodReading:
        """One pod.

        Args:
            pod: as the runtime has it.
            located: container and sandbox id -> cgroup, for those not below their pod's.
            detail: limits, devices, processes and interfaces too.
        """
        path = self._pod_path(pod.ref.uid) or ""
        below = self._groups.containers(path) if self._groups is not None and path else located
        sandbox = CgroupUsage(
            GroupKind.SANDBOX,
            self._stats(below.get(pod.sandbox.id, ""), detail=detail),
            below.get(pod.sandbox.id, ""),
            pod=pod.ref,
            id=pod.sandbox.id,
            created_at=pod.sandbox.created_at,
            started_at=pod.sandbox.created_at,
        )
        group = CgroupUsage(
            GroupKind.POD,
            with_kubelet_shares(self._stats(path, detail=detail)),
            path,
            pod=pod.ref,
            created_at=pod.sandbox.created_at,
            started_at=pod.sandbox.created_at,
        )
        containers = [self._container(each, pod.ref, below, detail) for each in pod.containers]
        reading = PodReading(pod.ref, group, sandbox, tuple(containers))
        return self._with_processes(reading, pod) if detail else reading

    def _container(
        self, status: ContainerStatus, ref: PodRef, below: Mapping[str, str], detail: bool
    ) -> CgroupUsage:
        path = below.get(status.id, "")
        stats = self._stats(path, detail=detail)
        if stats is not None and stats.weight is not None:
            requested = _requested_shares(self._pod(ref.uid), status)
            stats = replace(stats, shares=shares_of_container(stats.weight, requested))
        return CgroupUsage(
            GroupKind.CONTAINER,
            stats,
            path,
            name=status.name,
            pod=ref,
            id=status.id,
            image=status.image,
            created_at=status.created_at,
            started_at=status.started_at or status.created_at,
        )

    def _stats(self, path: str, *, detail: bool) -> GroupStats | None:
        return (
            self._groups.stats(path, detail=detail) if self._groups is not None and path else None
        )

    def _with_processes(self, reading: PodReading, pod: RunningPod) -> PodReading:
        """Add what the processes in the cgroups show: their number, open files, interfaces."""
        assert reading.sandbox is not None, "it was just read"
        found: list[CgroupUsage] = []
        network: Network | None = None
        for group in (reading.sandbox, *reading.containers):
            if self._groups is None or not group.path:
                found.append(group)
                continue
            pids = self._groups.processes(group.path)
            counted = replace(group, processes=len(pids), descriptors=descriptors(pids))
            found.append(counted)
            if network is None and pids and not pod.sandbox.host_network:
                network = self._interfaces(self._groups, group.path, pids[0])
        known = [group.processes for group in found if group.processes is not None]
        sandbox, *containers = found
        return replace(
            reading,
            sandbox=sandbox,
            containers=tuple(containers),
            network=network,
            processes=sum(known) if known else None,
        )

    def _interfaces(self, groups: GroupFiles, path: str, pid: int) -> Network | None:
        found = self._node.network(f"{pid}/net", int(self._clock.now() * 1e9))
        # the process may have ended meanwhile, and its pid been reused
        return found if pid in groups.processes(path) else None


def _requested_shares(pod: Pod | None, status: ContainerStatus) -> Iterator[int]:
    """The shares of a container's spec, then those that its runtime reports."""
    for _, container in () if pod is None else pod.all_containers():
        if pod is not None and container["name"] == status.name:
            yield cpu_shares(whole((cpu_request(pod, container) or Decimal(0)) * 1000))
    if status.resources is not None and status.resources.cpu_shares is not None:
        yield status.resources.cpu_shares
