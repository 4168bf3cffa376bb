"""Metrics of volumes after real operations on them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.protocol import SECRETS
from kubeletpy.metrics.families import Families
from kubeletpy.metrics.pods import PodStartMetrics
from kubeletpy.metrics.registry import Metrics
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.act.start_container import count_image_volumes
from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    Found,
    OperationFailed,
    PublishedOnDisk,
    VolumeError,
)
from kubeletpy.volumes.files.paths import PLUGINS, PodPaths, plugin_name
from kubeletpy.volumes.intree.local import LocalPlugin
from kubeletpy.volumes.node.accounts import VolumeAccounts
from kubeletpy.volumes.operations.model import Operation, OperationKind
from kubeletpy.volumes.operations.reporter import Reporter
from kubeletpy.volumes.pod_volumes.planned import SUPPORTED
from kubeletpy.volumes.pod_volumes.set_up import plugin_of
from tests.kit.virtual_time import settle
from tests.kit.volumes import CONFIG, HUSH, SECRET, Node, node, pod_of

__all__ = ["node"]


@pytest.fixture
def metrics(node: Node) -> Metrics:
    made = Metrics()
    node.volumes._accounts = VolumeAccounts(made.volumes)
    return made


def samples(metrics: Metrics, name: str) -> dict[str, float]:
    """Samples of a family: label values, joined by spaces -> value."""
    found = {}
    for line in metrics.render().decode().splitlines():
        match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if match:
            values = re.findall(r'="(?:kubernetes.io/)?([^"]*)"', match[1] or "")
            found[" ".join(values)] = float(match[2])
    return found


async def test_volumes_and_what_is_done_to_them(node: Node, metrics: Metrics) -> None:
    node.api.put("cfg", data={"a": "1"})
    host = {"name": "h", "hostPath": {"path": str(node.root)}}
    missing = {"name": "s", "secret": {"secretName": "s"}}
    pod = pod_of(CONFIG, host, missing, securityContext={"fsGroup": 5})
    with pytest.raises(VolumeError):
        await node.volumes.set_up(pod)
    assert samples(metrics, "volume_manager_total_volumes") == {
        "configmap desired_state_of_world": 1,
        "host-path desired_state_of_world": 1,
        "secret desired_state_of_world": 1,
        "configmap actual_state_of_world": 1,
        "host-path actual_state_of_world": 1,
    }
    node.api.put("s", SECRETS, data={"k": HUSH})
    await node.woken.wait()
    await node.volumes.set_up(pod)
    await node.volumes.set_up(pod)
    await node.volumes.tear_down("u")
    assert set(samples(metrics, "volume_manager_total_volumes").values()) == {0}
    assert samples(metrics, "storage_operation_duration_seconds_count") == {
        "false volume_mount success configmap": 1,
        "false volume_apply_access_control success configmap": 1,
        "false volume_unmount success configmap": 1,
        "false volume_mount success host-path": 1,
        "false volume_mount fail-unknown secret": 1,
        "false volume_mount success secret": 1,
        "false volume_apply_access_control success secret": 1,
        "false volume_unmount success secret": 1,
    }
    assert samples(metrics, "volume_operation_total_seconds_count") == {
        "overall_volume_mount configmap": 1,
        "overall_volume_mount host-path": 1,
        "overall_volume_mount secret": 1,
    }


async def test_metrics_of_volumes_left_by_an_earlier_agent(node: Node) -> None:
    node.api.put("s", SECRETS, data={"k": HUSH})
    await node.volumes.set_up(pod_of(SECRET))
    await node.volumes.set_up(pod_of({"name": "e", "emptyDir": {}}, uid="gone"))
    await node.restart()
    metrics = Metrics()
    node.volumes._accounts = VolumeAccounts(metrics.volumes)
    await node.volumes.set_up(pod_of(SECRET))
    node.volumes.release_orphan("gone")
    assert samples(metrics, "reconstruct_volume_operations_total") == {"": 1}
    assert samples(metrics, "reconstruct_volume_operations_errors_total") == {"": 0}
    assert samples(metrics, "force_cleaned_failed_volume_operations_total") == {"": 1}
    assert samples(metrics, "force_cleaned_failed_volume_operation_errors_total") == {"": 0}


async def test_a_volume_that_stays(node: Node, metrics: Metrics) -> None:
    node.api.put("s", SECRETS, data={"k": HUSH})
    await node.volumes.set_up(pod_of(SECRET))
    with (node.path("secret") / "k").open(), pytest.raises(VolumeError, match="busy"):
        await node.volumes.tear_down("u")
    found = samples(metrics, "storage_operation_duration_seconds_count")
    assert found["false volume_unmount fail-unknown secret"] == 1


@pytest.mark.parametrize("kind", sorted(SUPPORTED))
def test_every_kind_has_its_plugins_name(kind: str) -> None:
    paths = PodPaths("/k/pods", "u")
    assert plugin_name(kind).startswith("kubernetes.io/")
    if kind in PLUGINS:
        assert plugin_of(f"{paths.volume(kind, 'v')}/x", paths) == plugin_name(kind)
    assert plugin_of(str(Path(paths.pod_dir, "etc-hosts")), paths) == ""


@pytest.mark.parametrize(
    ("problem", "counts"),
    [("", (2, 2, 0)), ("ImageVolumeMountFailed: no space", (2, 0, 2)), ("no such user", (2, 0, 0))],
)
def test_images_as_volumes(problem: str, counts: tuple[int, int, int]) -> None:
    image = cri.ImageSpec(image="i")
    mounts = [cri.Mount(image=image), cri.Mount(host_path="/x"), cri.Mount(image=image)]
    metrics = PodStartMetrics(families := Families())
    count_image_volumes(metrics, cri.ContainerConfig(mounts=mounts), problem)
    names = ("requested", "mounted_succeed", "mounted_errors")
    found = [families.registry.get_sample_value(f"kubelet_image_volume_{n}_total") for n in names]
    assert tuple(found) == counts


async def test_claim_volumes_left_by_an_earlier_agent_are_counted() -> None:
    made, plugin = Metrics(), cast(Any, LocalPlugin(Path("/nowhere")))
    reporter = Reporter(cast(Any, None), made.volumes)
    whole = PublishedOnDisk(plugin.name, "a", "u1", "pv1", "/a")
    torn = replace(whole, unique_name="b", damaged="its file is torn")
    reporter.leftovers_found(Found((whole, torn)))
    assert samples(made, "reconstruct_volume_operations_total") == {"": 2}
    assert samples(made, "reconstruct_volume_operations_errors_total") == {"": 1}
    for mount, failed in (
        (whole, None),
        (torn, OperationFailed(FailureOutcome.FINAL, "no")),
        (torn, None),
    ):
        operation = Operation(
            OperationKind.UNPUBLISH, mount.unique_name, plugin.name, "", "u1", mount=mount
        )
        reporter.ended(operation, plugin, None, 1.0, failed)
    assert samples(made, "force_cleaned_failed_volume_operations_total") == {"": 2}
    assert samples(made, "force_cleaned_failed_volume_operation_errors_total") == {"": 1}


# The cost of many pods with the same objects for the API, from their start to their end.

PODS = 100


async def test_a_hundred_pods_cost_one_watch_for_each_object(node: Node) -> None:
    node.api.put("cfg", data={"a": "1"})
    node.api.put("s", SECRETS, data={"k": HUSH})
    uids = [f"u{n}" for n in range(PODS)]
    secret = {"name": "s", "secret": {"secretName": "s"}}
    for uid in uids:
        await node.volumes.set_up(pod_of(CONFIG, secret, uid=uid))
    assert node.api.calls == {"watch": 2}
    for uid in uids[:-1]:
        await node.volumes.tear_down(uid)
    assert node.api.open_watches == 2
    await node.volumes.tear_down(uids[-1])
    await settle()
    assert node.api.open_watches == 0
    assert node.api.calls == {"watch": 2}
    assert node.mounts == []
