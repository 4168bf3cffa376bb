"""The report of ``kubeletpy preflight`` on a Go kubelet's node matches the switch that follows.

Collected where the programs contain a kubelet: ``--switches NUMBER`` or ``python -m
tools.conformance`` builds it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.conftest import built_kubelet
from tests.cluster.kubelet_node import FOREVER, KubeletNode, kubelet_node_of
from tools.control_plane.plane import ControlPlane

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def kubelet_node(
    short_dir: Path, plane: ControlPlane, request: pytest.FixtureRequest
) -> Iterator[KubeletNode]:
    with kubelet_node_of(short_dir / "k", plane, built_kubelet(request.config)) as made:
        yield made


def test_the_report_names_the_containers_that_a_switch_restarts(
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
    node.kubectl("label", "node", node.name, "disk=ssd")
    node.apply(node.pod("moved", FOREVER, nodeSelector={"disk": "ssd"}))
    node.write_static("fixed", uid="3f6c8a52-9e0f-4b54-8c2e-6f9a1b7d1c11")
    for name in ("bare", "touched", "changed"):
        node.write_static(name)
    statics = [node.static(name) for name in ("fixed", "bare", "touched", "changed")]
    for name in statics:
        node.kubectl("wait", "--for=create", f"pod/{name}", "--timeout=90s")
    node.wait_ready("plain", "rich", "limited", *statics)
    node.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/done", "--timeout=90s")
    (node.manifests / "touched.json").touch()
    node.wait_ready("moved")
    node.kubectl("label", "node", node.name, "disk=hdd", "--overwrite")

    report = node.preflight()
    pods = {each["name"]: each for each in report["pods"]}
    outcomes = {name: each["outcome"] for name, each in pods.items()}
    names = ("plain", "rich", "limited", *statics)
    kept_pods = dict.fromkeys(names, "kept")
    assert outcomes == {**kept_pods, "done": "finished", "moved": "refused"}
    assert "NodeAffinity" in pods["moved"]["why"]
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
    node.kubectl("wait", "--for=jsonpath={.status.reason}=NodeAffinity", "pod/moved")
    node.kubectl("delete", "pod", "moved", "--timeout=60s")
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
    node.start_kubelet(built_kubelet(request.config))
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
    node.apply(node.pod("last", FOREVER))
    node.wait_ready("last")
    now = node.running()
    assert now == {**back, "last": now["last"]}
