"""`kubeletpy plan` on a real node: its predictions come true."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeletpy.base.api.types import JSON
from tests.integration.lifecycle.command import run
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status, status, waiting


def planned(node: Node, *arguments: str, expect: int = 0) -> Any:
    [found] = json.loads(run(node, "plan", *arguments, "-o", "json", expect=expect))
    return found


def would_not(node: Node, *arguments: str) -> str:
    """The answer of a plan that exits with 1."""
    command = [sys.executable, "-m", "kubeletpy.cli.main", "plan", *arguments]
    command += ["--socket", str(node.root_dir / "explain.sock")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 1, result.stderr
    return result.stdout


def sized(name: str, memory_needs: str, **more: Any) -> JSON:
    policy = [{"resourceName": "memory", "restartPolicy": memory_needs}]
    return container(name, resources=memory("64Mi"), resizePolicy=policy, **more)


def memory(amount: str) -> JSON:
    return {"requests": {"memory": amount}, "limits": {"memory": amount}}


def patch_of(name: str, **fields: Any) -> str:
    return json.dumps({"spec": {"containers": [{"name": name, **fields}]}})


def restarted(counts: dict[str, int]) -> Callable[[JSON], bool]:
    def is_so(made: JSON) -> bool:
        reported = status(made)["containerStatuses"]
        return {each["name"]: each["restartCount"] for each in reported} == counts

    return is_so


def test_predictions_come_true(node2: Node, namespace: str, tmp_path: Path) -> None:
    mount = {"name": "v", "mountPath": "/v"}
    manifest = pod(
        "web",
        sized("keeps", "NotRequired", volumeMounts=[mount]),
        sized("restarts", "RestartContainer"),
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(manifest))
    of_file, of_pod = ("-n", namespace, "-f", str(file)), ("-n", namespace, "web", "-p")
    new = planned(node2, *of_file)
    assert (new["outcome"], new["node"]) == ("runs", "test-node")
    assert [act["what"] for act in new["acts"]] == [
        "volumes v",
        "RunPodSandbox",
        *(
            f"{call}Container {name}"
            for name in ("keeps", "restarts")
            for call in ("Create", "Start")
        ),
    ]
    node2.apply(manifest, namespace=namespace)
    node2.wait_running(namespace, "web")

    assert planned(node2, *of_file)["outcome"] == "unchanged"
    expected = {"keeps": ("in place", []), "restarts": ("restarts", ["restarts"])}
    for name, foreseen in expected.items():
        patch = patch_of(name, resources=memory("96Mi"))
        found = planned(node2, *of_pod, patch)
        assert (found["outcome"], found["restarts"]) == foreseen
        node2.kubectl(
            "patch", "pod", "web", "--subresource", "resize", "-p", patch, namespace=namespace
        )
        node2.wait_event(namespace, "web", "ResizeCompleted: .*")
        counts = {"keeps": 0, "restarts": int(name == "restarts")}
        node2.wait_pod(namespace, "web", restarted(counts), f"restarted {counts} times")

    image = patch_of("keeps", image="kubeletpy.local/other:1", imagePullPolicy="Never")
    assert run(node2, "plan", *of_pod, image, expect=1) == ""
    image = patch_of("keeps", image="kubeletpy.local/other:1")
    found = planned(node2, *of_pod, image)
    assert (found["outcome"], found["restarts"]) == ("restarts", ["keeps"])
    assert [each["action"] for each in found["images"]] == ["pull"]
    large = pod("large", container(resources={"requests": {"cpu": "1000"}}))
    file.write_text(json.dumps(large))
    assert run(node2, "plan", *of_file, expect=1) == ""
    assert planned(node2, *of_pod, "{}")["outcome"] == "unchanged"


def test_waits_of_a_pod_are_predicted(node2: Node, namespace: str, tmp_path: Path) -> None:
    """Objects that the API lacks are named before the pod is made; an unscheduled pod is listed."""
    mount = {"name": "v", "mountPath": "/v"}
    conf = {"name": "v", "configMap": {"name": "conf"}}
    manifest = pod("web", container(volumeMounts=[mount]), volumes=[conf])
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(manifest))
    of_file = ("-n", namespace, "-f", str(file))
    assert run(node2, "plan", *of_file, expect=1) == ""
    node2.kubectl("create", "configmap", "conf", "--from-literal=a=b", namespace=namespace)
    found = planned(node2, *of_file)
    assert (found["outcome"], [each["state"] for each in found["needs"]]) == ("runs", ["exists"])

    node2.apply(pod("noplace", container(), nodeSelector={"disk": "gold"}), namespace=namespace)
    node2.wait_event(namespace, "noplace", "FailedScheduling: .*")
    (line,) = run(node2, "explain", "-n", namespace).splitlines()
    verdict = "node: none; not scheduled: Unschedulable: 0/1 nodes are available"
    assert line.startswith(f"{namespace}/noplace  {verdict}")
    node2.kubectl("delete", "pod", "noplace", namespace=namespace)


def test_a_pod_that_never_starts_is_foreseen(node2: Node, namespace: str, tmp_path: Path) -> None:
    """The plan has the reason of the later status; objects of the same file count."""
    reads = {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "a"}}}
    manifest = pod("odd", container("main", image="NGINX:Lat est"), container("b", env=[reads]))
    conf = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "conf"},
        "data": {"a": "1"},
    }
    file = tmp_path / "both.yaml"
    file.write_text(f"{json.dumps(manifest)}\n---\n{json.dumps(conf)}\n")
    file_of = ("-n", namespace, "-f", str(file))
    assert "InvalidImageName: container main" in would_not(node2, *file_of)
    [found] = json.loads(would_not(node2, *file_of, "-o", "json"))
    assert (found["outcome"], found["reason"]) == ("stuck", "InvalidImageName")
    assert [(each["name"], each["state"]) for each in found["needs"]] == [("conf", "exists")]
    node2.apply(manifest, namespace=namespace)

    node2.wait_pod(
        namespace,
        "odd",
        lambda made: waiting(container_status(made, "main")).get("reason") == found["reason"],
        "the reason that was planned",
    )

    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "template": {"spec": pod("web", container())["spec"]}},
    }
    file.write_text(json.dumps(workload))
    stated = would_not(node2, *file_of)
    assert stated.startswith(
        f"{namespace}/web: this API has no Deployments: apply would be refused with 405. Apply the "
        "pod template as a Pod. One of 2 replicas was judged: test-node would admit and start it"
    )
