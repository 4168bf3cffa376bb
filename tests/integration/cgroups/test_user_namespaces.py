"""Pods with users of their own, where the runtime has them; a clear error where it has not."""

from __future__ import annotations

from pathlib import Path

from tests.integration.node.machine import Node, container_status
from tests.integration.node.pods import pod


def test_a_pod_with_users_of_its_own(node: Node, namespace: str) -> None:
    found = node.api.find("nodes", "", node.name) or {}
    handlers = found["status"].get("runtimeHandlers") or []
    supported = any(
        not handler.get("name") and (handler.get("features") or {}).get("userNamespaces")
        for handler in handlers
    )
    node.apply(pod("a", hostUsers=False), namespace=namespace)
    if not supported:
        text = r"can't set `spec.hostUsers: false`, runtime does not support user namespaces"
        node.wait_event(namespace, "a", f"FailedCreatePodSandBox: .*{text}")
        return
    made = node.wait_running(namespace, "a")
    pid = node.container_pid(container_status(made)["containerID"])
    inside, outside, length = Path(f"/proc/{pid}/uid_map").read_text().split()
    assert (inside, length) == ("0", "65536")
    assert int(outside) >= 65536
