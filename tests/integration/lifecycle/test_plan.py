"""`kubeletpy plan` on a real node, whose predictions come true, and `kubectl why`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeletpy.base.api.types import JSON
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


def why(node: Node, *arguments: str) -> str:
    program, environment = node.kubectl_program()
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "kubeletpy.cli.why", *arguments],
        env={**os.environ, **environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_decisions_of_the_node_are_shown(node2: Node, namespace: str) -> None:
    node2.apply(pod("bad", container(script="exit 3")), namespace=namespace)
    node2.wait_waiting(namespace, "bad", "CrashLoopBackOff")
    notified = why(node2, f"{namespace}/bad")
    assert notified.startswith(f"{namespace}/bad: not running: container main keeps exiting")
    assert "Last decisions" in notified
    node2.apply(pod("nowhere", nodeName="other"), namespace=namespace)
    notified = why(node2, "-n", namespace, "nowhere")
    assert notified.startswith(f"{namespace}/nowhere: Pending, not Ready\n")
    assert "this is what the API has" in notified
    # no node takes its end over
    node2.kubectl("delete", "pod", "nowhere", "--force", "--grace-period=0", namespace=namespace)
