"""The node under test: this agent or the Go kubelet, on a containerd of its own.

It has a cgroup root and ports of its own, and its directory stands in for /var/lib/kubelet in the
mount namespace of the run, so that several can run on a machine. Needs root.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from kubeletpy.api.types import JSON
from tools.control_plane.plane import ControlPlane
from tools.env.containerd import Containerd
from tools.env.go_kubelet import kubelet_command
from tools.env.kubectl import kubectl
from tools.env.ports import free_port
from tools.env.process import CommandError, Daemon, run
from tools.env.sweep import hierarchies, remove_cgroup, remove_log_links, unmount
from tools.env.waiting import wait_until

NAME = "conformance"
READY_S = 120.0
ROOT = Path("/var/lib/kubelet")
"""The tests' manifests mount directories below it, and the Go kubelet has its device plugins there
whatever its root directory is."""
PORT = 10250
"""Some tests reach the kubelet there, so they pass with the first of several nodes alone."""
_CDI = Path("/var/run/cdi")
_CHECKOUT = Path(__file__).resolve().parents[2]
_KUBELETPY = (sys.executable, "-m", "kubeletpy.cli.main", "run")
AGENTS = ("kubeletpy", "kubelet")


class Node:
    """A node of a control plane; ``directory`` must be short (sockets)."""

    def __init__(
        self, directory: Path, plane: ControlPlane, runtime: Containerd, gates: dict[str, bool]
    ) -> None:
        directory.mkdir(parents=True)
        self._directory, self._plane, self._runtime, self._gates = directory, plane, runtime, gates
        self._logs = directory / "logs"
        self._cgroup_root = f"/kpe-{os.urandom(4).hex()}"  # an underscore is not allowed
        self._agent = Daemon("agent", directory)
        self.log = self._agent.log

    def start(self, agent: str, programs: Path) -> None:
        """Start the agent "kubeletpy" or "kubelet" and wait until the node is Ready.

        ``programs``: the directory of the Go kubelet.
        """
        for hierarchy in hierarchies():
            (hierarchy / self._cgroup_root.lstrip("/")).mkdir()  # the Go kubelet wants it
        for source, target in {
            self._directory / "kubelet": ROOT,
            self._runtime.directory / "cdi": _CDI,
        }.items():
            source.mkdir(exist_ok=True)
            target.mkdir(parents=True, exist_ok=True)
            run("mount", "--bind", source, target)
        run("mount", "--make-rshared", ROOT)
        config = self._directory / "config.json"
        config.write_text(json.dumps(self._config()))
        program, *flags = kubelet_command(
            programs / "kubelet",
            ROOT,
            kubeconfig=self._plane.node_kubeconfig(NAME),
            config=config,
            node_name=NAME,
        )
        environment = {"PYTHONPATH": str(_CHECKOUT), "PYTHONFAULTHANDLER": "1"}
        self._agent.start(
            [*(_KUBELETPY if agent == AGENTS[0] else [program]), *flags],
            env={**os.environ, **environment},
        )
        wait_until(self._ready, f"node {NAME} Ready", timeout=READY_S, give_up=self._agent.died)

    def _ready(self) -> bool:
        wanted = "--for=condition=Ready", "--timeout=2s"
        try:
            kubectl("new").run(self._plane.admin, "wait", f"node/{NAME}", *wanted)
        except CommandError:
            return False
        return True

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

    def _config(self) -> JSON:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": self._runtime.endpoint,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._cgroup_root,
            "podLogsDir": str(self._logs),
            "healthzPort": free_port(),
            "port": free_port(PORT),
            "authentication": {"x509": {"clientCAFile": str(self._plane.authority.ca)}},
            "authorization": {"mode": "Webhook"},
            "failSwapOn": False,
            "failCgroupV1": False,
            "oomScoreAdj": 0,
            "evictionHard": {"memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "registryPullQPS": 0,
            "serializeImagePulls": False,
            "featureGates": self._gates,
        }
