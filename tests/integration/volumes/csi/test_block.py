"""CSI volumes as devices: loop devices, bound, held and linked for pods."""

from __future__ import annotations

import asyncio
import os

import pytest

from kubeletpy.base.host import machine
from kubeletpy.volumes.claims.model import FailureOutcome, OperationFailed
from kubeletpy.volumes.files.disk import mounts_below
from tests.csi_driver.faults import Fault
from tests.csi_driver.services import Options

from .conftest import Node, at, csi_node, use

TOP = "plugins/kubernetes.io/csi/volumeDevices"


def holds(node: Node, uid: str) -> str | None:
    """The loop device that holds a pod's device."""
    return machine.loop_device_of(str(node.root / TOP / "pv" / "dev" / uid))


def first_bytes(path: str) -> bytes:
    """The first five bytes of a device."""
    with at(path).open("rb") as device:
        return device.read(5)


async def test_life_of_a_device_of_two_pods(node: Node) -> None:
    spec = node.spec(node.volume(block=True), block=True)
    await node.plugin.stage(spec, None, use("u1"))
    published = await node.plugin.publish(spec, None, use("u1"), remount=False)
    other = await node.plugin.publish(spec, None, use("u2"), remount=False)
    assert published.path == str(node.root / "pods/u1/volumeDevices/kubernetes.io~csi/pv")
    assert at(published.path).is_symlink()
    assert at(published.path).is_block_device()
    at(published.path).write_bytes(b"hello")
    os.sync()
    assert first_bytes(other.path) == b"hello"
    assert holds(node, "u1")
    requested = node.driver.faults.last("NodePublishVolume")
    assert requested.volume_capability.WhichOneof("access_type") == "block"
    assert requested.target_path == str(node.root / TOP / "publish/pv/u2")

    await node.plugin.unpublish(node.plugin.published(spec, "u1"))
    assert holds(node, "u1") is None
    assert not at(published.path).is_symlink()
    with pytest.raises(OperationFailed, match="still referenced from other Pods"):
        await node.plugin.unstage(node.plugin.staged(spec))
    await node.plugin.unpublish(node.plugin.published(spec, "u2"))
    await node.plugin.unstage(node.plugin.staged(spec))
    assert mounts_below(str(node.root)) == []
    assert [entry for entry in node.left() if "pv" in entry] == []


async def test_without_staging() -> None:
    async with csi_node(Options(stage=False)) as node:
        spec = node.spec(node.volume(block=True), block=True)
        await node.plugin.stage(spec, None, use())
        await node.plugin.publish(spec, None, use(), remount=False)
        requested = node.driver.faults.last("NodePublishVolume")
        assert requested.staging_target_path == str(node.root / TOP / "staging/pv")
        await node.plugin.unpublish(node.plugin.published(spec, "u1"))
        await node.plugin.unstage(node.plugin.staged(spec))
        assert [entry for entry in node.left() if "pv" in entry] == []


async def test_volumes_of_an_earlier_agent_are_found_and_taken_down(node: Node) -> None:
    spec = node.spec(node.volume(block=True), block=True)
    await node.plugin.stage(spec, None, use())
    published = await node.plugin.publish(spec, None, use(), remount=False)
    at(published.path).unlink()  # killed in between
    found = await asyncio.to_thread(node.plugin.find_on_disk)
    assert [(v.unique_name, v.pod_uid) for v in found.published] == [(spec.unique_name, "u1")]
    assert [v.unique_name for v in found.staged] == [spec.unique_name]
    await node.plugin.unpublish(found.published[0])
    await node.plugin.unstage(found.staged[0])
    assert mounts_below(str(node.root)) == []
    found = await asyncio.to_thread(node.plugin.find_on_disk)
    assert (found.published, found.staged) == ((), ())


async def test_published_without_a_device(node: Node) -> None:
    spec = node.spec(node.volume(block=True), block=True)
    await node.plugin.stage(spec, None, use())
    node.driver.faults.by_method["NodePublishVolume"] = Fault(skip=True)
    with pytest.raises(OperationFailed, match="device of driver") as raised:
        await node.plugin.publish(spec, None, use(), remount=False)
    assert raised.value.outcome is FailureOutcome.UNCERTAIN
    await node.plugin.unpublish(node.plugin.published(spec, "u1"))
    await node.plugin.unstage(node.plugin.staged(spec))
