"""The pods API over its socket, as a program on the node calls it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from kubeletpy.base.api import types as api
from kubeletpy.metrics.node import PodsApiMetrics
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.generated import pods_pb2 as pb
from kubeletpy.server.pods_api import server as pods_api
from kubeletpy.server.pods_api.server import PodsServer
from tests.kit.server import hold_rates
from tests.unit.server.pods_api.test_marshal import read


class Counts(PodsApiMetrics):
    """The metrics of a node, which notify when a watcher has left."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.dropped = node.metrics.pods_api.dropped

    def ended(self, version: str, method: str, code: str) -> None:
        self.node.metrics.pods_api.ended(version, method, code)
        if method == "WatchPods":
            self.node.watch_ended.set()


class Node:
    """Pods with their statuses; the tests change them."""

    def __init__(self, directory: Path) -> None:
        self.pods: dict[str, Pod] = {}
        self.statuses: dict[str, api.PodStatus] = {}
        self.finished: set[str] = set()
        self.ready = True
        self.metrics = Metrics()
        self.watch_ended = asyncio.Event()
        self.server = PodsServer(
            directory,
            Counts(self),
            ready=lambda: self.ready,
            pods=lambda: list(self.pods.values()),
            pod=self.pods.get,
            status=self.statuses.get,
            known=lambda: list(self.statuses),
            reported=self.reported,
        )

    def reported(self, uid: str) -> tuple[Pod, api.PodStatus] | None:
        """The pod with its status, as the status manager has them."""
        if uid not in self.statuses or uid in self.finished:
            return None
        return self.pods[uid], self.statuses[uid]

    def put(self, uid: str, phase: str = "Pending", spec: Any = ()) -> None:
        """Another status."""
        obj: Any = {
            "metadata": {"name": f"p-{uid}", "namespace": "n", "uid": uid},
            "spec": {"containers": [{"name": "c", "image": "i"}], **dict(spec)},
            "status": {"phase": "Old"},
        }
        self.pods[uid] = Pod(obj)
        self.statuses[uid] = {"phase": phase}
        self.server.changed(uid)

    def counted(self) -> dict[str, dict[str, float]]:
        """Calls by method and status."""
        found: dict[str, dict[str, float]] = {}
        for family in self.metrics.registry.collect():
            for sample in family.samples:
                if sample.name.startswith("kubelet_pod_requests") and sample.name.endswith("total"):
                    assert sample.labels["server_api_version"] == "v1alpha1"
                    by_code = found.setdefault(
                        sample.name.removeprefix("kubelet_pod_requests_"), {}
                    )
                    by_code[sample.labels["status_code"]] = sample.value
        return found

    def finish(self, uid: str) -> None:
        """Its worker is done."""
        self.finished.add(uid)
        self.server.changed(uid)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path / "pods-api")
    await made.server.start()
    yield made
    await made.server.close()


@pytest.fixture
async def channel(node: Node, tmp_path: Path) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/pods-api/pods-api.sock") as made:
        yield made


def call(channel: Any, method: str, request: Any, answer: Any) -> Any:
    """One of the calls with one answer."""
    return channel.unary_unary(
        f"/v1alpha1.Pods/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=answer.FromString,
    )(request)


def watch(channel: Any) -> Any:
    """A watcher."""
    return channel.unary_stream(
        "/v1alpha1.Pods/WatchPods",
        request_serializer=pb.WatchPodsRequest.SerializeToString,
        response_deserializer=pb.WatchPodsEvent.FromString,
    )(pb.WatchPodsRequest())


async def next_event(watcher: Any) -> tuple[str, str, str]:
    """The next event: its type, the pod and its phase."""
    event = await watcher.read()
    kind = pb.EventType.Name(event.type)
    if not event.pod:
        return kind, "", ""
    pod = read(event.pod)
    return kind, pod["metadata"]["uid"], pod.get("status", {}).get("phase", "")


async def test_list_and_get(node: Node, channel: Any, tmp_path: Path) -> None:
    socket = tmp_path / "pods-api/pods-api.sock"
    assert (socket.stat().st_mode & 0o777, socket.parent.stat().st_mode & 0o027) == (0o600, 0)
    node.put("b", "Running")
    node.put("a")
    del node.statuses["a"]
    listed = await call(channel, "ListPods", pb.ListPodsRequest(), pb.ListPodsResponse)
    found = [read(each) for each in listed.pods]
    assert [(pod["metadata"]["uid"], pod["status"]["phase"]) for pod in found] == [
        ("a", "Old"),
        ("b", "Running"),
    ]
    got = await call(channel, "GetPod", pb.GetPodRequest(podUID="b"), pb.GetPodResponse)
    assert read(got.pod) == found[1]
    with pytest.raises(grpc.aio.AioRpcError, match="pod with UID x not found") as refused:
        await call(channel, "GetPod", pb.GetPodRequest(podUID="x"), pb.GetPodResponse)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_watch(node: Node, channel: Any) -> None:
    node.put("b", "Running")
    node.put("a", "Running")
    node.put("ended", "Succeeded")
    node.finish("ended")
    watcher = watch(channel)
    assert [await next_event(watcher) for _ in range(3)] == [
        ("ADDED", "a", "Running"),
        ("ADDED", "b", "Running"),
        ("INITIAL_SYNC_COMPLETE", "", ""),
    ]
    node.put("c")
    assert await next_event(watcher) == ("ADDED", "c", "Pending")
    node.server.changed("c")
    node.put("c", "Running")
    assert await next_event(watcher) == ("MODIFIED", "c", "Running")
    node.finish("a")
    assert await next_event(watcher) == ("DELETED", "a", "")
    node.put("a", "Failed")
    node.put("b", "Failed")
    assert await next_event(watcher) == ("MODIFIED", "b", "Failed"), "nothing after DELETED"


