"""What the pod resources API says (docs/reference/behaviour-resources.md, rw)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from kubeletpy.metrics.devices import PodResourcesMetrics
from kubeletpy.metrics.families import Families
from kubeletpy.pod_resources import answers
from kubeletpy.pod_resources.rate import Rate
from kubeletpy.pod_resources.server import PodResourcesServer
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.generated import podresources_pb2 as v1
from kubeletpy.remote.generated import podresources_v1alpha1_pb2 as v1alpha1

GPU = "vendor.example/gpu"


class Held:
    """Who has what."""

    def devices_of(self, uid: str, container: str) -> Any:
        return {GPU: {"a": (0, 1), "b": ()}} if container == "c" else {}

    def all_devices_of(self, uid: str) -> Any:
        return {"c": self.devices_of(uid, "c")}

    def healthy_devices(self) -> Any:
        return {GPU: {"z": (1,)}}


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


def shown(devices: Any) -> list[tuple[str, list[str], list[int]]]:
    return [
        (d.resource_name, list(d.device_ids), [node.ID for node in d.topology.nodes])
        for d in devices
    ]


DEVICES = [(GPU, ["a"], [0]), (GPU, ["a"], [1]), (GPU, ["b"], [])]


def test_list() -> None:
    answer = answers.list_v1([pod(), pod("ended", "Succeeded")], Held())
    assert [each.name for each in answer.pod_resources] == ["p"]
    containers = answer.pod_resources[0].containers
    assert [each.name for each in containers] == ["s", "c"], "sidecars, then containers"
    assert shown(containers[1].devices) == DEVICES
    assert not answer.pod_resources[0].containers[1].devices[2].HasField("topology")


def test_list_v1alpha1() -> None:
    answer = answers.list_v1alpha1([pod(), pod("ended", "Succeeded")], Held())
    assert [each.name for each in answer.pod_resources] == ["p", "ended"]
    (container,) = answer.pod_resources[0].containers
    assert [(d.resource_name, list(d.device_ids)) for d in container.devices] == [(GPU, ["a", "b"])]


def test_allocatable() -> None:
    assert shown(answers.allocatable_v1(Held()).devices) == [(GPU, ["z"], [1])]


def test_rate() -> None:
    rate = Rate(100, 10)
    assert [rate.takes(5.0) for _ in range(11)] == [True] * 10 + [False]
    assert rate.takes(5.011)
    assert not rate.takes(5.012)


async def test_over_its_socket(tmp_path: Path) -> None:
    metrics = PodResourcesMetrics(Families())
    released: list[int] = []
    server = PodResourcesServer(
        tmp_path / "pod-resources",
        metrics,
        Held(),
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
        assert shown(listed.pod_resources[0].containers[1].devices) == DEVICES
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
        assert shown(got.devices) == [(GPU, ["z"], [1])]
        request = v1.GetPodResourcesRequest(pod_name="x", pod_namespace="n")
        with pytest.raises(grpc.aio.AioRpcError, match="not found"):
            await call("v1", "Get", request, v1.GetPodResourcesResponse)
        good = v1.GetPodResourcesRequest(pod_name="p", pod_namespace="n")
        with pytest.raises(grpc.aio.AioRpcError, match="rate limit"):
            for _ in range(200):
                await call("v1", "Get", good, v1.GetPodResourcesResponse)
    await server.close()
    assert released
    assert cast(Any, metrics.errors["Get"].labels("v1"))._value.get() >= 1
    assert not socket.exists()
