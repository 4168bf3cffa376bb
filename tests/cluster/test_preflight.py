"""What ``kubeletpy preflight`` says about the node of a Go kubelet is what a switch then does.

Collected only where the programs contain a kubelet: ``python -m tools.conformance`` builds it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.api.types import JSON
from tests.cluster.conftest import kubelet_program
from tests.cluster.node import ClusterNode
from tests.integration.node import agent
from tests.integration.node.machine import ROOT
from tools.control_plane.plane import ControlPlane
from tools.env import containerd
from tools.env.cri import RawRuntime
from tools.env.sweep import hierarchies

pytestmark = pytest.mark.timeout(400)
FOREVER = "trap exit TERM; while :; do sleep 1; done"
KUBELETS_OWN = Path("/var/lib/kubelet/device-plugins")
"""The kubelet clears it at its start, whatever its root directory is."""
ALONE = 'mount --make-private / && mount --bind "$0" "$1" && shift && exec "$@"'
"""Runs a program for which a directory is in place of another one."""


class KubeletNode(ClusterNode):
    """A node that a Go kubelet runs first, and the agent then."""

    @property
    def manifests(self) -> Path:
        """Where static pods are."""
        return self.directory / "manifests"

    def start_kubelet(self, program: Path) -> None:
        """Start the Go kubelet, and wait until the node is Ready."""
        self.link.open()
        self.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=90s")
        self.manifests.mkdir()
        self.root_dir.mkdir()
        subprocess.run(["mount", "--bind", self.root_dir, self.root_dir], check=True)
        subprocess.run(["mount", "--make-rshared", self.root_dir], check=True)
        devices = self.directory / "device-plugins"
        devices.mkdir()
        KUBELETS_OWN.mkdir(parents=True, exist_ok=True)
        for hierarchy in hierarchies():  # unlike the agent, the kubelet does not create it
            (hierarchy / self.cgroup_root.lstrip("/")).mkdir(exist_ok=True)
        config = self.directory / "config.json"
        config.write_text(json.dumps(self._config()))
        self.agent.start(
            [
                "unshare",
                "--mount",
                "--propagation=unchanged",
                "sh",
                "-c",
                ALONE,
                devices,
                KUBELETS_OWN,
                program,
                f"--kubeconfig={self._kubeconfig}",
                f"--config={config}",
                f"--root-dir={self.root_dir}",
                f"--cert-dir={self.root_dir}/pki",
                f"--hostname-override={self.name}",
            ]
        )
        self.kubectl("wait", "--for=create", f"node/{self.name}", "--timeout=90s")
        self.kubectl("wait", "--for=condition=Ready", f"node/{self.name}", "--timeout=90s")

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
        """Container ids of what runs, by pod and container, as the API shows them."""
        pods: list[JSON] = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        return {pod["metadata"]["name"]: _running(pod) for pod in pods}

    def _config(self) -> JSON:
        return {
            **super()._config(),
            "staticPodPath": str(self.manifests),
            "cgroupDriver": "cgroupfs",
            "authorization": {"mode": "Webhook"},
            "fileCheckFrequency": "1s",
            "oomScoreAdj": 0,
        }


def _running(pod: JSON) -> dict[str, str]:
    status = pod["status"]
    lists = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return {
        each["name"]: each["containerID"].partition("://")[2]
        for each in lists
        if "running" in each["state"]
    }


@pytest.fixture
def kubelet_node(
    short_dir: Path, plane: ControlPlane, request: pytest.FixtureRequest
) -> Iterator[KubeletNode]:
    runtime = containerd.Containerd(short_dir / "k", containerd.programs(2))
    runtime.start()
    try:
        runtime.import_images()
        made = KubeletNode(short_dir / "g", plane, runtime, "kubelet-node")
        try:
            made.start_kubelet(kubelet_program(request.config))
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
    finally:
        runtime.remove()
        for each in (KUBELETS_OWN, KUBELETS_OWN.parent):
            with contextlib.suppress(OSError):  # the machine may have a kubelet
                each.rmdir()


def static(name: str, spec: JSON, **metadata: Any) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": spec,
    }


def test_what_is_kept_and_what_is_restarted(kubelet_node: KubeletNode) -> None:
    node = kubelet_node
    sidecar = node.pod_spec(FOREVER)["containers"][0]
    node.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "settings"},
            "data": {"a": "b"},
        },
        node.pod("plain", FOREVER),
        node.pod(
            "rich",
            FOREVER,
            {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            initContainers=[
                {**sidecar, "name": "first", "command": ["true"]},
                {**sidecar, "name": "beside", "restartPolicy": "Always"},
            ],
            volumes=[
                {"name": "data", "emptyDir": {}},
                {"name": "settings", "configMap": {"name": "settings"}},
            ],
        ),
        node.pod("limited", FOREVER, {"resources": {"limits": {"memory": "32Mi", "cpu": "50m"}}}),
        node.pod("done", "exit 0", restartPolicy="Never"),
    )
    spec = {**node.pod_spec(FOREVER), "terminationGracePeriodSeconds": 1}
    for pod in (
        static("fixed", spec, uid="3f6c8a52-9e0f-4b54-8c2e-6f9a1b7d1c11"),
        static("bare", spec),
    ):
        (node.manifests / f"{pod['metadata']['name']}.json").write_text(json.dumps(pod))
    statics = [f"{name}-{node.name}" for name in ("fixed", "bare")]
    for name in statics:
        node.kubectl("wait", "--for=create", f"pod/{name}", "--timeout=90s")
    node.wait_ready("plain", "rich", "limited", *statics)
    node.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/done", "--timeout=90s")

    report = node.preflight()
    pods = {each["name"]: each for each in report["pods"]}
    outcomes = {name: each["outcome"] for name, each in pods.items()}
    assert outcomes == {
        "plain": "kept",
        "rich": "kept",
        "limited": "kept",
        "done": "finished",
        statics[0]: "kept",
        statics[1]: "restarted",
    }
    assert pods["rich"]["volumes"] == ["data (emptyDir)", "settings (configMap)"]
    assert [each for each in report["findings"] if each["severity"] in ("unclear", "blocks")] == []
    before = node.running()
    kept = {name for name, outcome in outcomes.items() if outcome == "kept"}
    assert {name: pods[name]["containers"] for name in kept} == {
        name: before[name] for name in kept
    }

    began = time.monotonic()
    node.agent.kill(signal.SIGTERM)
    node.start()

    def switched() -> bool:
        now = node.running()
        return bool(now.get(statics[1])) and now[statics[1]] != before[statics[1]]

    node.until(switched, "the static pod without a uid is made anew")
    after = node.running()
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert time.monotonic() - began < 60