async def test_a_slow_watcher_misses_states_and_no_pod(node: Node, channel: Any) -> None:
    watcher = watch(channel)
    assert (await next_event(watcher))[0] == "INITIAL_SYNC_COMPLETE"
    for phase in ("Pending", "Running", "Failed"):
        node.put("a", phase)
        node.put("b", phase)
    node.put("short")
    node.finish("short")
    node.put("last")
    assert [await next_event(watcher) for _ in range(3)] == [
        ("ADDED", "a", "Failed"),
        ("ADDED", "b", "Failed"),
        ("ADDED", "last", "Pending"),
    ]


async def test_watchers_are_bounded_and_leave(
    node: Node, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods_api, "MAX_WATCHERS", 2)
    first, second = watch(channel), watch(channel)
    await next_event(first), await next_event(second)
    with pytest.raises(grpc.aio.AioRpcError, match="there are 2 watchers already") as refused:
        await watch(channel).read()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    first.cancel()
    while True:
        third = watch(channel)
        try:
            assert (await next_event(third))[0] == "INITIAL_SYNC_COMPLETE"
            break
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0)
    node.put("a")
    assert await next_event(third) == await next_event(second) == ("ADDED", "a", "Pending")


async def test_nothing_is_answered_before_all_sources_have_delivered(
    node: Node, channel: Any
) -> None:
    """A list that lacks the pods of one source would be taken for all pods of the node."""
    node.put("a")
    node.ready = False
    calls = (
        ("ListPods", pb.ListPodsRequest(), pb.ListPodsResponse),
        ("GetPod", pb.GetPodRequest(podUID="a"), pb.GetPodResponse),
    )
    for method, request, answer in calls:
        with pytest.raises(grpc.aio.AioRpcError, match="Kubelet is initializing") as refused:
            await call(channel, method, request, answer)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(grpc.aio.AioRpcError, match="Kubelet is initializing") as refused:
        await watch(channel).read()
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    node.ready = True
    assert await next_event(watch(channel)) == ("ADDED", "a", "Pending")


async def test_calls_are_counted_by_method_and_status(node: Node, channel: Any) -> None:
    await call(channel, "ListPods", pb.ListPodsRequest(), pb.ListPodsResponse)
    with pytest.raises(grpc.aio.AioRpcError):
        await call(channel, "GetPod", pb.GetPodRequest(podUID="x"), pb.GetPodResponse)
    watcher = watch(channel)
    await next_event(watcher)
    assert "watch_total" not in node.counted(), "it has not ended"
    watcher.cancel()
    await node.watch_ended.wait()
    assert node.counted() == {
        "total": {"OK": 1, "NotFound": 1, "Canceled": 1},
        "list_total": {"OK": 1},
        "get_total": {"NotFound": 1},
        "watch_total": {"Canceled": 1},
    }


async def test_a_watcher_that_does_not_read_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods_api, "UNREAD_S", 0.2)
    node = Node(tmp_path / "pods-api")
    await node.server.start()
    large = {"nodeSelector": {"x": "y" * 200_000}}
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/pods-api/pods-api.sock") as channel:
        watcher = watch(channel)
        assert (await next_event(watcher))[0] == "INITIAL_SYNC_COMPLETE"
        for number in range(100):  # more than all buffers on the way can hold
            node.put(f"p{number}", spec=large)
        await node.watch_ended.wait()
        assert node.counted()["watch_total"] == {"ResourceExhausted": 1}
        dropped = "kubelet_pod_watch_events_dropped_total"
        assert node.metrics.registry.get_sample_value(dropped) == 1
        with pytest.raises(grpc.aio.AioRpcError, match="watch client channel closed") as cut:
            while True:
                await watcher.read()
        assert cut.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await next_event(watch(channel)))[0] == "ADDED", "its slot is free"
    await node.server.close()


async def test_rate_limit_spares_watchers(
    node: Node, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_rates(monkeypatch)
    with pytest.raises(grpc.aio.AioRpcError, match="rejected by rate limit") as refused:
        for _ in range(300):
            await call(channel, "ListPods", pb.ListPodsRequest(), pb.ListPodsResponse)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert node.counted()["list_total"].keys() == {"OK"}
    assert (await next_event(watch(channel)))[0] == "INITIAL_SYNC_COMPLETE"


async def test_a_pod_that_does_not_fit_spoils_no_list(
    node: Node, channel: Any, caplog: pytest.LogCaptureFixture
) -> None:
    node.put("bad", spec={"hostname": 5})
    node.put("good")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            listed = await call(channel, "ListPods", pb.ListPodsRequest(), pb.ListPodsResponse)
            assert [read(each)["metadata"]["uid"] for each in listed.pods] == ["good"]
    assert len(caplog.records) == 1
    with pytest.raises(grpc.aio.AioRpcError, match="n/p-bad can't be written"):
        await call(channel, "GetPod", pb.GetPodRequest(podUID="bad"), pb.GetPodResponse)
    watcher = watch(channel)
    assert [(await next_event(watcher))[1] for _ in range(2)] == ["good", ""]


async def test_a_socket_that_can_not_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "pods-api").write_text("a file")
    node = Node(tmp_path / "pods-api")
    await node.server.start()
    assert "the pods API is not served" in node.server.problem()
    await node.server.close()
