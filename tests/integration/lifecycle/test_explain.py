"""Output of explain and timeline about real pods in real trouble."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from kubeletpy.pods.pod import CONFIG_HASH
from tests.integration.lifecycle.command import explained, run, until_verdict
from tests.integration.node.machine import Node
from tests.integration.node.pods import DEAF, container, pod


def test_a_static_pod_by_its_manifests_name_its_uids_and_another_namespace(
    node: Node, namespace: str
) -> None:
    manifest = pod("static")
    manifest["metadata"]["namespace"] = namespace
    file = node.manifests / "static.json"
    file.write_text(json.dumps(manifest))
    full = f"{namespace}/static-{node.name}"
    mirror = node.wait_running(namespace, f"static-{node.name}")
    until_verdict(node, namespace, "static", "running and ready")
    uid = mirror["metadata"]["uid"]
    for requested in (f"{namespace}/static", uid, mirror["metadata"]["annotations"][CONFIG_HASH]):
        assert run(node, "explain", requested).startswith(f"{full}: running and ready"), requested
        assert full in run(node, "timeline", requested).splitlines()[0], requested
    patch = ("--patch", '{"metadata": {"labels": {"a": "b"}}}')
    assert run(node, "plan", f"{namespace}/static", *patch).startswith(f"{full}: ")
    for command, more in (("explain", ()), ("timeline", ()), ("plan", patch)):
        notified = run(node, command, "elsewhere/static", *more, expect=1)
        assert f"; use {full}, which this node has" in notified
    file.unlink()
    node.wait_removed(namespace, f"static-{node.name}")
    assert run(node, "explain", f"{namespace}/static", expect=1) == "", "shown as it was"


def test_start_times_outlast_the_agent_and_removed_pods_are_explained(
    node: Node, namespace: str
) -> None:
    """Broken manifests are listed first; a removed pod keeps its explanation."""
    node.apply(pod("crash", container("main", "exit 3")), pod("goes"), namespace=namespace)
    node.wait_running(namespace, "goes")
    until_verdict(node, namespace, "crash", "main keeps exiting", "restarts")
    broken = node.manifests / "broken.yaml"
    broken.write_text("kind: [")
    try:
        node.until(lambda: "broken.yaml" in run(node, "explain"), "the manifest listed")
        assert run(node, "explain").startswith(f"node {node.name}: static pod manifest")
    finally:
        broken.unlink()
    node.kubectl("delete", "pod", "goes", "--grace-period=1", namespace=namespace)
    node.wait_removed(namespace, "goes")

    def removed() -> bool:
        command = [sys.executable, "-m", "kubeletpy.cli.main", "explain", f"{namespace}/goes"]
        command += ["--socket", str(node.root_dir / "explain.sock")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        return done.returncode == 1 and "because it was deleted in the API" in done.stdout

    node.until(removed, "what was known last")
    before = explained(node, namespace, "crash")["first_seen"]
    node.terminate()
    node.start_agent()
    until_verdict(node, namespace, "crash", "main keeps exiting")
    assert abs(explained(node, namespace, "crash")["first_seen"] - before) < 1


def test_the_start_and_the_end_phase_by_phase(node: Node, namespace: str, tmp_path: Path) -> None:
    first = container("first", "sleep 0.2")
    node.apply(pod("web", container("main", DEAF), initContainers=[first],
                   terminationGracePeriodSeconds=60), namespace=namespace)  # fmt: skip
    node.wait_running(namespace, "web")
    drawing = tmp_path / "web.svg"
    text = run(node, "timeline", "-n", namespace, "web", "--svg", str(drawing))
    for phase in (
        "RunPodSandbox attempt 0",
        "CreateContainer first",
        "init container runs first",
        "StartContainer main",
        "write status Running, Ready",
    ):
        assert phase in text
    assert ElementTree.parse(drawing).getroot().tag.endswith("svg")
    node.kubectl("delete", "pod", "web", "--wait=false", namespace=namespace)
    verdict = until_verdict(node, namespace, "web", "main has not ended", "it is killed in")
    assert verdict.startswith("terminating for")
    # a short grace period would be over before explain has started on a busy machine
    node.kubectl("delete", "pod", "web", "--wait=false", "--grace-period=1", namespace=namespace)
    node.wait_removed(namespace, "web")
    node.until(
        lambda: (
            "take volumes down" in run(node, "timeline", "-n", namespace, "web")
            or "the pod being done with" in run(node, "timeline", "-n", namespace, "web")
        ),
        "the end of the timeline",
    )
    text = run(node, "timeline", "-n", namespace, "web")
    assert "StopContainer main" in text
    assert "StopPodSandbox" in text
