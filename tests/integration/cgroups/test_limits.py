"""Pods in their cgroups on real containerds: placed, limited, killed, torn down."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status, status
from tools.env import kernel_limits as kernel
from tools.env.sweep import cgroups

MI = 1 << 20


def sized(limits: dict[str, str], requests: dict[str, str] | None = None, **more: Any) -> JSON:
    resources = {"limits": limits, "requests": requests or {}}
    return container(resources={k: v for k, v in resources.items() if v}, **more)


def group(made: JSON, node: Node) -> str:
    """The cgroup where a pod belongs."""
    uid, quality = made["metadata"]["uid"], status(made)["qosClass"]
    groups = {"Guaranteed": "", "Burstable": "/burstable", "BestEffort": "/besteffort"}
    return f"{node.cgroup_root}/kubepods{groups[quality]}/pod{uid}"


def placed(node: Node, made: JSON) -> str:
    """Path of the memory cgroup in which the kernel has the pod's container."""
    return kernel.cgroup_of(node.container_pid(container_status(made)["containerID"]))


PODS = [
    (sized({"cpu": "500m", "memory": "64Mi"}), "Guaranteed", (512, 50_000, 64 * MI)),
    (
        sized({"memory": "32Mi"}, {"cpu": "250m", "memory": "16Mi"}),
        "Burstable",
        (256, kernel.NO_LIMIT, 32 * MI),
    ),
    (container(), "BestEffort", (2, kernel.NO_LIMIT, None)),
]


@pytest.mark.parametrize(("spec", "quality", "limits"), PODS, ids=[row[1] for row in PODS])
def test_a_pod_is_in_its_place_with_its_limits(
    node: Node, namespace: str, spec: JSON, quality: str, limits: tuple[int, int, int | None]
) -> None:
    shares, quota, memory = limits
    node.apply(pod("a", spec), namespace=namespace)
    made = node.wait_running(namespace, "a")
    assert status(made)["qosClass"] == quality
    path = group(made, node)
    assert placed(node, made).startswith(f"{path}/")
    assert kernel.shares(path) == kernel.kept_shares(shares)
    assert kernel.quota(path) == quota
    if memory is not None:
        assert kernel.memory_limit(path) == memory
        id = container_status(made)["containerID"]
        seen = node.exec(id, "cat", kernel.file_in_container(kernel.MEMORY_LIMIT_FILE))
        assert seen[1].strip() == str(memory)
    node.api.delete("pods", namespace, "a", grace=1)
    node.wait_removed(namespace, "a")
    assert cgroups([path]) == []


def test_the_burstable_group_has_what_its_pods_request(node: Node, namespace: str) -> None:
    burstable = f"{node.cgroup_root}/kubepods/burstable"
    for name in "ab":
        node.apply(pod(name, sized({}, {"cpu": "300m"})), namespace=namespace)
    for name in "ab":
        node.wait_running(namespace, name)
    assert kernel.shares(burstable) >= kernel.kept_shares(614)
    best_effort = f"{node.cgroup_root}/kubepods/besteffort"
    assert kernel.shares(best_effort) == kernel.kept_shares(2)


def test_a_pod_whose_cgroup_was_removed_gets_a_new_one(node: Node, namespace: str) -> None:
    node.apply(pod("a", sized({"memory": "32Mi"})), namespace=namespace)
    made = node.wait_running(namespace, "a")
    first, path = container_status(made)["containerID"], group(made, node)
    root = kernel.hierarchy("pids")
    tree = root / path[1:]
    for folder, _, _ in os.walk(tree, topdown=False):
        for pid in (Path(folder) / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(pid)
        Path(folder).rmdir()
    node.kubectl("annotate", "pod", "a", "look=again", namespace=namespace)

    def runs_anew(pod: JSON) -> bool:
        found = container_status(pod)
        return bool(found.get("ready")) and found.get("containerID") != first

    made = node.wait_pod(namespace, "a", runs_anew, "runs in a new container")
    assert placed(node, made).startswith(f"{path}/")
    assert tree.is_dir()


def test_a_crash_leaves_pods_running_and_no_stray_cgroups(node: Node, namespace: str) -> None:
    node.apply(pod("kept", sized({"memory": "32Mi"})), namespace=namespace)
    node.apply(pod("deleted"), namespace=namespace)
    kept, deleted = (node.wait_running(namespace, name) for name in ("kept", "deleted"))
    node.kill()
    node.api.delete("pods", namespace, "deleted", grace=0)
    stray = f"{node.cgroup_root}/kubepods/besteffort/podof-nobody"
    for root in kernel.hierarchies("cpu", "memory", "freezer"):
        (root / stray[1:]).mkdir(parents=True, exist_ok=True)
    node.start_agent()

    def collected() -> bool:
        return not cgroups([stray, group(deleted, node)])

    node.until(collected, "the orphaned cgroups are removed", namespace, "kept")
    made = node.wait_running(namespace, "kept")
    assert container_status(made)["containerID"] == container_status(kept)["containerID"]
    assert cgroups([group(kept, node)]) != []
