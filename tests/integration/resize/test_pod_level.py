"""Resources of whole pods, resized in place on real containerds."""

from __future__ import annotations

import json

from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status, status
from tests.integration.resize.test_resize import (
    MI,
    conditions,
    container_group,
    pod_group,
    resources,
    sized,
)
from tools.env import kernel_limits as kernel


def resize_whole(node: Node, namespace: str, name: str, requests: str, limits: str) -> None:
    patch = json.dumps({"spec": {"resources": resources(requests, limits)}})
    node.kubectl(
        "patch", "pod", name, "--subresource", "resize", "--patch", patch, namespace=namespace
    )


def test_a_whole_pod_grows_and_shrinks(node: Node, namespace: str) -> None:
    """Containers without limits of their own have the pod's; those with their own keep them."""
    own = sized("cpu=100m memory=32Mi", "cpu=200m memory=64Mi", "own")
    whole = resources("cpu=300m memory=96Mi", "cpu=400m memory=128Mi")
    node.apply(pod("a", container("free"), own, resources=whole), namespace=namespace)
    before = node.wait_running(namespace, "a")
    group = pod_group(node, before)
    assert kernel.quota(group) == 40_000
    assert kernel.memory_limit(group) == 128 * MI
    ids = {e["name"]: e["containerID"] for e in status(before)["containerStatuses"]}

    for cpu, memory in ((600, 192), (400, 160)):
        limits = f"cpu={cpu}m memory={memory}Mi"
        requests = f"cpu={cpu - 100}m memory=96Mi"
        resize_whole(node, namespace, "a", requests, limits)
        desired = resources(requests, limits)
        after = node.wait_pod(
            namespace,
            "a",
            lambda made, desired=desired: (  # type: ignore[misc]
                status(made).get("resources") == desired
                and not conditions(made)
                and status(made)["observedGeneration"] == made["metadata"]["generation"]
            ),
            "resized",
        )
        assert status(after)["allocatedResources"] == desired["requests"]
        assert kernel.quota(group) == cpu * 100
        assert kernel.shares(group) == kernel.kept_shares((cpu - 100) * 1024 // 1000)
        assert kernel.memory_limit(group) == memory * MI
        for name in ("free", "own"):
            found = container_status(after, name)
            assert (found["containerID"], found["restartCount"]) == (ids[name], 0)
        mine = container_group(
            node, {"status": {"containerStatuses": [container_status(after, "own")]}}
        )
        assert kernel.memory_limit(mine) == 64 * MI
    node.wait_event(namespace, "a", "ResizeCompleted: Pod resize completed: ")


def test_a_pod_that_gets_resources_as_a_whole_while_it_runs(node: Node, namespace: str) -> None:
    """So few shares that they would be one weight of cgroup v2."""
    node.apply(pod("a", sized("cpu=2m", "cpu=100m")), namespace=namespace)
    group = pod_group(node, node.wait_running(namespace, "a"))
    assert (kernel.shares(group), kernel.quota(group)) == (kernel.kept_shares(2), 10_000)
    resize_whole(node, namespace, "a", "cpu=20m", "cpu=200m")
    desired = resources("cpu=20m", "cpu=200m")
    node.wait_pod(
        namespace,
        "a",
        lambda made: status(made).get("resources") == desired and not conditions(made),
        "resized",
    )
    assert (kernel.shares(group), kernel.quota(group)) == (kernel.kept_shares(20), 20_000)


def test_a_whole_pod_that_grows_while_the_agent_is_dead(node: Node, namespace: str) -> None:
    whole = resources("cpu=200m memory=64Mi", "cpu=300m memory=96Mi")
    node.apply(pod("a", container("free"), resources=whole), namespace=namespace)
    before = node.wait_running(namespace, "a")
    node.kill()
    resize_whole(node, namespace, "a", "cpu=250m memory=64Mi", "cpu=500m memory=160Mi")
    node.start_agent()
    group = pod_group(node, before)
    node.until(
        lambda: kernel.quota(group) == 50_000 and kernel.memory_limit(group) == 160 * MI,
        "the pod's group resized",
        namespace,
        "a",
    )
    after = node.wait_pod(
        namespace,
        "a",
        lambda made: status(made).get("allocatedResources", {}).get("cpu") == "250m",
        "told",
    )
    found = container_status(after)
    assert found["containerID"] == container_status(before)["containerID"]
