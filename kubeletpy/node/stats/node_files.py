"""Reads the usage of the machine, its daemons and its pods. Blocking: call it in a thread.

Must never fail because a file is missing: what can't be read is not shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path

from kubeletpy.base.api.quantity import whole
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, replace
from kubeletpy.base.text import number
from kubeletpy.node.stats import proc_text, usage
from kubeletpy.node.stats.disks import space_with_device
from kubeletpy.node.stats.group_files import GroupFiles, descriptors, read_text, with_kubelet_shares
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import cpu_request, cpu_shares, shares_of_container
from kubeletpy.pods.runtime_status import ContainerStatus, PodRuntimeStatus, SandboxStatus
from kubeletpy.remote.connection import listening_process

_TICKS = os.sysconf("SC_CLK_TCK")
_FILES = ("stat", "meminfo", "vmstat", "pressure/cpu", "pressure/memory", "pressure/io")


class NodeFiles(Component):
    """The machine.

    Args:
        groups: None where there are no cgroups to read.
        named: system container (kubelet, runtime, misc, pods) -> its cgroup, where known.
        pods: cgroups of all pods and of their QoS classes.
        runtime_socket: of the container runtime; the process listening there is the runtime.
        root_dir: --root-dir.
        huge_pages: bytes of huge pages, which are no available memory.
    """

    groups: GroupFiles | None
    clock: Clock
    named: Mapping[str, str]
    pods: tuple[str, ...] = ()
    runtime_socket: str = ""
    root_dir: str = "/"
    huge_pages: int = 0
    proc: Path = Path("/proc")

    def __post_init__(self) -> None:
        self._named = {name: path for name, path in self.named.items() if path}
        self._proc = str(self.proc)
        self._started_at = int(self.clock.now() * 1e9)
        self._runtime_pid = 0

    def read_node(self, *, detail: bool) -> usage.NodeReading:
        """The whole reading; ``detail`` as in GroupFiles.stats."""
        at = int(self.clock.now() * 1e9)
        texts = {name: read_text(f"{self._proc}/{name}") for name in _FILES}
        stats = proc_text.machine(texts, _TICKS, at, self.huge_pages)
        boot = proc_text.boot_time(texts["stat"])
        system = [self._daemon("kubelet", os.getpid(), boot, detail=detail)]
        if (pid := self._runtime()) > 0 or "runtime" in self._named:
            system.append(self._daemon("runtime", pid, boot, detail=detail))
        for name in ("pods", "misc"):
            if name in self._named:
                path = self._named[name]
                system.append(self._group(usage.GroupKind.SYSTEM, path, name, detail=detail))
        return usage.NodeReading(
            usage.CgroupUsage(
                usage.GroupKind.NODE, stats, path="/", created_at=boot, started_at=boot
            ),
            network=self.network("net", at),
            root=space_with_device(self.root_dir, at) if detail else None,
            limits=usage.RlimitStats(at, *task_counts(self._proc)),
            system=tuple(group for group in system if group.stats is not None),
            groups=tuple(
                self._group(usage.GroupKind.PODS, path, "", detail=detail) for path in self.pods
            ),
        )

    def network(self, directory: str, at: int) -> usage.Network | None:
        """The interfaces of ``/proc/DIRECTORY``: ``net``, or ``PID/net``."""
        found = proc_text.interfaces(read_text(f"{self._proc}/{directory}/dev"))
        if not found:
            return None
        default = "eth0"
        if all(each.name != default for each in found):
            route = read_text(f"{self._proc}/{directory}/route")
            default = proc_text.default_interface(route)
        return usage.Network(at, found, default)

    def _group(
        self, kind: usage.GroupKind, path: str, name: str, *, detail: bool
    ) -> usage.CgroupUsage:
        if self.groups is None:
            return usage.CgroupUsage(kind, None, path=path, name=name)
        begun = self.groups.made_at(path)
        stats = self.groups.stats(path, detail=detail)
        if path in self.pods:
            stats = with_kubelet_shares(stats)
        return usage.CgroupUsage(
            kind, stats, path=path, name=name, created_at=begun, started_at=begun
        )

    def _daemon(self, name: str, pid: int, boot: int, *, detail: bool) -> usage.CgroupUsage:
        """A daemon's usage, from its own cgroup or else its process: the root cgroup is shared."""
        stat = read_text(f"{self._proc}/{pid}/stat") if pid > 0 else ""
        after = proc_text.started_after_boot(stat, _TICKS)
        begun = boot + int(after * 1e9) if boot and after is not None else 0
        if pid == os.getpid():
            begun = self._started_at
        path = self._named.get(name) or self._own_group(pid)
        if path and self.groups is not None:
            stats = self.groups.stats(path, detail=detail)
            return usage.CgroupUsage(
                usage.GroupKind.SYSTEM, stats, path, name, created_at=begun, started_at=begun
            )
        status = read_text(f"{self._proc}/{pid}/status")
        at = int(self.clock.now() * 1e9)
        stats = proc_text.process(stat, status, _TICKS, at) if stat else None
        return usage.CgroupUsage(
            usage.GroupKind.SYSTEM, stats, "", name, created_at=begun, started_at=begun
        )

    def _own_group(self, pid: int) -> str:
        if self.groups is None or pid <= 0:
            return ""
        paths = proc_text.group_paths(read_text(f"{self._proc}/{pid}/cgroup"))
        controllers = ("",) if self.groups.version == 2 else ("cpuacct", "memory")
        found = {paths.get(controller, "/") for controller in controllers}
        path = found.pop()
        return "" if found or path == "/" else path

    def _runtime(self) -> int:
        """The process of the container runtime; 0 when unknown."""
        if self._runtime_pid and Path(f"{self._proc}/{self._runtime_pid}").is_dir():
            return self._runtime_pid
        self._runtime_pid = listening_process(self.runtime_socket) if self.runtime_socket else 0
        return self._runtime_pid


