"""Answers of the pod resources API (docs/reference/behaviour-resources.md, rw)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.resources import PodResourcesMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.generated import podresources_pb2 as v1
from kubeletpy.remote.generated import podresources_v1alpha1_pb2 as v1alpha1
from kubeletpy.resources.dra.model import ClaimDevice, ContainerClaim
from kubeletpy.resources.placement.state import Block
from kubeletpy.server.pod_resources import answers
from kubeletpy.server.pod_resources.server import PodResourcesServer
from tests.kit.server import hold_rates

GPU = "vendor.example/gpu"


def own_memory(_: Pod, container: str) -> list[Block]:
    return [Block((0, 1), "memory", 1 << 30)] if container == "c" else []


def claims(_: Pod, container: Any) -> list[ContainerClaim]:
    devices = (ClaimDevice("pool", "dev", cdi=("a/b=c",)), ClaimDevice("pool", "two", share="s"))
    found = ContainerClaim("claim", "n", {"driver": devices})
    return [found] if container["name"] == "c" else []


PAGES = [Block((0,), "hugepages-2Mi", 7)]
GIVEN = answers.NodeAllocations(
    devices=lambda: {(uid, "c"): {GPU: {"a": (0, 1), "b": ()}} for uid in ("p", "ended")},
    healthy_devices=lambda: {GPU: {"z": (1,)}},
    own_cpus=lambda _, container: {5, 2} if container == "c" else (),
    pool_cpus=lambda uid: {3, 1} if uid == "pooled" else (),
    allocatable_cpus=lambda: {3, 1},
    own_memory=own_memory,
    pool_memory=lambda uid: PAGES if uid == "pooled" else [],
    allocatable_memory=lambda: PAGES,
    claims=claims,
)


def pod(name: str = "p", phase: str = "Running") -> Pod:
    made: Any = {
        "metadata": {"name": name, "namespace": "n", "uid": name},
        "spec": {
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
            "containers": [{"name": "c"}],
        },
        "status": {"phase": phase},
    }
    return Pod(made)


def reported(devices: Any) -> list[tuple[str, list[str], list[int]]]:
    return [
        (d.resource_name, list(d.device_ids), [node.ID for node in d.topology.nodes])
        for d in devices
    ]


def memory(blocks: Any) -> list[tuple[str, int, list[int]]]:
    return [(b.memory_type, b.size, [n.ID for n in b.topology.nodes]) for b in blocks]


DEVICES = [(GPU, ["a"], [0]), (GPU, ["a"], [1]), (GPU, ["b"], [])]


def test_list() -> None:
    answer = answers.list_v1([pod(), pod("ended", "Succeeded")], GIVEN)
    assert [each.name for each in answer.pod_resources] == ["p"]
    containers = answer.pod_resources[0].containers
    assert [each.name for each in containers] == ["s", "c"], "sidecars, then containers"
    assert reported(containers[1].devices) == DEVICES
    assert not answer.pod_resources[0].containers[1].devices[2].HasField("topology")
    sidecar, c = containers
    assert (list(sidecar.cpu_ids), list(sidecar.memory)) == ([], [])
    assert list(c.cpu_ids) == [2, 5]
    assert memory(c.memory) == [("memory", 1 << 30, [0, 1])]
    (claim,) = c.dynamic_resources
    assert (claim.claim_name, claim.claim_namespace) == ("claim", "n")
    first, second = claim.claim_resources
    assert [device.name for device in first.cdi_devices] == ["a/b=c"]
    assert (first.driver_name, first.pool_name, first.device_name) == ("driver", "pool", "dev")
    assert (first.HasField("share_id"), second.share_id) == (False, "s")
    assert not second.cdi_devices, "each has its own"


def test_a_pod_placed_at_pod_level_has_resources_itself() -> None:
    alone, pooled = answers.list_v1([pod(), pod("pooled")], GIVEN).pod_resources
    assert (list(alone.cpu_ids), list(alone.memory)) == ([], [])
    assert list(pooled.cpu_ids) == [1, 3]
    assert memory(pooled.memory) == [("hugepages-2Mi", 7, [0])]


def test_list_v1alpha1() -> None:
    answer = answers.list_v1alpha1([pod(), pod("ended", "Succeeded")], GIVEN)
    assert [each.name for each in answer.pod_resources] == ["p", "ended"]
    (container,) = answer.pod_resources[0].containers
    assert [(d.resource_name, list(d.device_ids)) for d in container.devices] == [(GPU, ["a", "b"])]


def test_allocatable() -> None:
    found = answers.allocatable_v1(GIVEN)
    assert reported(found.devices) == [(GPU, ["z"], [1])]
    assert list(found.cpu_ids) == [1, 3]
    assert memory(found.memory) == [("hugepages-2Mi", 7, [0])]


async def test_over_its_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hold_rates(monkeypatch)
    metrics = PodResourcesMetrics(Families())
    released: list[int] = []
    server = PodResourcesServer(
        tmp_path / "pod-resources",
        metrics,
        lambda: GIVEN,
        active=lambda: [pod()],
        pods=lambda: [pod()],
        release=lambda: released.append(1),
    )
    await server.start()
    socket = tmp_path / "pod-resources" / "kubelet.sock"
    assert (socket.stat().st_mode & 0o777, socket.parent.stat().st_mode & 0o027) == (0o600, 0)
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:

        def call(version: str, method: str, request: Any, answer: Any) -> Any:
            made = channel.unary_unary(
                f"/{version}.PodResourcesLister/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            return made(request)

        listed = await call("v1", "List", v1.ListPodResourcesRequest(), v1.ListPodResourcesResponse)
        assert reported(listed.pod_resources[0].containers[1].devices) == DEVICES
        old = v1alpha1.ListPodResourcesRequest()
        listed = await call("v1alpha1", "List", old, v1alpha1.ListPodResourcesResponse)
        assert listed.pod_resources[0].name == "p"
        request = v1.GetPodResourcesRequest(pod_name="p", pod_namespace="n")
        got = await call("v1", "Get", request, v1.GetPodResourcesResponse)
        assert got.pod_resources.name == "p"
        everything = v1.AllocatableResourcesRequest()
        got = await call(
            "v1", "GetAllocatableResources", everything, v1.AllocatableResourcesResponse
        )
        assert reported(got.devices) == [(GPU, ["z"], [1])]
        request = v1.GetPodResourcesRequest(pod_name="x", pod_namespace="n")
        with pytest.raises(grpc.aio.AioRpcError, match="not found"):
            await call("v1", "Get", request, v1.GetPodResourcesResponse)
        good = v1.GetPodResourcesRequest(pod_name="p", pod_namespace="n")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            for _ in range(200):
                await call("v1", "Get", good, v1.GetPodResourcesResponse)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.value.details() == "rejected by rate limit"  # Go's errors.Is compares it
    await server.close()
    assert released
    assert cast(Any, metrics.errors["Get"].labels("v1"))._value.get() >= 1
    assert not socket.exists()
