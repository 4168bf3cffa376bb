"""Pods resized in place with real kubectl on real containerds: seen from the kernel and the API."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status, status
from tools.env import kernel_limits as kernel

MI = 1 << 20


def sized(requests: str, limits: str = "", name: str = "main", **more: Any) -> JSON:
    """A container with resources as ``cpu=100m memory=64Mi``."""
    return container(name, resources=resources(requests, limits), **more)


def resources(requests: str = "", limits: str = "") -> JSON:
    made: JSON = {}
    for kind, parts in (("requests", requests), ("limits", limits)):
        if parts:
            made[kind] = dict(word.split("=") for word in parts.split())
    return made


def resize(node: Node, namespace: str, name: str, **containers: JSON) -> str:
    """Resize a pod as a user does; each keyword is a container with its new resources."""
    desired = [{"name": one, "resources": new} for one, new in containers.items()]
    patch = json.dumps({"spec": {"containers": desired}})
    return node.kubectl(
        "patch", "pod", name, "--subresource", "resize", "--patch", patch, namespace=namespace
    )


def pod_group(node: Node, made: JSON) -> str:
    uid, quality = made["metadata"]["uid"], status(made)["qosClass"]
    groups = {"Guaranteed": "", "Burstable": "/burstable"}
    return f"{node.cgroup_root}/kubepods{groups[quality]}/pod{uid}"


def container_group(node: Node, made: JSON) -> str:
    return kernel.cgroup_of(node.container_pid(container_status(made)["containerID"]))


def conditions(made: JSON) -> dict[str, JSON]:
    return {
        one["type"]: one
        for one in status(made).get("conditions") or ()
        if one["type"].startswith("PodResize")
    }


def has(desired: JSON) -> Any:
    """Whether a pod's only container runs with resources, and nothing is pending."""

    def check(made: JSON) -> bool:
        found = container_status(made) if made else {}
        reported = {k: v for k, v in (found.get("resources") or {}).items() if v}
        return reported == desired and not conditions(made)

    return check


def test_more_and_less_without_a_restart(node: Node, namespace: str) -> None:
    node.apply(pod("a", sized("cpu=100m memory=32Mi", "cpu=200m memory=64Mi")), namespace=namespace)
    before = node.wait_running(namespace, "a")
    group, own = pod_group(node, before), container_group(node, before)
    assert kernel.quota(own) == 20_000
    new = resources("cpu=300m memory=48Mi", "cpu=500m memory=96Mi")
    assert "patched" in resize(node, namespace, "a", main=new)
    after = node.wait_pod(namespace, "a", has(new), "resized")
    for path in (own, group):
        assert kernel.quota(path) == 50_000
        assert kernel.shares(path) == kernel.kept_shares(307)
        assert kernel.memory_limit(path) == 96 * MI
    was, now = container_status(before), container_status(after)
    assert now["containerID"] == was["containerID"]
    assert now["restartCount"] == 0
    assert now["allocatedResources"] == new["requests"]
    assert status(after)["observedGeneration"] == after["metadata"]["generation"] == 2
    started = node.wait_event(namespace, "a", "ResizeStarted: Pod resize started: ")
    summary = json.loads(started.split(": ", 2)[2])
    assert summary["containers"] == [{"name": "main", "resources": new}]
    assert summary["generation"] == 2
    node.wait_event(namespace, "a", "ResizeCompleted: Pod resize completed: ")
    less = resources("cpu=100m memory=32Mi", "cpu=200m memory=64Mi")
    resize(node, namespace, "a", main=less)
    after = node.wait_pod(namespace, "a", has(less), "resized again")
    for path in (own, group):
        assert kernel.quota(path) == 20_000
        assert kernel.memory_limit(path) == 64 * MI
    assert container_status(after)["restartCount"] == 0


def test_memory_that_is_in_use_is_not_taken_away(node: Node, namespace: str) -> None:
    fill = f"head -c 40m /dev/zero > /dev/shm/x; touch /full; {FOREVER}"
    full = sized("cpu=100m memory=64Mi", "cpu=100m memory=64Mi", script=fill)
    node.apply(pod("a", full), namespace=namespace)
    before = node.wait_running(namespace, "a")
    own = container_status(before)["containerID"]
    node.until(lambda: node.exec(own, "test", "-e", "/full")[0] == 0, "its memory in use")
    resize(node, namespace, "a", main=resources("memory=32Mi", "memory=32Mi"))
    stated = "cannot decrease memory limits: [attempting to set"
    after = node.wait_pod(
        namespace, "a", lambda made: stated in json.dumps(conditions(made)), "in progress"
    )
    error = conditions(after)["PodResizeInProgress"]["message"]
    assert f'container "main" memory limit ({32 * MI}) below current usage' in error
    for path in (container_group(node, before), pod_group(node, before)):
        assert kernel.memory_limit(path) == 64 * MI
    assert container_status(after)["restartCount"] == 0


def test_memory_that_requires_a_restart(node: Node, namespace: str) -> None:
    policy = [
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    ]
    one = sized("memory=32Mi", "memory=64Mi", resizePolicy=policy)
    node.apply(pod("a", one), namespace=namespace)
    node.wait_running(namespace, "a")
    new = resources("memory=32Mi", "memory=128Mi")
    resize(node, namespace, "a", main=new)
    after = node.wait_pod(
        namespace,
        "a",
        lambda made: has(new)(made) and container_status(made)["restartCount"] == 1,
        "restarted with more memory",
    )
    assert kernel.memory_limit(container_group(node, after)) == 128 * MI
    assert kernel.memory_limit(pod_group(node, after)) == 128 * MI
    node.wait_event(namespace, "a", "Killing: Container main resize requires restart")


def test_an_editor_resizes_too(node: Node, namespace: str) -> None:
    node.apply(pod("a", sized("cpu=100m")), namespace=namespace)
    node.wait_running(namespace, "a")
    program, environment = node.kubectl_program()
    parts = ("--namespace", namespace, "edit", "pod", "a", "--subresource", "resize")
    editor = {"KUBE_EDITOR": "sed -i 's/cpu: 100m/cpu: 300m/'"}
    subprocess.run([program, *parts], env={**environment, **editor}, check=True, timeout=30)
    after = node.wait_pod(namespace, "a", has(resources("cpu=300m")), "resized")
    assert kernel.shares(pod_group(node, after)) == kernel.kept_shares(307)


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
