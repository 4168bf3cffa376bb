"""Whatever pods' owners write, the runtime's lists stay small enough to be read."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from kubeletpy.remote.generated import api_pb2 as cri
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tools.env.cri import RawRuntime
from tools.env.images import BUSYBOX

COUNT = 14
HOOK = {"exec": {"command": ["true", "x" * 1_400_000]}}
"""One of these fits into a pod that the API server takes; twelve do not fit into an answer."""


def test_large_pre_stop_hooks_do_not_end_the_node(node: Node, namespace: str) -> None:
    for number in range(COUNT):
        desired = pod(f"p{number}", {**container(), "lifecycle": {"preStop": HOOK}})
        node.api.create("pods", namespace, desired)
    for number in range(COUNT):
        node.wait_running(namespace, f"p{number}", 120)
    with RawRuntime(node.containerd.socket) as raw:
        answer = raw.runtime.ListContainers(cri.ListContainersRequest(), timeout=10)
    assert answer.ByteSize() < 1 << 20
    assert len(list(node.root_dir.glob("pods/*/containers/main/prestop-*"))) == COUNT


def test_a_node_whose_lists_are_too_large_comes_back(node2: Node, namespace: str) -> None:
    """An agent that writes all hooks into annotations has left such pods."""
    node2.terminate()
    with RawRuntime(node2.containerd.socket) as raw:
        made = [_pod_of_another_agent(raw, node2, number) for number in range(COUNT)]
    node2.start_agent()
    node2.until(lambda: not _left(node2, made), "the orphaned pods are removed", namespace)
    node2.wait_ready()
    node2.api.create("pods", namespace, pod("next"))
    node2.wait_running(namespace, "next")


def _left(node: Node, uids: list[str]) -> list[str]:
    with RawRuntime(node.containerd.socket) as raw:
        found = [each.labels.get("io.kubernetes.pod.uid") for each in raw.sandboxes()]
    return [uid for uid in uids if uid in found]


def _pod_of_another_agent(raw: RawRuntime, node: Node, number: int) -> str:
    uid, name = str(uuid.uuid4()), f"old-{number}"
    logs = Path(node.pod_logs) / f"default_{name}_{uid}"
    (logs / "main").mkdir(parents=True)
    config = raw.sandbox_config(name, logs=str(logs))
    config.metadata.uid = uid
    whose = {
        "io.kubernetes.pod.uid": uid,
        "io.kubernetes.pod.name": name,
        "io.kubernetes.pod.namespace": "default",
    }
    config.labels.update(whose)
    sandbox = raw.run_sandbox(config)
    made = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="main"),
        image=cri.ImageSpec(image=BUSYBOX, user_specified_image=BUSYBOX),
        command=["sleep", "3600"],
        labels={**whose, "io.kubernetes.container.name": "main"},
        annotations={"io.kubernetes.container.preStopHandler": json.dumps(HOOK)},
        log_path="main/0.log",
        linux=cri.LinuxContainerConfig(),
    )
    request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=made, sandbox_config=config)
    raw.start(str(raw.runtime.CreateContainer(request, timeout=60).container_id))
    return uid
