"""The machine's cgroup file system, and a runtime that puts its sandboxes there with a driver."""

from __future__ import annotations

from pathlib import Path

from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.resources.cgroups.tree import CgroupTree, TreeOptions
from kubeletpy.resources.cgroups.values import CgroupDriver, PodCgroupNames
from tests.kit.cgroups import LookAlike, v2_machine
from tests.sim.records import Container, Sandbox
from tests.sim.runtime import SimRuntime


class KernelCgroups:
    """A v2 hierarchy below a directory. It outlives the agents."""

    def __init__(self, root: Path, agent: CgroupDriver, runtime: SimRuntime) -> None:
        self.agent = agent
        """The agent's driver, from its next start on."""
        self.runtime = agent
        """The runtime's."""
        self._files = LookAlike.at(v2_machine(root))
        self._root = root
        self._places: dict[str, Path] = {}
        runtime.observers.append(self._follow)
        runtime.refuses = self._refuses

    def tree(self) -> CgroupTree:
        """The prepared tree that an agent starts with."""
        tree = CgroupTree(self._files, TreeOptions(names=PodCgroupNames(self.agent)))
        tree.prepare()
        return tree

    def _refuses(self, config: cri.PodSandboxConfig) -> str:
        """The error of runc for a cgroup parent, as containerd passes it on; empty: accepted."""
        parent = config.linux.cgroup_parent
        if self.runtime is CgroupDriver.CGROUPFS or parent.endswith(".slice"):
            return ""
        return (
            "failed to create containerd task: OCI runtime create failed: runc create failed: "
            'expected cgroupsPath to be of format "slice:prefix:name" for systemd cgroups, got '
            f'"{parent}/f00" instead: unknown'
        )

    def _follow(self, what: str, whom: Container | Sandbox) -> None:
        if not isinstance(whom, Sandbox):
            return
        if what == "sandbox-run":
            self._places[whom.id] = self._place(whom.config.linux.cgroup_parent, whom.id)
            self._places[whom.id].mkdir(parents=True)
        elif what == "sandbox-stop":
            place = self._places.pop(whom.id)
            if place.exists():
                place.rmdir()

    def _place(self, parent: str, sandbox_id: str) -> Path:
        """Path of a sandbox's group; containerd makes a systemd triple out of a slice's name."""
        base = self._root / parent.strip("/")
        if not parent.endswith(".slice"):
            return base / sandbox_id
        if self.runtime is CgroupDriver.SYSTEMD:
            return base / f"cri-containerd-{sandbox_id}.scope"
        return self._root / "system.slice" / f"{base.name}:cri-containerd:{sandbox_id}"
