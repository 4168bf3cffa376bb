"""An agent process as a node of a real control plane, and kubectl as its administrator."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from kubeletpy.api.types import JSON
from tests.integration.node import agent
from tests.integration.node.machine import ROOT
from tools.control_plane.plane import ControlPlane
from tools.env.containerd import Containerd
from tools.env.images import BUSYBOX
from tools.env.kubectl import kubectl
from tools.env.process import Daemon, run
from tools.env.registry import free_port
from tools.env.sweep import remove_cgroup

WAIT_S = 90.0
"""For a pod or a node to become what a test waits for."""


class ClusterNode:
    """One node; ``directory`` must be short (sockets)."""

    def __init__(
        self, directory: Path, plane: ControlPlane, runtime: Containerd, name: str = "cluster-node"
    ) -> None:
        directory.mkdir(parents=True)
        self.directory, self.plane, self.runtime, self.name = directory, plane, runtime, name
        self.root_dir = directory / "kubelet"
        self.logs = directory / "logs"
        self.cgroup_root = f"/kpc-{os.getpid()}-{os.urandom(3).hex()}"
        self.agent = Daemon("agent", directory)
        self._kubectl = kubectl("new")
        self._kubeconfig = plane.node_kubeconfig(name)

    def start(self) -> None:
        """Start the agent, and wait until the node is Ready."""
        # no controller manager makes it
        metadata = {"name": "default"}
        self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        config = self.directory / "config.json"
        config.write_text(json.dumps(self._config()))
        self.agent.start(
            [
                *agent.COMMAND,
                "run",
                f"--kubeconfig={self._kubeconfig}",
                f"--config={config}",
                f"--root-dir={self.root_dir}",
                f"--hostname-override={self.name}",
                f"--device-plugins-dir={self.root_dir}/device-plugins",
                "--keep-kernel-settings",
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.kubectl("wait", "--for=create", f"node/{self.name}", f"--timeout={WAIT_S:.0f}s")
        self.kubectl(
            "wait", "--for=condition=Ready", f"node/{self.name}", f"--timeout={WAIT_S:.0f}s"
        )

    def stop(self) -> None:
        """End the agent; its pods go on."""
        self.agent.kill(signal.SIGTERM)

    def remove(self) -> None:
        """Remove the cgroup of its pods."""
        assert remove_cgroup(self.cgroup_root, kill=True) == []

    def kubectl(self, *arguments: str | Path) -> str:
        """Run kubectl as the administrator. Raises CommandError with what it said."""
        return self._kubectl.run(self.plane.admin, *arguments, timeout=WAIT_S + 30)

    def apply(self, *objects: JSON) -> None:
        """`kubectl apply` of objects, in namespace default."""
        file = self.directory / f"apply-{os.urandom(4).hex()}.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        self.kubectl("apply", "-f", file)
        file.unlink()

    def pod(self, name: str, script: str, container: JSON | None = None, **spec: Any) -> JSON:
        """A pod of this node with one container, bound without a scheduler."""
        main = {"name": "main", "image": BUSYBOX, "command": ["sh", "-c", script]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.name,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 1,
                **spec,
                "containers": [main | (container or {})],
            },
        }

    def wait_ready(self, name: str) -> None:
        """Wait until a pod is Ready."""
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", f"--timeout={WAIT_S:.0f}s")

    def log(self, name: str) -> str:
        """The output of a pod's container."""
        (file,) = self.logs.glob(f"default_{name}_*/main/0.log")
        return file.read_text()

    def explain(self) -> str:
        """`kubeletpy explain --node`."""
        socket = self.root_dir / "explain.sock"
        command = (*agent.COMMAND[:2], "kubeletpy.cli.main", "explain", "--node")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return run(*command, "--socket", socket, env=environment)

    def _config(self) -> JSON:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": self.runtime.endpoint,
            "podLogsDir": str(self.logs),
            "healthzPort": free_port(),
            "port": free_port(),
            "authentication": {"x509": {"clientCAFile": str(self.plane.authority.ca)}},
            "failSwapOn": False,
            "failCgroupV1": False,
            "evictionHard": {},
            "makeIPTablesUtilChains": False,
            "registryPullQPS": 0,
            "cgroupRoot": self.cgroup_root,
        }
