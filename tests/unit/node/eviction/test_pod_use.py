"""Resource use of a running pod from its readings; missing readings stay unknown."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.node.eviction.ranking import DiskUse, Use, candidate
from kubeletpy.node.stats.usage import (
    CgroupUsage,
    GroupKind,
    GroupStats,
    PodDisk,
    PodReading,
    PodRef,
    TreeUse,
    VolumeUse,
)
from kubeletpy.pods.pod import Pod


def pod(**spec: Any) -> Pod:
    meta = {"name": "p", "namespace": "d", "uid": "u"}
    full = {"containers": [{"name": "a"}, {"name": "b"}], **spec}
    return Pod({"metadata": meta, "spec": full})  # type: ignore[typeddict-item]


def tree(used: int | None, inodes: int | None) -> TreeUse:
    return TreeUse(0, used, inodes)


def container(name: str, stats: GroupStats | None, layer: TreeUse | None = None) -> CgroupUsage:
    return CgroupUsage(GroupKind.CONTAINER, stats, name=name, layer=layer)


def reading(
    *containers: CgroupUsage, whole: GroupStats | None = None, processes: int | None = None
) -> PodReading:
    group = CgroupUsage(GroupKind.POD, whole)
    return PodReading(PodRef("u", "p", "d"), group, None, containers, processes=processes)


def used(found: PodReading, disk: PodDisk | None = None) -> Any:
    return candidate(pod(), found, disk).use


def test_a_pod_that_does_not_run_has_no_use() -> None:
    assert candidate(pod(), None, None).use is None
    assert candidate(pod(), reading(), None).use is None


@pytest.mark.parametrize(("priority", "expected"), [(None, 0), (5, 5), (-5, -5)])
def test_the_priority(priority: int | None, expected: int) -> None:
    assert candidate(pod(priority=priority), None, None).priority == expected


PAIR = (
    container("a", GroupStats(working_set=3, pids=2)),
    container("b", GroupStats(working_set=4, pids=None)),
    container("c", None),
)


@pytest.mark.parametrize(
    ("found", "memory", "tasks"),
    [
        (reading(*PAIR), 7, 2),
        (reading(*PAIR, whole=GroupStats(working_set=9)), 9, 2),
        (reading(*PAIR, whole=GroupStats(working_set=0, pids=0)), 0, 0),
        (reading(*PAIR, whole=GroupStats(pids=8), processes=5), 7, 8),
        (reading(PAIR[1], processes=5), 4, 5),
        (reading(PAIR[1]), 4, 0),
        (reading(container("a", GroupStats())), 0, 0),
        (reading(PAIR[2], processes=5), 0, 5),
    ],
)
def test_memory_and_tasks(found: PodReading, memory: int, tasks: int) -> None:
    use = used(found)
    assert (use.memory, use.tasks) == (memory, tasks)


def test_disk() -> None:
    disk = PodDisk(
        volumes=(
            VolumeUse("e", tree(100, 1), ephemeral=True),
            VolumeUse("f", tree(None, None), ephemeral=True),
            VolumeUse("c", tree(1000, 10), ephemeral=False),
        ),
        logs={"a": tree(7, 2), "x": tree(1, 1)},
        others=(tree(20, 5),),
    )
    found = reading(
        container("a", None, tree(30, 3)),
        container("b", None, tree(4, None)),
        container("d", None, None),
    )
    use = used(found, disk)
    assert use.disk.layers == (34, 3)
    assert use.disk.layers_at == tree(30, 3).at
    assert used(reading(container("d", None, None))).disk.layers_at is None
    new = replace(tree(0, 0), uncounted=True)
    assert (
        used(reading(container("a", None, tree(30, 3)), container("n", None, new))).disk.layers_at
        == 0
    )
    assert use.disk.logs == (28, 8)
    assert use.disk.volumes == (100, 1)
    # messages name containers of the spec, where both numbers are known
    assert [(c.name, c.storage) for c in use.containers] == [("a", 37), ("b", None)]
    assert not use.disk.pending
    assert used(found, replace(disk, pending=True)).disk.pending
    without = used(found)
    assert (without.disk.logs, without.disk.volumes) == ((0, 0), (0, 0))


@pytest.mark.parametrize(
    ("logs", "layer", "storage"),
    [
        (tree(1, 1), tree(2, 2), 3),
        (tree(None, 1), tree(2, 2), 2),
        (None, tree(2, 2), None),
        (tree(1, 1), None, None),
    ],
)
def test_storage_of_a_container(logs: Any, layer: Any, storage: int | None) -> None:
    disk = PodDisk(logs={} if logs is None else {"a": logs})
    (found,) = used(reading(container("a", GroupStats(working_set=5), layer)), disk).containers
    assert (found.storage, found.memory) == (storage, 5)


@pytest.mark.parametrize(
    ("layers", "at"),
    [
        ([], None),
        ([TreeUse(7, 1, 1)], 7),
        ([TreeUse(7, 1, 1), TreeUse(5, 1, 1), TreeUse(6, 1, 1)], 5),
        ([TreeUse(7, 1, 1), TreeUse(8, None, None, uncounted=True)], 0),
        ([TreeUse(8, None, None, uncounted=True)], 0),
    ],
)
def test_layers_are_as_old_as_the_oldest(layers: list[TreeUse], at: int | None) -> None:
    found = used(reading(*(container(str(i), None, layer) for i, layer in enumerate(layers)),
                         container("x", None)))  # fmt: skip
    assert found.disk.layers_at == at


def test_missing_fields_default_to_zero() -> None:
    nothing = DiskUse((0, 0), (0, 0), (0, 0), None, pending=False)
    assert Use() == Use(memory=0, tasks=0, disk=nothing, containers=())
