"""Limits of local storage hold wherever a container writes."""

from __future__ import annotations

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.volumes.test_kinds import mount

LIMITED = {"limits": {"ephemeral-storage": "1Mi"}}
FILL = "dd if=/dev/zero of=%s bs=1M count=4 conv=notrunc; sync; sleep 1000"


def with_many_volumes() -> JSON:
    volumes: list[JSON] = [{"name": f"v{n}", "emptyDir": {}} for n in range(1001)]
    volumes.append({"name": "used", "emptyDir": {"sizeLimit": "1Mi"}})
    return pod(
        "p", container("main", FILL % "/u/f", volumeMounts=[mount("used", "/u")]), volumes=volumes
    )


PODS = {
    "last-words": pod("p", container("main", FILL % "/dev/termination-log", resources=LIMITED)),
    "after-unused-volumes": with_many_volumes(),
}


@pytest.mark.parametrize("where", PODS)
def test_what_is_written_counts(node2: Node, namespace: str, where: str) -> None:
    node2.apply(PODS[where], namespace=namespace)
    found = node2.wait_phase(namespace, "p", "Failed", timeout=60)
    assert found["status"]["reason"] == "Evicted"
