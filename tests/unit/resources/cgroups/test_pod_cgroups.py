"""The cgroup tree follows the pods, on virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import MemoryQoS, QoSClass
from kubeletpy.pods.runtime_status import SandboxConfigError
from kubeletpy.resources.cgroups.pod_cgroups import PodCgroups
from kubeletpy.resources.cgroups.tree import CgroupTree, ReservedCgroup, TreeOptions
from kubeletpy.resources.cgroups.values import (
    CgroupBusy,
    CgroupError,
    CgroupResources,
    PodCgroupNames,
    PodCgroupSettings,
    ReservedMemory,
)
from tests.kit.cgroups import LookAlike, container, fixed, pod, text, v1_machine, v2_machine
from tests.kit.virtual_time import run

GROUP = "/kubepods/burstable"


class Node:
    """The manager with its tree, pods, volumes and metrics."""

    def __init__(self, root: Path, *, memory_qos: MemoryQoS | None = None, **options: Any) -> None:
        files = LookAlike.at(root)
        self.tree = CgroupTree(
            files,
            TreeOptions(
                names=PodCgroupNames(),
                pods=PodCgroupSettings(pids_limit=50, memory_qos=memory_qos),
                kubepods=CgroupResources(shares=2048, memory=1 << 30),
                **options,
            ),
        )
        self.files = files
        self.pods: list[Pod] = []
        self.events: list[str] = []
        self.volumes: set[str] = set()
        self.metrics = Metrics()
        self.cgroups = PodCgroups(
            self.tree,
            self,
            self.metrics.node,
            node_name="n",
            active_pods=lambda: self.pods,
            in_use=lambda uid: any(p.uid == uid for p in self.pods),
            has_volumes=self.volumes.__contains__,
        )

    def event(self, ref: Any, kind: str, reason: str, text: str, annotations: Any = None) -> None:
        self.events.append(f"{kind} {reason}: {text}")

    def file(self, controller: str, path: str, name: str) -> str:
        top = self.files.root / controller if self.files.version == 1 else self.files.root
        return text(top / path.strip("/") / name)

    async def add(self, made: Pod) -> Pod:
        self.pods.append(made)
        await self.cgroups.ensure(made)
        return made


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    machine = v1_machine if request.param == 1 else v2_machine
    made = Node(machine(tmp_path / "fs"))
    made.tree.prepare()
    return made


def shares(node: Node) -> str:
    name = "cpu.shares" if node.files.version == 1 else "cpu.weight"
    return node.file("cpu", GROUP, name)


def weight(node: Node, v1: str, v2: str) -> str:
    return v1 if node.files.version == 1 else v2


async def test_the_cgroup_of_a_pod_is_created_and_removed(node: Node) -> None:
    made = await node.add(pod(container("500m"), uid="a"))
    path = f"{GROUP}/poda"
    assert node.cgroups.parent(made) == path
    assert node.cgroups.exists(made)
    assert node.file("pids", path, "pids.max") == "50"
    assert shares(node) == weight(node, "512", "20")
    node.pods.clear()
    await node.cgroups.destroy(made)
    assert not node.cgroups.exists(made)
    await node.cgroups.destroy(made)
    durations = node.metrics.render().decode()
    for operation in ("create", "destroy", "update"):
        assert f'_count{{operation_type="{operation}"}}' in durations
    assert f"kubelet_cgroup_version {node.files.version}\n" in durations


async def test_the_burstable_group_follows_its_pods(node: Node) -> None:
    assert shares(node) == weight(node, "2", "1")
    first = await node.add(pod(container("500m"), uid="a"))
    await node.add(pod(container("500m"), uid="b"))
    await node.add(pod(fixed("1", "1Mi"), uid="c"))
    assert shares(node) == weight(node, "1024", "39")
    node.cgroups._refresh()
    node.pods.remove(first)
    await node.cgroups.destroy(first)
    assert shares(node) == weight(node, "512", "20")


async def test_a_start_keeps_the_cpu_shares_of_running_pods(node: Node) -> None:
    await node.add(pod(container("1"), uid="a"))
    await node.add(pod(container("1"), uid="b"))
    was = shares(node)
    again = Node(node.files.root)
    again.tree.prepare()
    again.pods = list(node.pods)
    await again.cgroups.ensure(again.pods[0])
    assert shares(again) == was
    again.cgroups._refresh()
    assert shares(again) == was


async def test_hostile_uids_are_refused(node: Node) -> None:
    hostile = pod(uid="../../x")
    with pytest.raises(CgroupError, match="uid"):
        node.cgroups.exists(hostile)
    with pytest.raises(CgroupError, match="uid"):
        await node.cgroups.ensure(hostile)
    with pytest.raises(SandboxConfigError):
        node.cgroups.parent(hostile)
    with pytest.raises(CgroupError, match="resources of pod default/p"):
        await node.cgroups.ensure(pod(container("many"), status={"qosClass": "Burstable"}))


async def test_orphans_are_removed_once_all_pods_are_known(node: Node) -> None:
    kept = await node.add(pod(container("1"), uid="kept"))
    node.files.create("/kubepods/podgone", CgroupResources())
    node.files.create("/kubepods/burstable/podmounted", CgroupResources(shares=1024))
    node.volumes.add("mounted")
    node.cgroups._refresh()
    await node.cgroups.close()
    assert node.files.exists("/kubepods/podgone")
    node.cgroups.sweep_soon()
    await node.cgroups.close()
    assert not node.files.exists("/kubepods/podgone")
    assert node.cgroups.exists(kept)
    name = weight(node, "cpu.shares", "cpu.weight")
    assert node.file("cpu", "/kubepods/burstable/podmounted", name) == weight(node, "2", "1")
    node.volumes.clear()
    node.cgroups.sweep_soon()
    await node.cgroups.close()
    assert not node.files.exists("/kubepods/burstable/podmounted")


def test_limits_of_the_node_are_set_and_reported(tmp_path: Path) -> None:
    root = v1_machine(tmp_path / "fs")
    reserved = (
        ReservedCgroup("System Reserved", "/system", CgroupResources(shares=100)),
        ReservedCgroup("Kube Reserved Compressible", "/none", CgroupResources(shares=100)),
    )

    async def scenario() -> Node:
        node = Node(root, reserved=reserved)
        node.tree.prepare()
        node.files.create("/system", CgroupResources())
        (root / "memory" / "kubepods" / "memory.limit_in_bytes").unlink()
        (root / "memory" / "kubepods" / "memory.limit_in_bytes").mkdir()
        task = asyncio.create_task(node.cgroups.run())
        await asyncio.sleep(30)
        (root / "memory" / "kubepods" / "memory.limit_in_bytes").rmdir()
        (root / "memory" / "kubepods" / "memory.limit_in_bytes").write_text("")
        await asyncio.sleep(100)
        task.cancel()
        return node

    node = run(scenario())
    assert [event.split(": ")[0:2] for event in node.events] == [
        ["Normal NodeAllocatableEnforced", "Updated limits on system reserved cgroup /system"],
        [
            "Warning FailedNodeAllocatableEnforcement",
            'Failed to enforce Kube Reserved Compressible Cgroup Limits on "/none"',
        ],
        [
            "Warning FailedNodeAllocatableEnforcement",
            'Failed to update Node Allocatable Limits "/kubepods"',
        ],
        ["Normal NodeAllocatableEnforced", "Updated Node Allocatable limit across pods"],
    ]
    assert node.file("memory", "/kubepods", "memory.limit_in_bytes") == str(1 << 30)
    assert node.file("cpu", "/system", "cpu.shares") == "100"


async def test_killed_processes_are_waited_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await node.add(pod(uid="a"))
    busy = iter([CgroupBusy("x"), CgroupBusy("x"), None])
    really = node.files.remove_tree

    def remove_tree(path: str) -> None:
        error = next(busy)
        if error is not None:
            raise error
        really(path)

    monkeypatch.setattr(node.files, "remove", lambda path: False)
    monkeypatch.setattr(node.files, "remove_tree", remove_tree)
    removal = asyncio.create_task(node.cgroups.destroy(made))
    await asyncio.sleep(0)
    with pytest.raises(CgroupError, match="is being removed"):
        await node.cgroups.ensure(made)
    await removal
    assert not node.cgroups.exists(made)


def test_limits_that_were_lost_or_could_not_be_set_are_set_again(tmp_path: Path) -> None:
    root = v1_machine(tmp_path / "fs")
    reserved = (ReservedCgroup("Kube Reserved", "/daemons", CgroupResources(memory=1 << 20)),)
    files = {
        path: root / "memory" / path / "memory.limit_in_bytes" for path in ("daemons", "kubepods")
    }

    async def scenario() -> Node:
        node = Node(root, reserved=reserved)
        node.tree.prepare()
        task = asyncio.create_task(node.cgroups.run())
        await asyncio.sleep(90)
        node.files.create("/daemons", CgroupResources())  # its service has started
        await asyncio.sleep(60)
        assert text(files["daemons"]) == str(1 << 20)
        for file in files.values():
            file.write_text("9223372036854771712")
        await asyncio.sleep(60)
        task.cancel()
        return node

    node = run(scenario())
    assert (text(files["daemons"]), text(files["kubepods"])) == (str(1 << 20), str(1 << 30))
    assert [event.partition(":")[0] for event in node.events] == [
        "Warning FailedNodeAllocatableEnforcement",
        "Normal NodeAllocatableEnforced",
        "Normal NodeAllocatableEnforced",
    ]


class Kept:
    """A cgroup v2 node with MemoryQoS."""

    def __init__(self, root: Path, qos: MemoryQoS | None) -> None:
        self.node = Node(v2_machine(root) if not root.exists() else root, memory_qos=qos)
        self.node.tree.prepare()

    def groups(self) -> tuple[str, str]:
        file = self.node.file
        return file("", "/kubepods", "memory.min"), file("", GROUP, "memory.low")

    def pod(self, path: str) -> tuple[str, str]:
        return self.node.file("", path, "memory.min"), self.node.file("", path, "memory.low")


async def test_requested_memory_is_protected(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "fs", MemoryQoS(tiered=True))
    burstable = await kept.node.add(pod(container("1", "1Ki"), uid="b"))
    await kept.node.add(pod(fixed("1", "2Ki"), uid="g"))
    await kept.node.add(pod(uid="e"))
    assert kept.groups() == ("3072", "1024")
    assert kept.node.file("", "/kubepods", "memory.low") == "1024"
    assert kept.pod(f"{GROUP}/podb") == ("", "1024")
    assert kept.pod("/kubepods/podg") == ("2048", "")
    assert kept.pod("/kubepods/besteffort/pode") == ("", "")
    reported = kept.node.metrics.render().decode()
    assert "kubelet_memory_qos_node_memory_min_bytes 2048\n" in reported
    assert "kubelet_memory_qos_node_memory_low_bytes 1024\n" in reported
    resized = pod(container("1", "4Ki"), uid="b")
    kept.node.pods[0] = resized
    kept.node.cgroups.resized(resized)
    assert (kept.groups(), kept.pod(f"{GROUP}/podb")) == (("6144", "4096"), ("", "4096"))
    kept.node.cgroups._refresh()
    kept.node.pods.remove(resized)
    await kept.node.cgroups.destroy(burstable)
    assert kept.groups() == ("2048", "0")


async def test_a_start_keeps_protection_until_all_pods_are_counted(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "fs", MemoryQoS(tiered=True))
    await kept.node.add(pod(container("1", "1Ki"), uid="b"))
    await kept.node.add(pod(fixed("1", "2Ki"), uid="g"))
    again = Kept(tmp_path / "fs", MemoryQoS(tiered=True))
    again.node.pods = list(kept.node.pods)
    await again.node.cgroups.ensure(again.node.pods[0])
    assert again.groups() == ("3072", "1024")
    again.node.pods.pop()
    again.node.cgroups._refresh()
    assert again.groups() == ("1024", "1024")


@pytest.mark.parametrize(("qos", "groups"), [(MemoryQoS(), ("0", "0")), (None, ("0", "0"))])
async def test_without_the_policy_protection_is_removed(
    tmp_path: Path, qos: MemoryQoS | None, groups: tuple[str, str]
) -> None:
    kept = Kept(tmp_path / "fs", MemoryQoS(tiered=True))
    await kept.node.add(pod(container("1", "1Ki"), uid="b"))
    await kept.node.add(pod(fixed("1", "2Ki"), uid="g"))
    again = Kept(tmp_path / "fs", qos)
    again.node.pods = list(kept.node.pods)
    await again.node.cgroups.ensure(again.node.pods[0])
    assert again.groups() == groups
    assert again.node.file("", "/kubepods", "memory.low") == "0"


async def test_nothing_is_cleared_where_nothing_was_protected(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "fs", None)
    await kept.node.add(pod(fixed("1", "2Ki"), uid="g"))
    kept.node.cgroups._refresh()
    assert kept.groups() == ("", "")


async def test_a_pod_with_pod_level_resources_is_throttled(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "fs", MemoryQoS(tiered=True, throttling_factor=0.5))

    def with_memory(request: str, limit: str) -> Pod:
        resources = {"requests": {"memory": request}, "limits": {"memory": limit}}
        return pod(container(), uid="b", resources=resources)

    def high() -> str:
        return kept.node.file("", f"{GROUP}/podb", "memory.high")

    await kept.node.add(with_memory("8Ki", "24Ki"))
    assert (high(), kept.pod(f"{GROUP}/podb")) == ("16384", ("", "8192"))
    kept.node.cgroups.resized(with_memory("16Ki", "48Ki"))
    assert (high(), kept.pod(f"{GROUP}/podb")) == ("32768", ("", "16384"))
    kept.node.cgroups.resized(with_memory("48Ki", "48Ki"))
    assert high() == "max"
    await kept.node.add(pod(container("1", "1Ki"), uid="plain"))
    assert kept.node.file("", f"{GROUP}/podplain", "memory.high") == ""


def limits(node: Node) -> tuple[str, str]:
    name = weight(node, "memory.limit_in_bytes", "memory.max")
    return node.file("memory", GROUP, name), node.file("memory", "/kubepods/besteffort", name)


async def test_memory_that_better_pods_request_is_reserved(node: Node) -> None:
    again = Node(node.files.root, memory=ReservedMemory(50, 1 << 30))
    await again.add(pod(fixed("1", "512Mi"), uid="g"))
    assert limits(again) == (str(768 << 20), str(768 << 20))
    burstable = await again.add(pod(container("1", "256Mi"), uid="b"))
    assert limits(again) == (str(768 << 20), str(640 << 20))
    used = again.files.root / ("memory" if again.files.version == 1 else "")
    name = weight(again, "memory.usage_in_bytes", "memory.current")
    (used / "kubepods" / "besteffort" / name).write_text(str(700 << 20))
    again.cgroups._refresh()
    assert limits(again) == (str(768 << 20), str(700 << 20))
    # right after a start not all pods are known: limits are not raised yet
    started = Node(node.files.root, memory=ReservedMemory(50, 1 << 30))
    started.pods = list(again.pods)
    await started.cgroups.ensure(burstable)
    assert limits(started) == (str(768 << 20), str(700 << 20))
    started.pods.clear()
    started.cgroups._refresh()
    assert limits(started) == (str(1 << 30), str(1 << 30))


@pytest.mark.parametrize(
    ("percent", "guaranteed", "burstable", "desired"),
    [
        (0, 600, 600, (1000, 1000)),
        (100, 600, 300, (400, 100)),
        (100, 600, 600, (400, -200)),
        (33, 100, 100, (967, 934)),
    ],
)
def test_memory_limits_of_groups(
    percent: int, guaranteed: int, burstable: int, desired: tuple[int, int]
) -> None:
    found = ReservedMemory(percent, 1000).limits(guaranteed, burstable)
    assert (found[QoSClass.BURSTABLE], found[QoSClass.BEST_EFFORT]) == desired
