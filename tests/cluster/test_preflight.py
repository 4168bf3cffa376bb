"""What ``kubeletpy preflight`` says about the node of a Go kubelet is what a switch then does.

Collected only where the programs contain a kubelet: ``python -m tools.conformance`` builds it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
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
from tools.env.go_kubelet import kubelet_command, prepare_root

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
        devices = self.directory / "device-plugins"
        if not self.root_dir.exists():
            self.link.open()
            self.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=90s")
            self.manifests.mkdir()
            prepare_root(self.root_dir, self.cgroup_root)
            devices.mkdir()
            KUBELETS_OWN.mkdir(parents=True, exist_ok=True)
        config = self.directory / "config.json"
        config.write_text(json.dumps(self._config()))
        alone = "unshare", "--mount", "--propagation=unchanged", "sh", "-c", ALONE
        command = kubelet_command(
            program,
            self.root_dir,
            kubeconfig=self._kubeconfig,
            config=config,
            node_name=self.name,
        )
        self.agent.start([*alone, devices, KUBELETS_OWN, *command])
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
        """Whether a pod runs, in another container than before."""
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


def test_what_is_kept_and_what_is_restarted(
    kubelet_node: KubeletNode, request: pytest.FixtureRequest
) -> None:
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
    node.write_static("fixed", uid="3f6c8a52-9e0f-4b54-8c2e-6f9a1b7d1c11")
    for name in ("bare", "touched", "changed"):
        node.write_static(name)
    statics = [node.static(name) for name in ("fixed", "bare", "touched", "changed")]
    for name in statics:
        node.kubectl("wait", "--for=create", f"pod/{name}", "--timeout=90s")
    node.wait_ready("plain", "rich", "limited", *statics)
    node.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/done", "--timeout=90s")
    (node.manifests / "touched.json").touch()

    report = node.preflight()
    pods = {each["name"]: each for each in report["pods"]}
    outcomes = {name: each["outcome"] for name, each in pods.items()}
    names = ("plain", "rich", "limited", *statics)
    assert outcomes == {**dict.fromkeys(names, "kept"), "done": "finished"}
    assert pods["rich"]["volumes"] == ["data (emptyDir)", "settings (configMap)"]
    adopted = [name for name, each in pods.items() if each["adopted"]]
    assert sorted(adopted) == sorted(statics[1:])
    assert [each for each in report["findings"] if each["severity"] in ("unclear", "blocks")] == []
    before = node.running()
    assert {name: pods[name]["containers"] for name in names} == {
        name: before[name] for name in names
    }

    node.agent.kill(signal.SIGTERM)
    changed = statics[3]
    node.write_static("changed", f"{FOREVER}; true")
    node.start()
    node.until(lambda: node.runs_another(changed, before), "a changed static pod is made anew")
    kept = set(names) - {changed}
    after = node.running()
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}

    # and back: what the agent made is kept if its uid is in the manifest
    for name in ("noted", "late"):
        node.write_static(name)
        node.kubectl("wait", "--for=create", f"pod/{node.static(name)}", "--timeout=90s")
    noted, late = node.static("noted"), node.static("late")
    node.wait_ready(noted, late, changed)
    path = r".metadata.annotations.kubernetes\.io/config\.hash"
    node.write_static("noted", uid=node.read("pod", noted, path))
    node.wait_ready(noted)
    mine = node.running()
    assert mine == {**after, changed: mine[changed], noted: mine[noted], late: mine[late]}
    node.agent.kill(signal.SIGTERM)
    node.start_kubelet(kubelet_program(request.config))
    for name in (late, changed):
        node.until(partial(node.runs_another, name, mine), "it has another uid there")
    kept |= {noted}
    back = node.running()
    assert {name: back[name] for name in kept} == {name: mine[name] for name in kept}

    # the third switch restarts nothing
    node.wait_ready(late, changed)
    back = node.running()
    node.agent.kill(signal.SIGTERM)
    node.start()
    node.apply(node.pod("new", FOREVER))
    node.wait_ready("new")
    now = node.running()
    assert now == {**back, "new": now["new"]}
