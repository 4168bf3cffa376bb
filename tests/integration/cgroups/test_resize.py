"""Running containers are given other limits: what the kernel has of them and of their pod."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ResizeOutcome
from kubeletpy.resources.cgroups.filesystem import detect
from kubeletpy.resources.cgroups.pod_cgroups import KernelPodLimits, PodCgroups
from kubeletpy.resources.cgroups.tree import CgroupTree, TreeOptions
from kubeletpy.resources.cgroups.values import PodCgroupNames, parse_root
from kubeletpy.runtime_manager.protocol import ActuatedInMemory, NoPodCgroupLimits
from tests.integration.runtime_node import (
    EventLog,
    RuntimeNode,
    make_container,
    make_pod,
    runtime_node,
)
from tools.env import kernel_limits as kernel
from tools.env.containerd import Containerd

MI = 1 << 20
RESTART_MEMORY = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]


@dataclass
class Node:
    """A manager with the cgroups of its pods."""

    runtime: RuntimeNode
    cgroups: PodCgroups
    tree: CgroupTree
    records: ActuatedInMemory

    def of_pod(self, pod: Pod) -> dict[str, int]:
        """Limits of the pod's own cgroup, from the kernel."""
        return limits(self.tree.pod_path(pod))

    async def of_container(self, pod: Pod, name: str) -> dict[str, int]:
        """Limits of a container's cgroup, from the kernel."""
        record = self.runtime.statuses[pod.uid].newest(name)
        assert record is not None
        answer = await self.runtime.runtime.container_status(record.id, verbose=True)
        spec = json.loads(answer.info["info"])["runtimeSpec"]
        return limits(spec["linux"]["cgroupsPath"])


def limits(path: str) -> dict[str, int]:
    """Limits of a cgroup, as :func:`kept` has those that are expected."""
    return {
        "shares": kernel.shares(path),
        "quota": kernel.quota(path),
        "memory": kernel.memory_limit(path),
    }


def kept(shares: int, quota: int, memory: int) -> dict[str, int]:
    """Limits as the kernel keeps them."""
    return {"shares": kernel.kept_shares(shares), "quota": quota, "memory": memory}


@asynccontextmanager
async def resizing_node(
    containerd: Containerd,
    work_dir: Path,
    cgroup_root: str,
    records: ActuatedInMemory | None = None,
    *,
    per_qos: bool = True,
) -> AsyncIterator[Node]:
    """``per_qos`` False: pods have no cgroups of their own."""
    names = PodCgroupNames(root=parse_root(cgroup_root))
    tree = CgroupTree(detect(), TreeOptions(names=names))
    tree.prepare()
    cgroups = PodCgroups(
        tree,
        EventLog(),
        Metrics().node,
        node_name="n",
        active_pods=lambda: [],
        in_use=lambda uid: True,
    )
    records = records or ActuatedInMemory()
    pod_limits = KernelPodLimits(tree, cgroups) if per_qos else NoPodCgroupLimits()
    parent = cgroups.parent if per_qos else lambda pod: cgroup_root
    supplied: dict[str, Any] = {
        "cgroup_parent": parent,
        "pod_limits": pod_limits,
        "actuated": records,
    }
    async with runtime_node(containerd, work_dir, cgroup_root, **supplied) as runtime:
        yield Node(runtime, cgroups, tree, records)


def resources(cpu: str, memory: str) -> dict[str, Any]:
    """Requests and limits alike: a Guaranteed pod."""
    amounts = {"cpu": cpu, "memory": memory}
    return {"requests": amounts, "limits": dict(amounts)}


def resized(pod: Pod, *amounts: dict[str, Any]) -> Pod:
    """The same pod with other resources."""
    containers = [
        {**container, "resources": each}
        for container, each in zip(pod.containers, amounts, strict=True)
    ]
    return Pod({**pod.object, "spec": {**pod.spec, "containers": containers}})  # type: ignore[typeddict-item]


def started(pod: Pod, node: Node, name: str) -> tuple[str, int]:
    record = node.runtime.statuses[pod.uid].newest(name)
    assert record is not None
    return record.id, record.started_at