def task_counts(proc: str) -> tuple[int | None, int | None]:
    """How many tasks there may be on a machine, and how many there are; None: not reported.

    ``proc``: where its /proc is.
    """
    names = ("pid_max", "threads-max")
    reported = (number(read_text(f"{proc}/sys/kernel/{name}")) for name in names)
    most = min((limit for limit in reported if limit is not None), default=None)
    return most, proc_text.tasks(read_text(f"{proc}/loadavg"))


class RunningPod(Component):
    """A pod's newest ready sandbox, and its running containers, one per name."""

    status: PodRuntimeStatus

    def __post_init__(self) -> None:
        """Raises ValueError: no sandbox is ready."""
        self.ref = usage.PodRef(self.status.uid, self.status.name, self.status.namespace)
        ready = [sandbox for sandbox in self.status.sandboxes if sandbox.ready]
        self.sandbox: SandboxStatus = max(ready, key=lambda sandbox: sandbox.rank)
        newest: dict[str, ContainerStatus] = {}
        for container in self.status.running_containers:
            old = newest.get(container.name)
            if old is None or old.rank < container.rank:
                newest[container.name] = container
        self.containers = tuple(newest.values())


class PodFiles(Component):
    """Reads the cgroups and processes of pods on this machine.

    Args:
        groups: None where there are no cgroups to read.
        node: reads interfaces.
        pod_path: a pod's cgroup by uid; None when it has none of its own.
        pod: the object of a pod by uid; None when no source has it.
    """

    groups: GroupFiles | None
    node: NodeFiles
    clock: Clock
    pod_path: Callable[[str], str | None]
    pod: Callable[[str], Pod | None] = lambda uid: None

    def read_pod(
        self, pod: RunningPod, located: Mapping[str, str], *, detail: bool
    ) -> usage.PodReading:
        """One pod.

        Args:
            pod: as the runtime has it.
            located: container and sandbox id -> cgroup, for those not below their pod's.
            detail: limits, devices, processes and interfaces too.
        """
        path = self.pod_path(pod.ref.uid) or ""
        below = self.groups.containers(path) if self.groups is not None and path else located
        sandbox = usage.CgroupUsage(
            usage.GroupKind.SANDBOX,
            self._stats(below.get(pod.sandbox.id, ""), detail=detail),
            below.get(pod.sandbox.id, ""),
            pod=pod.ref,
            id=pod.sandbox.id,
            created_at=pod.sandbox.created_at,
            started_at=pod.sandbox.created_at,
        )
        group = usage.CgroupUsage(
            usage.GroupKind.POD,
            with_kubelet_shares(self._stats(path, detail=detail)),
            path,
            pod=pod.ref,
            created_at=pod.sandbox.created_at,
            started_at=pod.sandbox.created_at,
        )
        containers = [self._container(each, pod.ref, below, detail) for each in pod.containers]
        reading = usage.PodReading(pod.ref, group, sandbox, tuple(containers))
        return self._with_processes(reading, pod) if detail else reading

    def _container(
        self, status: ContainerStatus, ref: usage.PodRef, below: Mapping[str, str], detail: bool
    ) -> usage.CgroupUsage:
        path = below.get(status.id, "")
        stats = self._stats(path, detail=detail)
        if stats is not None and stats.weight is not None:
            requested = _requested_shares(self.pod(ref.uid), status)
            stats = replace(stats, shares=shares_of_container(stats.weight, requested))
        return usage.CgroupUsage(
            usage.GroupKind.CONTAINER,
            stats,
            path,
            name=status.name,
            pod=ref,
            id=status.id,
            image=status.image,
            created_at=status.created_at,
            started_at=status.started_at or status.created_at,
        )

    def _stats(self, path: str, *, detail: bool) -> usage.GroupStats | None:
        return self.groups.stats(path, detail=detail) if self.groups is not None and path else None

    def _with_processes(self, reading: usage.PodReading, pod: RunningPod) -> usage.PodReading:
        """Add what the processes in the cgroups show: their number, open files, interfaces."""
        assert reading.sandbox is not None, "it was just read"
        found: list[usage.CgroupUsage] = []
        network: usage.Network | None = None
        for group in (reading.sandbox, *reading.containers):
            if self.groups is None or not group.path:
                found.append(group)
                continue
            pids = self.groups.processes(group.path)
            counted = replace(group, processes=len(pids), descriptors=descriptors(pids))
            found.append(counted)
            if network is None and pids and not pod.sandbox.host_network:
                network = self._interfaces(self.groups, group.path, pids[0])
        known = [group.processes for group in found if group.processes is not None]
        sandbox, *containers = found
        return replace(
            reading,
            sandbox=sandbox,
            containers=tuple(containers),
            network=network,
            processes=sum(known) if known else None,
        )

    def _interfaces(self, groups: GroupFiles, path: str, pid: int) -> usage.Network | None:
        found = self.node.network(f"{pid}/net", int(self.clock.now() * 1e9))
        # the process may have ended meanwhile, and its pid been reused
        return found if pid in groups.processes(path) else None


def _requested_shares(pod: Pod | None, status: ContainerStatus) -> Iterator[int]:
    """The shares of a container's spec, then those that its runtime reports."""
    for _, container in () if pod is None else pod.all_containers():
        if pod is not None and container["name"] == status.name:
            yield cpu_shares(whole((cpu_request(pod, container) or Decimal(0)) * 1000))
    if status.resources is not None and status.resources.cpu_shares is not None:
        yield status.resources.cpu_shares
