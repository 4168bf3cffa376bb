"""A node that a Go kubelet and the agent run in turn, on one root directory."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from kubeletpy.base.api.types import JSON
from tests.cluster.node import ClusterNode, own_runtime
from tests.integration.node import agent
from tests.integration.node.machine import ROOT
from tools.control_plane.plane import ControlPlane
from tools.env.containerd import Containerd
from tools.env.cri import RawRuntime
from tools.env.go_kubelet import kubelet_command, prepare_root
from tools.env.ports import free_port

FOREVER = "trap exit TERM; while :; do sleep 1; done"
KUBELETS_OWN = Path("/var/lib/kubelet/device-plugins")
"""The kubelet clears it at its start, whatever its root directory is."""
ALONE = 'mount --make-private / && mount --bind "$0" "$1" && shift && exec "$@"'
"""Runs a program for which a directory is in place of another one."""


class KubeletNode(ClusterNode):
    """A node that a Go kubelet runs first, and the agent then."""

    def __init__(
        self, directory: Path, plane: ControlPlane, runtime: Containerd, name: str, config: JSON
    ) -> None:
        super().__init__(directory, plane, runtime, name)
        self._more = config

    @property
    def manifests(self) -> Path:
        """Where static pods are."""
        return self.directory / "manifests"

    def start_kubelet(self, program: Path) -> None:
        """Start the Go kubelet, and wait until the node is Ready."""
        devices = self.root_dir / "device-plugins"
        if not self.root_dir.exists():
            self.link.open()
            self.manifests.mkdir(exist_ok=True)
            prepare_root(self.root_dir, self.cgroup_root)
            devices.mkdir()
            KUBELETS_OWN.mkdir(parents=True, exist_ok=True)
        config = self.directory / "config.json"
        config.write_text(json.dumps(self._config()))
        alone = "unshare", "--mount", "--propagation=unchanged", "sh", "-c", ALONE
        command = kubelet_command(
            program, self.root_dir, kubeconfig=self._kubeconfig, config=config, node_name=self.name
        )
        self.agent.start([*alone, devices, KUBELETS_OWN, *command])
        self.wait_for_api()
        self.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=90s")
        self.kubectl("wait", "--for=create", f"node/{self.name}", "--timeout=90s")
        self.kubectl("wait", "--for=condition=Ready", f"node/{self.name}", "--timeout=90s")

    def wait_for_api(self) -> None:
        """Wait for an API server that only starts with the kubelet."""

    def preflight(self) -> JSON:
        """The report about the running kubelet."""
        command = [*agent.COMMAND[:2], "kubeletpy.cli.main", "preflight", "-o", "json"]
        done = subprocess.run(
            [*command, "--pid", str(self.agent.pid)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        report: JSON = json.loads(done.stdout)
        assert done.returncode == (0 if report["safe"] else 1)
        return report

    def running(self) -> dict[str, dict[str, str]]:
        """Ids of running containers, by pod and container, as the API shows them."""
        pods: list[JSON] = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        return {pod["metadata"]["name"]: _running(pod) for pod in pods}

    def write_static(self, name: str, script: str = FOREVER, **metadata: Any) -> None:
        """Write the manifest of a static pod, in place of an earlier one."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": {**self.pod_spec(script), "terminationGracePeriodSeconds": 1},
        }
        written = self.manifests / f".{name}"
        written.write_text(json.dumps(pod))
        written.rename(self.manifests / f"{name}.json")

    def static(self, name: str) -> str:
        """The name of a static pod in the API."""
        return f"{name}-{self.name}"

    def runs_another(self, name: str, before: dict[str, dict[str, str]]) -> bool:
        """Whether a pod runs in another container than before."""
        now = self.running().get(name)
        return bool(now) and now != before[name]

    def _config(self) -> JSON:
        return {
            **super()._config(),
            "staticPodPath": str(self.manifests),
            "cgroupDriver": "cgroupfs",
            "authorization": {"mode": "Webhook"},
            "fileCheckFrequency": "1s",
            "oomScoreAdj": 0,
            **self._ports,
            **self._more,
        }

    @cached_property
    def _ports(self) -> dict[str, int]:
        return {"port": free_port(), "healthzPort": free_port()}


def _running(pod: JSON) -> dict[str, str]:
    status = pod["status"]
    lists = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return {
        each["name"]: each["containerID"].partition("://")[2]
        for each in lists
        if "running" in each["state"]
    }


@contextmanager
def kubelet_node_of(
    directory: Path, plane: ControlPlane, program: Path, **config: Any
) -> Iterator[KubeletNode]:
    """A node on a containerd of its own that a Go kubelet runs; ``config``: more settings."""
    with kubelets_own_directory(), own_runtime(directory) as runtime:
        made = KubeletNode(directory / "g", plane, runtime, "kubelet-node", config)
        try:
            made.start_kubelet(program)
            yield made
        finally:
            made.stop()
            with RawRuntime(runtime.socket) as raw:
                raw.remove_all()
            # tests after this one count pods, and the scheduler would bind theirs to this node
            own = f"--field-selector=spec.nodeName={made.name}"
            made.kubectl("delete", "pods", own, "--force", "--grace-period=0")
            made.kubectl("delete", "node", made.name, "--ignore-not-found")
            made.remove()


@contextmanager
def kubelets_own_directory() -> Iterator[None]:
    """Remove the directory of device plugins at the end, unless the machine has a kubelet."""
    try:
        yield
    finally:
        for each in (KUBELETS_OWN, KUBELETS_OWN.parent):
            with contextlib.suppress(OSError):  # the machine may have a kubelet
                each.rmdir()
