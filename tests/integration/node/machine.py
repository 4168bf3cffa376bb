"""A whole node for tests: embedded API, real agent process, real containerd, real kubectl."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

from kubeletpy.base.api.types import JSON
from tests.integration.node import agent
from tests.integration.node.machine_side import MachineSide
from tests.integration.node.user_side import TIMEOUT, UserSide
from tools.env.cri import RawRuntime
from tools.env.sweep import remove_cgroup
from tools.env.waiting import NotReadyError, wait_until

ROOT = Path(__file__).resolve().parents[3]


class Node(UserSide, MachineSide):
    """One node: its life, from the start to what must not be left of it."""

    def start(self) -> None:
        """Start the API and the agent, and wait until the node is Ready.

        The API has the feature gates that the agent's configuration turns on.
        """
        gates = self.config().get("featureGates") or {}
        self.api.feature_gates = [name for name, on in gates.items() if on]
        self.api.start()
        self.start_agent()
        self.wait_ready()

    def start_agent(self, *flags: str) -> None:
        """Start the agent process (returns at once)."""
        self.manifests.mkdir(exist_ok=True)
        file = self.directory / "config.json"
        file.write_text(json.dumps(self.config()))
        command = [*agent.COMMAND, "run"]
        command += [f"--kubeconfig={self.api.endpoint.node_kubeconfig}", f"--config={file}"]
        command += [f"--root-dir={self.root_dir}", f"--hostname-override={self.name}"]
        command += [f"--device-plugins-dir={self.root_dir}/device-plugins"]
        command += ["--keep-kernel-settings", *flags]  # they are this machine's, not the node's
        self.agent.start(command, env={**os.environ, "PYTHONPATH": str(ROOT)})

    def config(self) -> JSON:
        """The KubeletConfiguration of the agent."""
        pki = self.directory / "api" / "pki"
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": self.containerd.endpoint,
            "podLogsDir": str(self.pod_logs),
            "staticPodPath": str(self.manifests),
            "fileCheckFrequency": "1s",
            "healthzPort": self.health_port,
            "port": self.port,
            "authentication": {"x509": {"clientCAFile": str(pki / "ca.crt")}},
            "tlsCertFile": str(pki / "kubelet-server.crt"),
            "tlsPrivateKeyFile": str(pki / "kubelet-server.key"),
            "failSwapOn": False,
            "failCgroupV1": False,
            # how full this machine is must not matter
            "evictionHard": {},
            # tests of the chains have a network namespace of their own
            "makeIPTablesUtilChains": False,
            "registryPullQPS": 0,
            "cgroupRoot": self.cgroup_root,
            **self._config,
        }

    def wait_ready(self, timeout: float = TIMEOUT) -> None:
        """Wait until the API shows the node as Ready."""
        self.wait_condition("Ready", "True", timeout)

    def wait_condition(self, kind: str, status: str, timeout: float = TIMEOUT) -> JSON:
        """Wait for a condition of the node object; returns the condition."""

        def reached() -> JSON | None:
            condition = self.condition(kind)
            if condition.get("status") != status:
                raise OSError(f"{kind} is {condition}")
            return condition

        found = wait_until(
            reached, f"node {kind}={status}", timeout=timeout, give_up=self.agent.died
        )
        assert found is not None
        return found

    def condition(self, kind: str) -> JSON:
        """A condition of the node object; empty when it has none yet."""
        node = self.api.find("nodes", "", self.name) or {}
        conditions = (node.get("status") or {}).get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), {})

    def kill(self) -> None:
        """kill -9 the agent."""
        self.agent.kill(signal.SIGKILL)

    def terminate(self, number: int = signal.SIGTERM) -> None:
        """Stop the agent with a signal, on which it ends within 20 seconds."""
        self.agent.kill(number)

    def remove(self) -> list[str]:
        """End everything; returns what the agent left on the machine that it should not have."""
        self.containerd.resume()
        self.containerd.start()
        left: list[str] = []
        if self.agent.pid is not None:
            try:
                with contextlib.suppress(NotReadyError):
                    wait_until(lambda: not self.leftovers(), "nothing left of the pods", timeout=60)
                left = self.leftovers()
                left += self.agent.log_tail(20).splitlines() if left else []
            finally:  # on a runtime that lives on it would remove the pods of the next node
                self.agent.kill(signal.SIGKILL)
        self.api.close()
        with RawRuntime(self.containerd.socket) as raw:
            raw.remove_all()
        for link in self.log_links():
            link.unlink()
        left += [f"cgroup {path}" for path in remove_cgroup(self.cgroup_root, kill=True)]
        return left
