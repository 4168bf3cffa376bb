"""The node under test: this agent or the Go kubelet, on a containerd of its own.

It has a cgroup root and ports of its own, so that several can run on a machine. Needs root.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kubeletpy.api.types import JSON
from tools.control_plane.plane import ControlPlane
from tools.env.containerd import Containerd
from tools.env.kubectl import kubectl
from tools.env.ports import free_port
from tools.env.process import CommandError, Daemon, run
from tools.env.sweep import hierarchies, remove_cgroup, remove_log_links, unmount
from tools.env.waiting import wait_until

NAME = "conformance"
READY_S = 120.0
_CHECKOUT = Path(__file__).resolve().parents[2]


class Node:
    """A node of a control plane; ``directory`` must be short (sockets)."""

    def __init__(
        self, directory: Path, plane: ControlPlane, runtime: Containerd, gates: dict[str, bool]
    ) -> None:
        directory.mkdir(parents=True)
        self._directory, self._plane, self._runtime, self._gates = directory, plane, runtime, gates
        self._root = directory / "kubelet"
        self._logs = directory / "logs"
        self._cgroup_root = f"/kpe-{os.urandom(4).hex()}"  # an underscore is not allowed
        self._agent = Daemon("agent", directory)
        self.log = self._agent.log

    def start(self, agent: str, programs: Path) -> None:
        """Start the agent "kubeletpy" or "kubelet" and wait until the node is Ready.

        ``programs``: the directory of the Go kubelet.
        """
        self._root.mkdir()
        for hierarchy in hierarchies():
            (hierarchy / self._cgroup_root.lstrip("/")).mkdir()  # the Go kubelet wants it
        run("mount", "--bind", self._root, self._root)
        run("mount", "--make-rshared", self._root)
        config = self._directory / "config.json"
        config.write_text(json.dumps(self._config()))
        command, environment = _COMMANDS[agent](self._root, programs)
        self._agent.start(
            [
                *command,
                f"--kubeconfig={self._plane.node_kubeconfig(NAME)}",
                f"--config={config}",
                f"--root-dir={self._root}",
                f"--hostname-override={NAME}",
            ],
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
        unmount(self._directory)
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
            "port": free_port(),
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


def _kubeletpy(root: Path, programs: Path) -> tuple[Sequence[str | Path], dict[str, str]]:
    command = sys.executable, "-m", "kubeletpy.cli.main", "run"
    return [*command, f"--device-plugins-dir={root}/device-plugins"], {"PYTHONPATH": str(_CHECKOUT)}


def _kubelet(root: Path, programs: Path) -> tuple[Sequence[str | Path], dict[str, str]]:
    return [programs / "kubelet", f"--cert-dir={root}/pki"], {}


_COMMANDS: dict[str, Callable[[Path, Path], tuple[Sequence[str | Path], dict[str, str]]]] = {
    "kubeletpy": _kubeletpy,
    "kubelet": _kubelet,
}
AGENTS = tuple(_COMMANDS)
