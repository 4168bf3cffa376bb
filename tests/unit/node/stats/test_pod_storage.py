"""Disk usage of a few chosen pods, and the calls to the runtime for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.clock import SystemClock
from kubeletpy.node.stats.disk_plan import PodStorage, pod_storage
from kubeletpy.node.stats.disks import DiskMeter
from kubeletpy.node.stats.pod_storage import REQUESTED_ONE_BY_ONE, StorageMeter, StorageSources
from kubeletpy.node.stats.usage import PodDisk, TreeUse, VolumeUse
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    SandboxStatus,
)
from kubeletpy.remote.errors import CRIError, ResourceExhausted, Unavailable
from kubeletpy.remote.generated import api_pb2 as cri
from tests.kit.pods import make_pod
from tests.kit.virtual_time import on_virtual_time

BLOCK = 4096


def use(used: int) -> TreeUse:
    return TreeUse(1, used, 1)


@pytest.mark.parametrize("apart", [False, True])
def test_usage_by_volume_container_and_pod(apart: bool) -> None:
    disk = PodDisk(
        volumes=(VolumeUse("disk", use(10), True), VolumeUse("key", use(20), False)),
        logs={"a": use(100), "b": use(200)},
        others=(use(1), use(50)),
        parts={"b": use(50), "c": use(7), "d": TreeUse(1, None, None)},
    )
    found = pod_storage(disk, {"a": 1000, "new": 3000}, layers_apart=apart)
    assert found.volumes == {"disk": 10, "key": 20}
    layers = {"a": 1000, "new": 3000}
    assert found.containers == (
        {"a": 100, "b": 250, "c": 7, "d": 0}
        if apart
        else {"a": 1100, "b": 250, "c": 7, "d": 0, "new": layers["new"]}
    )
    assert found.total == 10 + 100 + 200 + 51 + 4000


class Runtime:
    """Layers of 70 bytes a container; ``requested`` holds the requested sandboxes, None: all."""

    def __init__(self, mountpoint: Path) -> None:
        self.mountpoint = mountpoint
        self.error: CRIError | None = None
        self.too_large: set[str | None] = set()
        self.requested: list[str | None] = []
        self.file_systems = 0

    async def list_container_stats(
        self, filter: cri.ContainerStatsFilter | None = None
    ) -> Sequence[cri.ContainerStats]:
        self.requested.append(filter.pod_sandbox_id if filter is not None else None)
        if self.requested[-1] in self.too_large:
            raise ResourceExhausted("ListContainerStats", "larger than max")
        if self.error is not None:
            raise self.error
        uids = [filter.pod_sandbox_id] if filter is not None else ["sb-u0", "sb-u1", "sb-other"]
        return [self._stats(uid.removeprefix("sb-")) for uid in uids]

    def _stats(self, uid: str) -> cri.ContainerStats:
        return cri.ContainerStats(
            attributes=cri.ContainerAttributes(id=f"{uid}-main"),
            writable_layer=cri.FilesystemUsage(
                timestamp=6, used_bytes=cri.UInt64Value(value=70_000)
            ),
        )

    async def image_fs_info(self) -> cri.ImageFsInfoResponse:
        self.file_systems += 1
        if self.error is not None:
            raise self.error
        where = cri.FilesystemIdentifier(mountpoint=str(self.mountpoint))
        return cri.ImageFsInfoResponse(image_filesystems=[cri.FilesystemUsage(fs_id=where)])


class Node:
    """Pods on a directory; each has an emptyDir and a log of one block."""

    def __init__(self, directory: Path, pods: int = 2) -> None:
        self.runtime = Runtime(directory)
        self.directory = directory
        volumes = [{"name": "disk", "emptyDir": {"sizeLimit": "1Mi"}}]
        self.pods = {f"u{n}": make_pod(f"p{n}", f"u{n}", volumes=volumes) for n in range(pods)}
        self.ready = True
        for uid, pod in self.pods.items():
            self.write(self.volume(uid) / "file")
            self.write(directory / f"logs/default_{pod.name}_{uid}/main/0.log")
        runtime = cast(Any, self.runtime)
        self.meter = StorageMeter(
            StorageSources(
                runtime=runtime,
                images=runtime,
                status=self.status,
                pod=self.pods.get,
                disks=DiskMeter(SystemClock(), 10.0, patient=True),
                root_dir=str(directory),
                pod_logs_dir=str(directory / "logs"),
            )
        )

    def volume(self, uid: str) -> Path:
        return self.directory / f"pods/{uid}/volumes/kubernetes.io~empty-dir/disk"

    def write(self, path: Path, blocks: int = 1) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * BLOCK * blocks)

    def status(self, uid: str) -> PodRuntimeStatus | None:
        if uid not in self.pods:
            return None
        return PodRuntimeStatus(
            uid,
            self.pods[uid].name,
            "default",
            sandboxes=(SandboxStatus(f"sb-{uid}", ready=self.ready, created_at=2),),
            containers=(ContainerStatus(f"{uid}-main", "main", ContainerState.RUNNING),),
        )


async def test_only_the_requested_pods_are_measured(tmp_path: Path) -> None:
    node = Node(tmp_path)
    found = await node.meter.measure({"u0": False, "nobody": False})
    assert set(found) == {"u0"}
    assert BLOCK <= found["u0"].volumes["disk"] < 4 * BLOCK
    assert BLOCK <= found["u0"].containers["main"] < 4 * BLOCK
    assert found["u0"].total >= 2 * BLOCK
    assert (node.runtime.requested, node.runtime.file_systems) == ([], 0)
    await node.meter.close()


@on_virtual_time
async def test_an_answer_is_as_of_now(tmp_path: Path) -> None:
    node = Node(tmp_path)
    before = (await node.meter.measure({"u0": False}))["u0"].volumes["disk"]
    node.write(node.volume("u0") / "more", 10)
    await asyncio.sleep(10)
    after = (await node.meter.measure({"u0": False}))["u0"].volumes["disk"]
    assert after == before + 10 * BLOCK
    await node.meter.close()


async def test_layers_are_measured_only_where_requested(tmp_path: Path) -> None:
    node = Node(tmp_path)
    found = await node.meter.measure({"u0": True, "u1": False})
    assert found["u0"].containers["main"] >= 70_000
    assert found["u0"].total >= 70_000
    assert found["u1"].containers["main"] < 70_000
    assert node.runtime.requested == ["sb-u0"]
    await node.meter.measure({"u0": True})
    assert node.runtime.file_systems == 1, "what does not change is requested once"
    await node.meter.close()


async def test_stats_of_many_pods_take_one_call(tmp_path: Path) -> None:
    node = Node(tmp_path, REQUESTED_ONE_BY_ONE + 1)
    found = await node.meter.measure(dict.fromkeys(node.pods, True))
    assert node.runtime.requested == [None]
    assert found["u1"].containers["main"] >= 70_000
    assert found["u2"].containers["main"] < 70_000, "the runtime did not report it"
    await node.meter.close()


async def test_after_an_answer_that_is_too_large_each_pod_is_requested(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, REQUESTED_ONE_BY_ONE + 2)
    node.runtime.too_large = {None}
    found = await node.meter.measure(dict.fromkeys(node.pods, True))
    assert sorted(map(str, node.runtime.requested)) == ["None", *(f"sb-{uid}" for uid in node.pods)]
    assert all(each.containers["main"] >= 70_000 for each in found.values())
    assert not caplog.records
    node.runtime.too_large.add("sb-u1")
    for _ in range(3):
        found = await node.meter.measure(dict.fromkeys(node.pods, True))
        assert {uid for uid in found if found[uid].containers["main"] < 70_000} == {"u1"}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    await node.meter.close()


async def test_layers_on_a_file_system_of_their_own(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.runtime.mountpoint = Path("/proc")
    found = await node.meter.measure({"u0": True})
    assert found["u0"].containers["main"] < 70_000
    assert found["u0"].total >= 70_000
    await node.meter.close()


async def test_a_runtime_without_an_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path)
    node.runtime.error = Unavailable("ListContainerStats", "gone")
    for _ in range(3):
        found = await node.meter.measure({"u0": True})
        assert BLOCK <= found["u0"].volumes["disk"] < 4 * BLOCK, "volumes are measured anyway"
        assert found["u0"].containers["main"] < 70_000
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    node.runtime.error = None
    assert (await node.meter.measure({"u0": True}))["u0"].containers["main"] >= 70_000
    await node.meter.close()


async def test_the_place_of_layers_is_requested_until_it_exists(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.runtime.mountpoint = tmp_path / "not-yet"
    found = await node.meter.measure({"u0": True})
    assert found["u0"].containers["main"] < 70_000, "in doubt nobody is evicted"
    node.runtime.mountpoint = tmp_path
    assert (await node.meter.measure({"u0": True}))["u0"].containers["main"] >= 70_000
    await node.meter.close()


async def test_a_pod_that_does_not_run_is_left_out(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.ready = False
    assert await node.meter.measure({"u0": True}) == {}
    assert await node.meter.measure({}) == {}
    assert node.runtime.requested == []
    await node.meter.close()


def test_nothing_known() -> None:
    assert pod_storage(PodDisk(), {}, layers_apart=False) == PodStorage()
