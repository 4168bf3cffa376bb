"""Pods and containers for tables of cgroups, and directories that imitate cgroup file systems."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

from kubeletpy.pods.pod import Pod
from kubeletpy.resources.cgroups.filesystem import CgroupFilesystem, detect


def container(
    cpu: str = "", memory: str = "", *, limit_cpu: str = "", limit_memory: str = "", **more: Any
) -> dict[str, Any]:
    """A container with the given requests and limits; empty: none."""
    requests = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}
    limits = {k: v for k, v in (("cpu", limit_cpu), ("memory", limit_memory)) if v}
    return {"name": "c", "resources": {"requests": requests, "limits": limits}, **more}


def fixed(cpu: str, memory: str, **more: Any) -> dict[str, Any]:
    """A container whose limits are its requests."""
    return container(cpu, memory, limit_cpu=cpu, limit_memory=memory, **more)


def pod(*containers: dict[str, Any], uid: str = "u-1", **spec: Any) -> Pod:
    """A pod with the given containers."""
    metadata: dict[str, Any] = {"name": "p", "namespace": "default", "uid": uid}
    for name in ("labels", "annotations", "creationTimestamp", "deletionTimestamp"):
        if name in spec:
            metadata[name] = spec.pop(name)
    status = spec.pop("status", {})
    whole = {"containers": list(containers) or [container()], **spec}
    return Pod(cast(Any, {"metadata": metadata, "spec": whole, "status": status}))


V1 = {
    "cpu,cpuacct": ("cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    "pids": ("pids.max",),
    "hugetlb": ("hugetlb.2MB.limit_in_bytes", "hugetlb.1GB.limit_in_bytes"),
    "freezer": (),
    "systemd": (),
    "unified": (),
}
V2 = (
    "cpu.weight",
    "cpu.max",
    "memory.max",
    "memory.current",
    "memory.min",
    "memory.low",
    "memory.high",
    "pids.max",
    "hugetlb.2MB.max",
    "cgroup.subtree_control",
    "cgroup.controllers",
    "cgroup.kill",
)
OFFERED = "cpuset cpu io memory hugetlb pids"


def v1_machine(root: Path) -> Path:
    """A v1 machine with Debian's layout: two controllers share a hierarchy."""
    for name in V1:
        (root / name).mkdir(parents=True)
        (root / name / "cgroup.procs").write_text("1\n")
    (root / "cpu").symlink_to("cpu,cpuacct")
    (root / "cpuacct").symlink_to("cpu,cpuacct")
    return root


def v2_machine(root: Path, offered: str = OFFERED) -> Path:
    """A v2 machine."""
    root.mkdir(parents=True)
    (root / "cgroup.controllers").write_text(offered)
    (root / "cgroup.subtree_control").write_text("")
    (root / "cgroup.procs").write_text("1\n")
    return root


class LookAlike(CgroupFilesystem):
    """Fills new directories with files and empties removed ones, as the kernel does."""

    @classmethod
    def at(cls, root: Path) -> LookAlike:
        found = detect(root)
        found.__class__ = cls
        assert isinstance(found, LookAlike)
        found.root = root
        return found

    root: Path

    def _mkdir(self, directory: str) -> None:
        super()._mkdir(directory)
        top = Path(directory).relative_to(self.root).parts[0]
        files = V1[top] if self.version == 1 else V2
        for name in (*files, "cgroup.procs"):
            (Path(directory) / name).write_text("")
        if self.version == 2:
            (Path(directory) / "cgroup.controllers").write_text(OFFERED)

    def _rmdir(self, directory: str) -> bool:
        path = Path(directory)
        if path.is_dir() and not any(entry.is_dir() for entry in path.iterdir()):
            if (path / "cgroup.procs").exists() and (path / "cgroup.procs").read_text().strip():
                return False
            shutil.rmtree(path)
            return True
        return super()._rmdir(directory)


def text(path: Path) -> str:
    """Content of a file, without surrounding whitespace."""
    return path.read_text().strip()
