"""An agent process as a node of a real control plane, and kubectl as its administrator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kubeletpy.base.api.types import JSON
from tests.cluster.link import Link
from tests.integration.node import agent
from tests.integration.node.machine import ROOT
from tools.control_plane.audit import Request
from tools.control_plane.plane import ControlPlane
from tools.env.containerd import Containerd
from tools.env.containerd import programs as containerd_programs
from tools.env.images import BUSYBOX
from tools.env.kubectl import kubectl
from tools.env.ports import free_port
from tools.env.process import CommandError, Daemon, run
from tools.env.sweep import remove_cgroup, unmount
from tools.env.waiting import NotReadyError, wait_until

T = TypeVar("T")
WAIT_S = 90.0
"""Timeout for a condition of a pod or a node."""
WITHIN = f"--timeout={WAIT_S:.0f}s"
SHORT_WATCHES = (*agent.COMMAND[:2], "tests.cluster.short_watches")
SHORT_CHECKS = (*agent.COMMAND[:2], "tests.cluster.short_checks")


class ClusterNode:
    """One node; ``directory`` must be short (sockets).

    Attributes:
        link: its way to the API server.
    """

    def __init__(
        self, directory: Path, plane: ControlPlane, runtime: Containerd, name: str = "cluster-node"
    ) -> None:
        directory.mkdir(parents=True)
        self.directory, self.plane, self.runtime, self.name = directory, plane, runtime, name
        self.root_dir = directory / "kubelet"
        self.logs = directory / "logs"
        self.cgroup_root = f"/kpc-{os.getpid()}-{os.urandom(3).hex()}"
        self.agent = Daemon("agent", directory)
        self.link = Link(plane.port)
        self._kubectl = kubectl("new")
        self._kubeconfig = self.new_credentials()

    def start(self, command: Sequence[str] = agent.COMMAND, path: Path = ROOT) -> None:
        """Start the agent, and wait until the node is Ready; ``path``: where its package is."""
        if not self.root_dir.exists():
            self.link.open()
            # pods need it, and a controller makes it
            self.kubectl("wait", "--for=create", "serviceaccount/default", WITHIN)
        config = self.directory / "config.json"
        config.write_text(json.dumps(self._config()))
        self.agent.start(
            [
                *command,
                "run",
                f"--kubeconfig={self._kubeconfig}",
                f"--config={config}",
                f"--root-dir={self.root_dir}",
                f"--hostname-override={self.name}",
                f"--device-plugins-dir={self.root_dir}/device-plugins",
                "--keep-kernel-settings",
            ],
            env={**os.environ, "PYTHONPATH": str(path)},
        )
        self.kubectl("wait", "--for=create", f"node/{self.name}", WITHIN)
        self.kubectl("wait", "--for=condition=Ready", f"node/{self.name}", WITHIN)

    @property
    def kubectl_program(self) -> Path:
        """The program kubectl."""
        return self._kubectl.program

    def stop(self) -> None:
        """Stop the agent; its pods continue."""
        self.agent.kill(signal.SIGTERM)

    def remove(self) -> None:
        """Remove the cgroup of its pods, its mounts, and its way to the API server."""
        self.link.cut()
        assert remove_cgroup(self.cgroup_root, kill=True) == []
        unmount(self.directory)

    def new_credentials(self) -> Path:
        """Issue a new client certificate for the node, in place of an earlier one."""
        return self.plane.node_kubeconfig(self.name, f"https://127.0.0.1:{self.link.port}")

    def kubectl(self, *arguments: str | Path) -> str:
        """Run kubectl as the administrator. Raises CommandError with its output."""
        try:
            return self._kubectl.run(self.plane.admin, *arguments, timeout=WAIT_S + 30)
        except CommandError as error:
            raise CommandError(f"{error}\n{self._story()}") from error

    def kubectl_process(self, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
        """kubectl as a process with pipes, which ends with the ``with``."""
        return self._kubectl.process(self.plane.admin, *arguments)

    def apply(self, *objects: JSON) -> None:
        """`kubectl apply` of objects, in namespace default."""
        file = self.directory / f"apply-{os.urandom(4).hex()}.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        self.kubectl("apply", "-f", file)
        file.unlink()

    def pod(self, name: str, script: str, container: JSON | None = None, **spec: Any) -> JSON:
        """A pod of this node with one container, bound without a scheduler."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"nodeName": self.name, **self.pod_spec(script, container), **spec},
        }

    def pod_spec(self, script: str, container: JSON | None = None) -> JSON:
        """The spec of a pod with one container."""
        main = {"name": "main", "image": BUSYBOX, "command": ["sh", "-c", script]}
        return {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [main | (container or {})],
        }

    def wait_ready(self, *names: str) -> None:
        """Wait until pods are Ready."""
        self.kubectl("wait", "--for=condition=Ready", *(f"pod/{name}" for name in names), WITHIN)

    def read(self, kind: str, name: str, path: str) -> str:
        """A value of an object, by a jsonpath such as ".status.phase"."""
        return self.kubectl("get", kind, name, "-o", f"jsonpath={{{path}}}")

    def containers(self) -> dict[str, str]:
        """The containers of the node's running pods: id and number of restarts, by pod name."""
        chosen = f"--field-selector=spec.nodeName={self.name}"
        pods: list[JSON] = json.loads(self.kubectl("get", "pods", chosen, "-o", "json"))["items"]
        return {
            pod["metadata"]["name"]: f"{each['containerID']} restarts {each['restartCount']}"
            for pod in pods
            if pod["status"]["phase"] == "Running"
            for each in pod["status"]["containerStatuses"]
        }

    def log(self, name: str) -> str:
        """The output of a pod's container, from the file that the runtime writes."""
        (file,) = self.logs.glob(f"default_{name}_*/main/0.log")
        return file.read_text()

    def requests(self, since: int = 0) -> list[Request]:
        """The agent's requests that the API server has recorded after a position."""
        user = f"system:node:{self.name}"
        return [each for each in self.plane.audit.requests(since) if each.user == user]

    def explain(self) -> str:
        """`kubeletpy explain --node`."""
        socket = self.root_dir / "explain.sock"
        command = (*agent.COMMAND[:2], "kubeletpy.cli.main", "explain", "--node")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return run(*command, "--socket", socket, env=environment)

    def until(self, check: Callable[[], T], what: str, timeout: float = WAIT_S) -> T:
        """`wait_until` whose failure shows the node's pods and the agent's log."""
        try:
            return wait_until(check, what, timeout=timeout, interval=0.2)
        except NotReadyError as error:
            raise NotReadyError(f"{error}\n{self._story()}") from error

    def _story(self) -> str:
        commands = (("get", "pods"), ("events",))
        try:
            pods, events = (
                self._kubectl.run(self.plane.admin, *command, "--request-timeout=5s")
                for command in commands
            )
            found = "\n".join([pods, *events.splitlines()[-15:]])
        except CommandError as error:
            found = str(error)
        return f"{found}\nthe end of the agent's log:\n{self.agent.log_tail(40)}"

    def _config(self) -> JSON:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": self.runtime.endpoint,
            "podLogsDir": str(self.logs),
            "healthzPort": free_port(),
            "port": free_port(),
            "authentication": {"x509": {"clientCAFile": str(self.plane.authority.ca)}},
            "nodeLeaseDurationSeconds": 12,
            "failSwapOn": False,
            "failCgroupV1": False,
            "evictionHard": {},
            "makeIPTablesUtilChains": False,
            "registryPullQPS": 0,
            "cgroupRoot": self.cgroup_root,
        }


@contextmanager
def own_runtime(directory: Path) -> Iterator[Containerd]:
    """A containerd of a node's own, with the images of tests, in a directory that is created."""
    directory.mkdir()
    runtime = Containerd(directory / "c", containerd_programs(2))
    runtime.start()
    try:
        runtime.import_images()
        yield runtime
    finally:
        runtime.remove()
