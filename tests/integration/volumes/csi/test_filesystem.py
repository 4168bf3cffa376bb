"""CSI volumes with a file system: real mounts by a real driver, also when it fails."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest

from kubeletpy.kubeapi.protocol import SECRETS
from kubeletpy.remote.errors import Code
from kubeletpy.volumes.claims.model import (
    ExpansionFailed,
    ExpansionProblem,
    FailureOutcome,
    OperationFailed,
)
from kubeletpy.volumes.csi import client as client_module
from kubeletpy.volumes.csi import objects
from kubeletpy.volumes.files.disk import MS_BIND, mount, mounts_below, unmount
from tests.csi_driver.faults import Fault
from tests.csi_driver.services import Options

from .conftest import DRIVER, Node, at, csi_node, use


async def test_life_of_a_volume_of_two_pods(node: Node) -> None:
    spec = node.spec(node.volume(), source={"volumeAttributes": {"a": "1"}, "fsType": "ext4"})
    one, two = use("u1"), use("u2")
    await node.plugin.stage(spec, {"attached": "yes"}, one)
    first = await node.plugin.publish(spec, {"attached": "yes"}, one, remount=False)
    second = await node.plugin.publish(spec, {"attached": "yes"}, two, remount=False)
    at(first.path, "hello").write_text("world")
    assert at(second.path, "hello").read_text() == "world"
    assert (first.give_to_group, first.selinux_relabel) == (False, False)
    request = node.driver.faults.last("NodePublishVolume")
    assert dict(request.publish_context) == {"attached": "yes"}
    assert dict(request.volume_context) == {"a": "1"}
    assert request.volume_capability.mount.fs_type == "ext4"
    assert node.driver.faults.names().count("NodeGetCapabilities") == 1
    data = json.loads(at(first.path).with_name("vol_data.json").read_text())
    assert data["specVolID"] == "pv"
    assert data["driverName"] == DRIVER

    await node.plugin.unpublish(node.plugin.published(spec, "u1"))
    assert at(second.path, "hello").read_text() == "world"
    with pytest.raises(OperationFailed, match="still mounted by other references"):
        await node.plugin.unstage(node.plugin.staged(spec))
    await node.plugin.unpublish(node.plugin.published(spec, "u2"))
    await node.plugin.unstage(node.plugin.staged(spec))
    assert [entry for entry in node.left() if "vol_data" in entry or "mount" in entry] == []
    assert mounts_below(str(node.root)) == []
    assert (node.data(spec.handle) / "hello").read_text() == "world"


async def test_calls_for_a_volume_of_a_kind_that_became_a_driver_are_counted_apart(
    node: Node,
) -> None:
    spec = node.spec(node.volume(), migrated=True)
    await node.plugin.stage(spec, None, use())
    await node.plugin.publish(spec, None, use(), remount=False)
    await node.plugin.unpublish(node.plugin.published(spec, use().uid))
    await node.plugin.unstage(node.plugin.staged(spec))
    scrape = node.metrics.render().decode()
    for method, migrated in (
        ("NodeStageVolume", "true"),
        ("NodePublishVolume", "true"),
        ("NodeUnpublishVolume", "false"),
    ):
        found = f'grpc_status_code="OK",method_name="/csi.v1.Node/{method}",migrated="{migrated}"'
        counted = [line for line in scrape.splitlines() if method in line and "_count" in line]
        assert len(counted) == 1
        assert all(part in counted[0] for part in found.split(","))


async def test_each_operation_is_idempotent(node: Node) -> None:
    spec = node.spec(node.volume())
    for _ in range(2):
        await node.plugin.stage(spec, None, use())
    for remount in (False, True):
        published = await node.plugin.publish(spec, None, use(), remount=remount)
    at(published.path, "x").touch()
    for _ in range(2):
        await node.plugin.unpublish(node.plugin.published(spec, "u1"))
    for _ in range(2):
        await node.plugin.unstage(node.plugin.staged(spec))
    assert mounts_below(str(node.root)) == []


async def test_read_only(node: Node) -> None:
    spec = node.spec(node.volume(), read_only=True, access_modes=("ReadOnlyMany",))
    await node.plugin.stage(spec, None, use())
    published = await node.plugin.publish(spec, None, use(fs_group=7), remount=False)
    with pytest.raises(OSError, match="Read-only"):
        at(published.path, "x").touch()
    assert not published.give_to_group


async def test_a_driver_that_does_not_stage() -> None:
    async with csi_node(Options(stage=False)) as node:
        spec = node.spec(node.volume(), source={"fsType": "xfs"})
        await node.plugin.stage(spec, None, use())
        assert node.left() == []
        published = await node.plugin.publish(spec, None, use(fs_group=7), remount=False)
        assert published.give_to_group
        assert node.driver.faults.last("NodePublishVolume").staging_target_path == ""
        await node.plugin.unpublish(node.plugin.published(spec, "u1"))
        await node.plugin.unstage(node.plugin.staged(spec))
        assert "NodeUnstageVolume" not in node.driver.faults.names()
        assert mounts_below(str(node.root)) == []


async def test_a_driver_that_applies_the_group_itself() -> None:
    async with csi_node(Options(group=True)) as node:
        spec = node.spec(node.volume(), source={"fsType": "xfs"})
        await node.plugin.stage(spec, None, use(fs_group=7))
        published = await node.plugin.publish(spec, None, use(fs_group=7), remount=False)
        assert not published.give_to_group
        for method in ("NodeStageVolume", "NodePublishVolume"):
            requested = node.driver.faults.last(method).volume_capability.mount
            assert requested.volume_mount_group == "7"


async def test_inline_with_pod_info_tokens_and_secret(node: Node) -> None:
    node.objects._objects[DRIVER] = objects.read(
        {
            "spec": {
                "podInfoOnMount": True,
                "volumeLifecycleModes": ["Ephemeral"],
                "fsGroupPolicy": "File",
                "tokenRequests": [{"audience": "vault", "expirationSeconds": 600}],
            }
        }
    )
    secret = {"key": base64.b64encode(b"hunter2").decode()}
    node.cluster.put(SECRETS, "s", "default", data=secret)
    source = {"driver": DRIVER, "nodePublishSecretRef": {"name": "s"}}
    spec = node.spec("", inline=True, source=source, access_modes=(), spec_name="data")
    published = await node.plugin.publish(spec, None, use(), remount=False)
    assert at(published.path).is_dir()
    requested = node.driver.faults.last("NodePublishVolume")
    context = dict(requested.volume_context)
    tokens = json.loads(context.pop("csi.storage.k8s.io/serviceAccount.tokens"))
    assert tokens["vault"]["token"] == "T"
    assert context == {
        "csi.storage.k8s.io/pod.name": "pod-u1",
        "csi.storage.k8s.io/pod.namespace": "default",
        "csi.storage.k8s.io/pod.uid": "u1",
        "csi.storage.k8s.io/serviceAccount.name": "sa",
        "csi.storage.k8s.io/ephemeral": "true",
    }
    assert dict(requested.secrets) == {"key": "hunter2"}
    assert requested.volume_id.startswith("csi-")
    await node.plugin.unpublish(node.plugin.published(spec, "u1"))
    assert mounts_below(str(node.root)) == []


async def test_inline_is_refused_by_a_driver_that_does_not_list_it(node: Node) -> None:
    spec = node.spec("", inline=True, source={"driver": DRIVER}, spec_name="data")
    with pytest.raises(OperationFailed, match="'Ephemeral' not supported") as raised:
        await node.plugin.publish(spec, None, use(), remount=False)
    assert raised.value.outcome is FailureOutcome.TRANSIENT
    assert node.left() == []


async def test_a_secret_never_leaves_by_an_error(node: Node) -> None:
    node.cluster.put(SECRETS, "s", "x", data={"k": base64.b64encode(b"hunter2").decode()})
    reference = {"nodeStageSecretRef": {"name": "s", "namespace": "x"}}
    spec = node.spec(node.volume(), source=reference)
    fault = Fault(code="UNAUTHENTICATED", message="wrong password: hunter2")
    node.driver.faults.by_method["NodeStageVolume"] = fault
    with pytest.raises(OperationFailed) as raised:
        await node.plugin.stage(spec, None, use())
    assert "hunter2" not in str(raised.value)
    assert "NodeStageVolume of driver test.csi.example.com" in str(raised.value)
    missing = node.spec(spec.handle, source={"nodeStageSecretRef": {"name": "t", "namespace": "x"}})
    with pytest.raises(OperationFailed, match='secret "x/t" could not be read') as raised:
        await node.plugin.stage(missing, None, use())
    assert raised.value.outcome is FailureOutcome.TRANSIENT


UNCERTAIN = {"CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED"}


@pytest.mark.parametrize("code", [code.value for code in Code if code is not Code.OK])
async def test_outcomes_and_leftovers_of_each_failure(node: Node, code: str) -> None:
    spec = node.spec(node.volume())
    faults = node.driver.faults.by_method
    uncertain = code in UNCERTAIN
    outcome = FailureOutcome.UNCERTAIN if uncertain else FailureOutcome.FINAL
    faults["NodeStageVolume"] = Fault(code=code, times=1)
    with pytest.raises(OperationFailed) as raised:
        await node.plugin.stage(spec, None, use())
    assert raised.value.outcome is outcome
    assert any("vol_data.json" in entry for entry in node.left()) is uncertain
    await node.plugin.stage(spec, None, use())
    before = node.left()
    faults["NodePublishVolume"] = Fault(code=code, times=1)
    with pytest.raises(OperationFailed) as raised:
        await node.plugin.publish(spec, None, use(), remount=False)
    assert raised.value.outcome is outcome
    pods = [entry for entry in set(node.left()) - set(before) if "vol_data.json" in entry]
    assert bool(pods) is uncertain
    await node.plugin.publish(spec, None, use(), remount=False)
    faults["NodePublishVolume"] = Fault(code=code, times=1)
    with pytest.raises(OperationFailed):
        await node.plugin.publish(spec, None, use(), remount=True)
    assert len(mounts_below(str(node.root))) == 2


async def test_done_but_answered_too_late(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "OPERATION_S", 0.5)
    spec = node.spec(node.volume())
    node.driver.faults.by_method["NodeStageVolume"] = Fault(after=3, times=1)
    with pytest.raises(OperationFailed, match="DeadlineExceeded") as raised:
        await node.plugin.stage(spec, None, use())
    assert raised.value.outcome is FailureOutcome.UNCERTAIN
    monkeypatch.setattr(client_module, "OPERATION_S", 30)
    await node.plugin.unstage(node.plugin.staged(spec))
    assert mounts_below(str(node.root)) == []


async def test_an_unpublish_without_effect_fails(node: Node) -> None:
    spec = node.spec(node.volume())
    await node.plugin.stage(spec, None, use())
    await node.plugin.publish(spec, None, use(), remount=False)
    node.driver.faults.by_method["NodeUnpublishVolume"] = Fault(skip=True, times=1)
    with pytest.raises(OperationFailed, match=r"is unpublished, but .* still mounted"):
        await node.plugin.unpublish(node.plugin.published(spec, "u1"))
    await node.plugin.unpublish(node.plugin.published(spec, "u1"))


async def test_a_publish_without_effect_fails(node: Node) -> None:
    spec = node.spec(node.volume())
    await node.plugin.stage(spec, None, use())
    node.driver.faults.by_method["NodePublishVolume"] = Fault(skip=True, times=1)
    with pytest.raises(OperationFailed, match="is published, but there is nothing"):
        await node.plugin.publish(spec, None, use(), remount=False)


async def test_volumes_of_an_earlier_agent_are_found_and_taken_down(node: Node) -> None:
    spec = node.spec(node.volume())
    await node.plugin.stage(spec, None, use())
    published = await node.plugin.publish(spec, None, use(), remount=False)
    later = Node(node.root, node.driver, node.cluster)
    later.objects._reflector = None
    later.register()
    found = await asyncio.to_thread(later.plugin.find_on_disk)
    assert [(v.unique_name, v.pod_uid, v.path) for v in found.published] == [
        (spec.unique_name, "u1", published.path)
    ]
    assert [(v.unique_name, v.handle) for v in found.staged] == [(spec.unique_name, spec.handle)]
    # a failure with what was there before takes nothing back
    node.driver.faults.by_method["NodePublishVolume"] = Fault(code="INTERNAL", times=1)
    with pytest.raises(OperationFailed):
        await later.plugin.publish(spec, None, use(), remount=False)
    await later.plugin.unpublish(found.published[0])
    (left,) = (await asyncio.to_thread(later.plugin.find_on_disk)).staged
    await later.plugin.unstage(left)
    assert mounts_below(str(node.root)) == []
    found = await asyncio.to_thread(later.plugin.find_on_disk)
    assert (found.published, found.staged) == ((), ())
    await later.drivers.close()


@pytest.mark.parametrize("content", [None, b"", b"{torn"])
async def test_a_torn_file_holds_up_no_teardown(node: Node, content: bytes | None) -> None:
    spec = node.spec(node.volume())
    await node.plugin.stage(spec, None, use())
    published = await node.plugin.publish(spec, None, use(), remount=False)
    (node.data(spec.handle) / "precious").write_text("data")
    file = at(published.path).with_name("vol_data.json")
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    (left,) = (await asyncio.to_thread(node.plugin.find_on_disk)).published
    assert left.damaged
    await node.plugin.unpublish(left)
    assert not file.parent.exists()
    assert (node.data(spec.handle) / "precious").read_text() == "data"


async def test_files_that_a_driver_left_in_a_directory_are_not_deleted(node: Node) -> None:
    spec = node.spec(node.volume())
    await node.plugin.stage(spec, None, use())
    published = await node.plugin.publish(spec, None, use(), remount=False)
    target = at(published.path)
    unmount(str(target))
    (target / "written-below-the-mount").touch()
    node.driver.faults.by_method["NodeUnpublishVolume"] = Fault(skip=True)
    with pytest.raises(OperationFailed, match="not empty"):
        await node.plugin.unpublish(node.plugin.published(spec, "u1"))
    assert (target / "written-below-the-mount").exists()


async def test_without_its_driver_nothing_is_tried(node: Node) -> None:
    spec = node.spec(node.volume())
    await node.drivers.close()
    waits = node.plugin.ready(spec)
    assert waits is not None
    assert "not found in the list of registered CSI drivers" in waits.message
    for trial in (
        node.plugin.stage(spec, None, use()),
        node.plugin.unpublish(node.plugin.published(spec, "u1")),
        node.plugin.unstage(node.plugin.staged(spec)),
    ):
        with pytest.raises(OperationFailed) as raised:
            await trial
        assert raised.value.outcome is FailureOutcome.TRANSIENT


async def test_stats_and_expansion(node: Node) -> None:
    spec = node.spec(node.volume())
    await node.plugin.stage(spec, None, use())
    published = await node.plugin.publish(spec, None, use(), remount=False)
    at(published.path, "x").write_bytes(b"12345")
    stats = await node.plugin.stats(node.plugin.published(spec, "u1"))
    assert stats is not None
    assert (stats.capacity_bytes, stats.used_bytes, stats.inodes_used) == (1 << 24, 5, 1)
    assert await node.plugin.expand(spec, 1 << 25, use()) == 1 << 25
    requested = node.driver.faults.last("NodeExpandVolume")
    assert requested.volume_path == published.path
    assert requested.staging_target_path == node.plugin.staged(spec).path
    assert requested.capacity_range.limit_bytes == 0
    for code, problem in (
        ("FAILED_PRECONDITION", ExpansionProblem.IN_USE),
        ("OUT_OF_RANGE", ExpansionProblem.INFEASIBLE),
        ("INTERNAL", ExpansionProblem.REFUSED),
    ):
        node.driver.faults.by_method["NodeExpandVolume"] = Fault(code=code)
        with pytest.raises(ExpansionFailed) as raised:
            await node.plugin.expand(spec, 1 << 26, use())
        assert raised.value.problem is problem
    node.driver.services.options.expand = False
    node.driver.services.options.stats = False
    with pytest.raises(ExpansionFailed) as raised:  # capabilities are read anew after a failure
        await node.plugin.expand(spec, 1 << 26, use())
    assert raised.value.problem is ExpansionProblem.UNSUPPORTED
    assert await node.plugin.stats(node.plugin.published(spec, "u1")) is None


async def test_a_root_directory_that_is_mounted_twice(node: Node) -> None:
    twice = node.root.parent / "twice"
    twice.mkdir()
    spec = node.spec(node.volume())
    await node.plugin.stage(spec, None, use())
    staged = node.plugin.staged(spec).path
    other = twice / Path(staged).relative_to(node.root)
    other.mkdir(parents=True)
    mount(staged, str(other), flags=MS_BIND)
    await node.plugin.unstage(node.plugin.staged(spec))
    unmount(str(other))