async def test_limits_grow_and_shrink_while_a_container_runs(
    containerd: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    async with resizing_node(containerd, work_dir, cgroup_root) as node:
        pod = make_pod(
            "grows",
            [
                make_container("a", resources=resources("100m", "32Mi")),
                make_container("b", resources=resources("100m", "32Mi")),
            ],
        )
        await node.cgroups.ensure(pod)
        first = await node.runtime.sync(pod)
        assert not first.failed, first.error_message()
        assert first.resize is None
        before = started(pod, node, "a")
        assert await node.of_container(pod, "a") == kept(102, 10_000, 32 * MI)
        assert node.of_pod(pod) == kept(204, 20_000, 64 * MI)
        assert not (await node.runtime.sync(pod)).acted

        bigger = resized(pod, resources("300m", "64Mi"), resources("50m", "24Mi"))
        result = await node.runtime.sync(bigger)
        assert not result.failed, result.error_message()
        assert result.resize == ResizeOutcome(in_progress=False, done=("b", "a"))
        assert await node.of_container(pod, "a") == kept(307, 30_000, 64 * MI)
        assert await node.of_container(pod, "b") == kept(51, 5_000, 24 * MI)
        assert node.of_pod(pod) == kept(358, 35_000, 88 * MI)
        assert started(pod, node, "a") == before
        notified = node.runtime.statuses[pod.uid].newest("a")
        assert notified is not None
        if notified.resources is not None:  # containerd 1.6 does not report them
            assert notified.resources.cpu_quota == 30_000
            assert notified.resources.memory_limit_bytes == 64 * MI

        smaller = resized(pod, resources("20m", "16Mi"), resources("20m", "16Mi"))
        assert not (await node.runtime.sync(smaller)).failed
        assert node.of_pod(pod) == kept(40, 4_000, 32 * MI)
        assert (await node.of_container(pod, "b"))["memory"] == 16 * MI
        assert started(pod, node, "a") == before
        assert not (await node.runtime.sync(smaller)).acted
        await node.runtime.kill(smaller, pod.uid)


async def test_a_restart_where_the_policy_requires_one(
    containerd2: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    async with resizing_node(containerd2, work_dir, cgroup_root) as node:
        pod = make_pod(
            "restarts",
            [make_container("a", resources=resources("100m", "32Mi"), resizePolicy=RESTART_MEMORY)],
        )
        await node.cgroups.ensure(pod)
        await node.runtime.sync(pod)
        await node.runtime.up(pod, "a")
        before = started(pod, node, "a")
        assert not (await node.runtime.sync(resized(pod, resources("200m", "32Mi")))).failed
        assert started(pod, node, "a") == before
        result = await node.runtime.sync(resized(pod, resources("200m", "64Mi")))
        assert not result.failed, result.error_message()
        record = node.runtime.statuses[pod.uid].newest("a")
        assert record is not None
        assert record.restart_count == 1
        assert "Killing: Container a resize requires restart" in node.runtime.events.seen
        assert (await node.of_container(pod, "a"))["memory"] == 64 * MI
        assert node.of_pod(pod) == kept(204, 20_000, 64 * MI)
        await node.runtime.kill(pod, pod.uid)


async def test_memory_that_is_in_use_is_not_taken_away(
    containerd: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    fill = "head -c 40m /dev/zero > /dev/shm/x; trap 'exit 0' TERM; echo up; sleep 1000 & wait"
    async with resizing_node(containerd, work_dir, cgroup_root) as node:
        pod = make_pod("full", [make_container("a", fill, resources=resources("100m", "64Mi"))])
        await node.cgroups.ensure(pod)
        await node.runtime.sync(pod)
        await node.runtime.up(pod, "a")
        result = await node.runtime.sync(resized(pod, resources("100m", "32Mi")))
        assert result.resize is not None
        assert result.resize.in_progress
        assert result.resize.error.startswith("cannot decrease memory limits: [attempting to set")
        assert f'container "a" memory limit ({32 * MI}) below current usage' in result.resize.error
        assert node.of_pod(pod)["memory"] == 64 * MI
        assert (await node.of_container(pod, "a"))["memory"] == 64 * MI
        await node.runtime.kill(pod, pod.uid)


async def test_an_agent_that_lost_its_records(
    containerd: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    small = resources("100m", "32Mi")
    pod = make_pod("known", [make_container("a", resources=small, resizePolicy=RESTART_MEMORY)])
    async with resizing_node(containerd, work_dir, cgroup_root) as node:
        await node.cgroups.ensure(pod)
        await node.runtime.sync(pod)
        before = started(pod, node, "a")
    async with resizing_node(containerd, work_dir, cgroup_root) as node:
        result = await node.runtime.sync(pod)
        assert not result.failed, result.error_message()
        assert started(pod, node, "a") == before, "it goes on"
        assert node.records.get(pod.uid, "a") == small
        assert not (await node.runtime.sync(pod)).acted
    async with resizing_node(containerd, work_dir, cgroup_root, node.records) as node:
        group = kernel.hierarchy("memory") / node.tree.pod_path(pod).lstrip("/")
        (group / kernel.MEMORY_LIMIT_FILE).write_text(str(99 * MI))
        result = await node.runtime.sync(pod)
        assert node.of_pod(pod)["memory"] == 32 * MI
        assert result.resize == ResizeOutcome(in_progress=False)
        await node.runtime.kill(pod, pod.uid)


async def test_a_sidecar_and_pods_without_cgroups_of_their_own(
    containerd: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    def pod_with(amounts: dict[str, Any]) -> Pod:
        sidecar = make_container("side", restartPolicy="Always", resources=amounts)
        spec = {**made.spec, "initContainers": [sidecar]}
        return Pod({**made.object, "spec": spec})  # type: ignore[typeddict-item]

    made = make_pod("side", [make_container("main")])
    async with resizing_node(containerd, work_dir, cgroup_root, per_qos=False) as node:
        pod = pod_with(resources("100m", "32Mi"))
        while not (await node.runtime.refresh(pod)).newest("main"):
            result = await node.runtime.sync(pod)
            assert not result.failed, result.error_message()
        before = started(pod, node, "side")
        bigger = pod_with(resources("200m", "64Mi"))
        result = await node.runtime.sync(bigger)
        assert result.resize == ResizeOutcome(in_progress=False, done=("side",))
        assert await node.of_container(pod, "side") == kept(204, 20_000, 64 * MI)
        assert started(pod, node, "side") == before
        await node.runtime.kill(bigger, pod.uid)
