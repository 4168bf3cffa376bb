"""`kubeletpy plan` on a real node: its predictions come true."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeletpy.api.types import JSON
from tests.integration.lifecycle.command import run
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import status


def planned(node: Node, *arguments: str, expect: int = 0) -> Any:
    [found] = json.loads(run(node, "plan", *arguments, "-o", "json", expect=expect))
    return found


def sized(name: str, memory_needs: str, **more: Any) -> JSON:
    policy = [{"resourceName": "memory", "restartPolicy": memory_needs}]
    return container(name, resources=memory("64Mi"), resizePolicy=policy, **more)


def memory(amount: str) -> JSON:
    return {"requests": {"memory": amount}, "limits": {"memory": amount}}


def patch_of(name: str, **fields: Any) -> str:
    return json.dumps({"spec": {"containers": [{"name": name, **fields}]}})


def restarted(counts: dict[str, int]) -> Callable[[JSON], bool]:
    def is_so(made: JSON) -> bool:
        shown = status(made)["containerStatuses"]
        return {each["name"]: each["restartCount"] for each in shown} == counts

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
