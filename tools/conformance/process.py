"""A node under test whose agent is a process of this machine.

It has a cgroup root and ports of its own, so that several can run on a machine. In the mount
namespace of the run, its directory stands in for /var/lib/kubelet. Needs root.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from tools.conformance.node import AGENTS, Setup
from tools.env import containerd
from tools.env.go_kubelet import kubelet_command
from tools.env.images import write_archive
from tools.env.ports import free_port
from tools.env.process import Daemon, run
from tools.env.runc import current_runc
from tools.env.sweep import hierarchies, remove_cgroup, remove_log_links, unmount

READY_S = 120.0
ROOT = Path("/var/lib/kubelet")
"""The tests' manifests mount directories below it, and the Go kubelet has its device plugins there
whatever its root directory is."""
PORT = 10250
"""Some tests reach the kubelet there, so they pass with the first of several nodes alone."""
HANDLER = "test-handler"
"""The tests of RuntimeClass expect a runtime handler of this name."""
_CDI = Path("/var/run/cdi")
_CHECKOUT = Path(__file__).resolve().parents[2]
_KUBELETPY = (sys.executable, "-m", "kubeletpy.cli.main", "run")


class ProcessNode:
    """Implements :class:`tools.conformance.node.Node`."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._directory = setup.directory / "n"
        self._directory.mkdir(parents=True)
        self._cgroup_root = f"/kpe-{os.urandom(4).hex()}"  # an underscore is not allowed
        self._runtime = containerd.Containerd(
            setup.directory / "c",
            containerd.programs(2),
            current_runc(),
            prefix=23,
            handlers=(HANDLER,),
            network=setup.pods,
        )
        self._agent = Daemon("agent", self._directory)
        self.logs = {"agent.log": self._agent.log}

    def start(self, agent: str) -> None:
        """Start the agent and wait until the node is Ready."""
        self._start_runtime()
        for hierarchy in hierarchies():
            (hierarchy / self._cgroup_root.lstrip("/")).mkdir()  # the Go kubelet requires it
        for source, target in {
            self._directory / "kubelet": ROOT,
            self._runtime.directory / "cdi": _CDI,
        }.items():
            source.mkdir(exist_ok=True)
            target.mkdir(parents=True, exist_ok=True)
            run("mount", "--bind", source, target)
        run("mount", "--make-rshared", ROOT)
        config = self._directory / "config.json"
        config.write_text(
            json.dumps(
                self._setup.kubelet_config(
                    containerRuntimeEndpoint=self._runtime.endpoint,
                    cgroupDriver="cgroupfs",
                    cgroupRoot=self._cgroup_root,
                    podLogsDir=str(self._directory / "logs"),
                    healthzPort=free_port(),
                    port=free_port(PORT),
                    failCgroupV1=False,
                    oomScoreAdj=0,
                )
            )
        )
        program, *flags = kubelet_command(
            self._setup.programs / "kubelet",
            ROOT,
            kubeconfig=self._setup.plane.node_kubeconfig(self._setup.name),
            config=config,
            node_name=self._setup.name,
        )
        if self._setup.address:
            flags.append(f"--node-ip={self._setup.address}")
        environment = {"PYTHONPATH": str(_CHECKOUT), "PYTHONFAULTHANDLER": "1"}
        self._agent.start(
            [*(_KUBELETPY if agent == AGENTS[0] else [program]), *flags],
            env={**os.environ, **environment},
        )
        self._setup.wait_ready(READY_S, self._agent.died)

    def _start_runtime(self) -> None:
        self._setup.write_mirror(self._runtime.directory / "certs.d")
        self._runtime.start(self._setup.sandbox_image)
        archive = write_archive(self._directory / "images.tar", *self._setup.images)
        self._runtime.import_images(archive)
        archive.unlink()

    def remove(self) -> None:
        """End the agent, its pods and what both left."""
        self._agent.kill(signal.SIGTERM)
        left = self._runtime.remove()
        left += [str(each) for each in remove_cgroup(self._cgroup_root, kill=True)]
        for mounted in (ROOT, _CDI, self._directory):
            unmount(mounted)
        remove_log_links(self._directory)
        if left:
            print("left behind:", *left, sep="\n  ", file=sys.stderr)
