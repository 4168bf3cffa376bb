"""Reads the usage of the whole machine and its daemons. Blocking: call it in a thread.

Must never fail because a file is missing: what can't be read is not shown.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from kubeletpy.base.clock import Clock
from kubeletpy.base.text import number
from kubeletpy.node.stats import proc_text
from kubeletpy.node.stats.disks import space_with_device
from kubeletpy.node.stats.group_files import GroupFiles, read_text, with_kubelet_shares
from kubeletpy.node.stats.usage import CgroupUsage, GroupKind, Network, NodeReading, RlimitStats

_TICKS = os.sysconf("SC_CLK_TCK")
_FILES = ("stat", "meminfo", "vmstat", "pressure/cpu", "pressure/memory", "pressure/io")
_INIT = 1


class NodeFiles:
    """The machine.

    Args:
        groups: None where there are no cgroups to read.
        named: system container (kubelet, runtime, misc, pods) -> its cgroup, where known.
        pods: cgroups of all pods and of their QoS classes.
        runtime_socket: of the container runtime; the process listening there is the runtime.
        root_dir: --root-dir.
        huge_pages: bytes of huge pages, which are no available memory.
    """

    def __init__(
        self,
        groups: GroupFiles | None,
        clock: Clock,
        *,
        named: Mapping[str, str],
        pods: tuple[str, ...] = (),
        runtime_socket: str = "",
        root_dir: str = "/",
        huge_pages: int = 0,
        proc: Path = Path("/proc"),
    ) -> None:
        self._groups = groups
        self._clock = clock
        self._named = {name: path for name, path in named.items() if path}
        self._pods = pods
        self._socket = runtime_socket
        self._root = root_dir
        self._huge_pages = huge_pages
        self._proc = str(proc)
        self._started_at = int(clock.now() * 1e9)
        self._runtime_pid = 0

    def read_node(self, *, detail: bool) -> NodeReading:
        """The whole reading; ``detail`` as in GroupFiles.stats."""
        at = int(self._clock.now() * 1e9)
        texts = {name: read_text(f"{self._proc}/{name}") for name in _FILES}
        stats = proc_text.machine(texts, _TICKS, at, self._huge_pages)
        boot = proc_text.boot_time(texts["stat"])
        system = [self._daemon("kubelet", os.getpid(), boot, detail=detail)]
        if (pid := self._runtime()) > 0 or "runtime" in self._named:
            system.append(self._daemon("runtime", pid, boot, detail=detail))
        for name in ("pods", "misc"):
            if name in self._named:
                path = self._named[name]
                system.append(self._group(GroupKind.SYSTEM, path, name, detail=detail))
        return NodeReading(
            CgroupUsage(GroupKind.NODE, stats, path="/", created_at=boot, started_at=boot),
            network=self.network("net", at),
            root=space_with_device(self._root, at) if detail else None,
            limits=RlimitStats(at, *task_counts(self._proc)),
            system=tuple(group for group in system if group.stats is not None),
            groups=tuple(
                self._group(GroupKind.PODS, path, "", detail=detail) for path in self._pods
            ),
        )

    def network(self, directory: str, at: int) -> Network | None:
        """The interfaces of ``/proc/DIRECTORY``: ``net``, or ``PID/net``."""
        found = proc_text.interfaces(read_text(f"{self._proc}/{directory}/dev"))
        if not found:
            return None
        default = "eth0"
        if all(each.name != default for each in found):
            route = read_text(f"{self._proc}/{directory}/route")
            default = proc_text.default_interface(route)
        return Network(at, found, default)

    def _group(self, kind: GroupKind, path: str, name: str, *, detail: bool) -> CgroupUsage:
        if self._groups is None:
            return CgroupUsage(kind, None, path=path, name=name)
        begun = self._groups.made_at(path)
        stats = self._groups.stats(path, detail=detail)
        if path in self._pods:
            stats = with_kubelet_shares(stats)
        return CgroupUsage(kind, stats, path=path, name=name, created_at=begun, started_at=begun)

    def _daemon(self, name: str, pid: int, boot: int, *, detail: bool) -> CgroupUsage:
        """A daemon's usage, from its own cgroup or else its process: the root cgroup is shared."""
        stat = read_text(f"{self._proc}/{pid}/stat") if pid > 0 else ""
        after = proc_text.started_after_boot(stat, _TICKS)
        begun = boot + int(after * 1e9) if boot and after is not None else 0
        if pid == os.getpid():
            begun = self._started_at
        path = self._named.get(name) or self._own_group(pid)
        if path and self._groups is not None:
            stats = self._groups.stats(path, detail=detail)
            return CgroupUsage(
                GroupKind.SYSTEM, stats, path, name, created_at=begun, started_at=begun
            )
        status = read_text(f"{self._proc}/{pid}/status")
        at = int(self._clock.now() * 1e9)
        stats = proc_text.process(stat, status, _TICKS, at) if stat else None
        return CgroupUsage(GroupKind.SYSTEM, stats, "", name, created_at=begun, started_at=begun)

    def _own_group(self, pid: int) -> str:
        if self._groups is None or pid <= 0:
            return ""
        paths = proc_text.group_paths(read_text(f"{self._proc}/{pid}/cgroup"))
        controllers = ("",) if self._groups.version == 2 else ("cpuacct", "memory")
        found = {paths.get(controller, "/") for controller in controllers}
        path = found.pop()
        return "" if found or path == "/" else path

    def _runtime(self) -> int:
        """The process of the container runtime; 0 when unknown."""
        if self._runtime_pid and Path(f"{self._proc}/{self._runtime_pid}").is_dir():
            return self._runtime_pid
        self._runtime_pid = _listener(self._socket) if self._socket else 0
        return self._runtime_pid


def task_counts(proc: str) -> tuple[int | None, int | None]:
    """How many tasks there may be on a machine, and how many there are; None: not reported.

    ``proc``: where its /proc is.
    """
    names = ("pid_max", "threads-max")
    reported = (number(read_text(f"{proc}/sys/kernel/{name}")) for name in names)
    most = min((limit for limit in reported if limit is not None), default=None)
    return most, proc_text.tasks(read_text(f"{proc}/loadavg"))


def _listener(path: str) -> int:
    """The process listening on a socket; 0 when unknown (or when init holds the socket for it)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        try:
            client.connect(path)
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except OSError:
            return 0
    pid = int(struct.unpack("iII", credentials)[0])
    return 0 if pid == _INIT else pid
