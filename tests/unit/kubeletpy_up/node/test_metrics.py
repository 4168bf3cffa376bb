"""metrics.k8s.io: from scrapes of a node to the numbers of kubectl top."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy_up import errors
from kubeletpy_up.discovery import groups as discovery
from kubeletpy_up.errors import ApiError
from kubeletpy_up.node.metrics import APART_S, OLD_S, NodeMetrics
from kubeletpy_up.node.usage_samples import NODE, has_unreported, parse, pod_usages, used
from kubeletpy_up.printers import tables
from kubeletpy_up.requests import ADMIN, Route, node_caller, parse_path, split_path
from tests.kit.costs import is_linear
from tests.kit.embedded import make_registry
from tests.kit.virtual_time import EPOCH, LoopClock, on_virtual_time, timed

pytestmark = pytest.mark.virtual_time

A, B = ("shop", "web", "a"), ("shop", "web", "b")


def scrape(at: float, *, a: float = 1.0, b: float | None = 2.0, started: float = EPOCH) -> str:
    """A node's metrics at a time: CPU seconds of two containers; with None, b is absent."""
    stamp = int(at * 1000)
    lines = [f"node_cpu_usage_seconds_total {a + 5} {stamp}"]
    lines += [f"node_memory_working_set_bytes 1048576 {stamp}"]
    for name, value in (("a", a), ("b", b)):
        if value is None:
            continue
        labels = f'{{container="{name}",namespace="shop",pod="web"}}'
        lines += [
            f"container_start_time_seconds{labels} {started}",
            f"container_cpu_usage_seconds_total{labels} {value} {stamp}",
            f"container_memory_working_set_bytes{labels} 2097152 {stamp}",
        ]
    lines += [f'pod_cpu_usage_seconds_total{{namespace="shop",pod="web"}} 3 {stamp}']
    return "\n".join(["# TYPE x gauge", *lines, "resource_scrape_error 0"])


def test_between_two_scrapes() -> None:
    first, second = parse(scrape(100.0)), parse(scrape(110.0, a=3.0))
    found = used(first, second, A)
    assert found is not None
    assert (found.cores, found.memory, found.window, found.at) == (0.2, 2 << 20, 10.0, 110.0)
    node = used(first, second, NODE)
    assert node is not None
    assert node.cores == 0.2
    ((pod, containers),) = pod_usages(first, second)
    assert pod == ("shop", "web")
    assert sorted(containers) == ["a", "b"]
    assert not has_unreported(first, second)


def test_a_new_container_counts_from_its_start() -> None:
    first, second = parse(scrape(100.0, b=None)), parse(scrape(110.0, b=2.0, started=106.0))
    found = used(first, second, B)
    assert found is not None
    assert (found.cores, found.window) == (0.5, 4.0)


@pytest.mark.parametrize(
    "second",
    [scrape(110.0, b=2.0, started=90.0), scrape(110.0, b=2.0, started=109.9)],
    ids=["older than the first scrape, which did not have it", "only just started"],
)
def test_a_pod_with_a_container_that_cannot_be_reported_is_left_out(second: str) -> None:
    first = parse(scrape(100.0, b=None))
    assert list(pod_usages(first, parse(second))) == []
    assert has_unreported(first, parse(second))


def test_a_restarted_container_counts_from_its_new_start() -> None:
    found = used(parse(scrape(100.0, b=50.0)), parse(scrape(110.0, b=1.0, started=105.0)), B)
    assert found is not None
    assert found.cores == 0.2


@pytest.mark.parametrize(
    "text", ["", "x", "a{} b c", 'a{b="\\"} 1 1', "nan", "node_cpu_usage_seconds_total x 1"]
)
def test_malformed_lines_are_skipped(text: str) -> None:
    assert parse(f"{text}\n{scrape(5.0)}\n{text}") == parse(scrape(5.0))


class Nodes:
    """Test double for requests to nodes; ``say`` returns a node's answer."""

    def __init__(self, say: Callable[[], str]) -> None:
        self.say = say
        self.requested: list[tuple[str, str]] = []

    async def read_text(self, node: JSON, target: str) -> str:
        self.requested.append((node["metadata"]["name"], target))
        return self.say()


def now() -> float:
    return EPOCH + asyncio.get_running_loop().time()


def burning() -> str:
    """Metrics of containers that use half a core (a) and a quarter (b)."""
    seconds = asyncio.get_running_loop().time()
    return scrape(now(), a=10 + seconds / 2, b=10 + seconds / 4)


def make(say: Callable[[], str] = burning) -> tuple[NodeMetrics, Nodes]:
    """An API with one node and two pods, one of which runs nowhere."""
    registry = make_registry(clock=LoopClock())
    registry.create(ADMIN, "nodes", {"metadata": {"name": "n1", "labels": {"zone": "a"}}})
    registry.create(ADMIN, "namespaces", {"metadata": {"name": "shop"}})
    for name, node in (("web", "n1"), ("later", "")):
        spec: JSON = {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}
        if node:
            spec["nodeName"] = node
        meta = {"name": name, "labels": {"app": name}}
        registry.create(ADMIN, "pods", {"metadata": meta, "spec": spec}, "shop")
    nodes = Nodes(say)
    return NodeMetrics(registry, cast(Any, nodes)), nodes


def cores(usage: JSON) -> float:
    """Cores in an amount of CPU."""
    return int(usage["cpu"].removesuffix("n")) / 1e9


def route(path: str) -> Route:
    found = parse_path(split_path(f"/apis/metrics.k8s.io/v1beta1/{path}"))
    assert found is not None
    return found


async def test_the_first_client_waits_for_a_second_scrape() -> None:
    metrics, nodes = make()
    listed, took = await timed(metrics.read(ADMIN, route("nodes"), "", ""))
    assert took == pytest.approx(APART_S)
    assert listed["kind"] == "NodeMetricsList"
    (node,) = listed["items"]
    assert node["metadata"]["name"] == "n1"
    assert node["usage"] == {"cpu": node["usage"]["cpu"], "memory": "1024Ki"}
    assert cores(node["usage"]) == pytest.approx(0.5, abs=1e-6)
    assert node["window"] == "1.200s"
    assert nodes.requested == [("n1", "/metrics/resource")] * 2
    pods, took = await timed(metrics.read(ADMIN, route("pods"), "", ""))
    assert took == 0
    assert len(nodes.requested) == 2, "what was read within a second is good enough"
    (pod,) = pods["items"]
    assert pod["metadata"]["namespace"] == "shop"
    usage = {each["name"]: each["usage"] for each in pod["containers"]}
    assert {name: each["memory"] for name, each in usage.items()} == {"a": "2048Ki", "b": "2048Ki"}
    assert cores(usage["a"]) == pytest.approx(0.5, abs=1e-6)
    assert cores(usage["b"]) == pytest.approx(0.25, abs=1e-6)


async def test_later_requests_do_not_wait() -> None:
    metrics, nodes = make()
    await metrics.read(ADMIN, route("nodes"), "", "")
    await asyncio.sleep(15)
    listed, took = await timed(metrics.read(ADMIN, route("nodes"), "", ""))
    assert (took, len(nodes.requested)) == (0, 3)
    assert listed["items"][0]["window"] == "15.000s"
    await asyncio.sleep(OLD_S + 1)
    _, took = await timed(metrics.read(ADMIN, route("nodes"), "", ""))
    assert took == pytest.approx(APART_S), "an old scrape does not count"


async def test_simultaneous_requests_share_the_scrapes() -> None:
    metrics, nodes = make()
    await asyncio.gather(*(metrics.read(ADMIN, route("pods"), "", "") for _ in range(10)))
    assert len(nodes.requested) == 2


async def test_a_container_that_has_just_started_is_awaited() -> None:
    begun = EPOCH + 20.0

    def answer() -> str:
        fresh = now() > begun
        return scrape(now(), b=(now() - begun) / 2 if fresh else None, started=begun)

    metrics, _ = make(answer)
    await metrics.read(ADMIN, route("nodes"), "", "")
    await asyncio.sleep(20.1 - 1.2)
    pods, took = await timed(metrics.read(ADMIN, route("pods"), "", ""))
    assert took == pytest.approx(APART_S)
    assert {each["name"] for each in pods["items"][0]["containers"]} == {"a", "b"}


async def test_selectors_and_single_objects() -> None:
    metrics, _ = make()
    assert (await metrics.read(ADMIN, route("pods"), "app=other", ""))["items"] == []
    assert (await metrics.read(ADMIN, route("namespaces/default/pods"), "", ""))["items"] == []
    named = await metrics.read(ADMIN, route("namespaces/shop/pods"), "app in (web)", "")
    assert [each["metadata"]["name"] for each in named["items"]] == ["web"]
    assert (await metrics.read(ADMIN, route("nodes"), "zone=a", ""))["items"]
    chosen = await metrics.read(ADMIN, route("nodes"), "", "metadata.name=n1")
    assert len(chosen["items"]) == 1
    pod = await metrics.read(ADMIN, route("namespaces/shop/pods/web"), "", "")
    assert (pod["kind"], pod["metadata"]["labels"]) == ("PodMetrics", {"app": "web"})
    assert (await metrics.read(ADMIN, route("nodes/n1"), "", ""))["kind"] == "NodeMetrics"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("nodes/nobody", 404),
        ("namespaces/shop/pods/nobody", 404),
        ("namespaces/shop/pods/later", 404),
        ("nodes/n1/status", 404),
    ],
)
def test_absent_objects(path: str, code: int) -> None:
    @on_virtual_time
    async def check() -> None:
        metrics, _ = make()
        with pytest.raises(ApiError) as refused:
            await metrics.read(ADMIN, route(path), "", "")
        assert refused.value.code == code

    check()


async def test_a_node_that_does_not_answer_has_no_metrics() -> None:
    def answer() -> str:
        raise errors.unavailable("no")

    metrics, _ = make(answer)
    assert (await metrics.read(ADMIN, route("nodes"), "", ""))["items"] == []
    assert (await metrics.read(ADMIN, route("pods"), "", ""))["items"] == []


async def test_a_node_may_not_read_them() -> None:
    metrics, nodes = make()
    with pytest.raises(ApiError) as refused:
        await metrics.read(node_caller("n1"), route("nodes"), "", "")
    assert refused.value.code == 403
    assert nodes.requested == []


def test_discovery_and_tables() -> None:
    listed = discovery.resource_list("metrics.k8s.io", "v1beta1")
    assert listed is not None
    assert {each["name"]: each["verbs"] for each in listed["resources"]} == {
        "nodes": ["get", "list"],
        "pods": ["get", "list"],
    }
    obj = {"metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    table = tables.to_table(route("pods").info, [obj], {}, 1_767_225_660.0)
    assert table["rows"][0]["cells"] == ["web", "60s"]


@pytest.mark.parametrize("piece", ["a", 'a="', 'a="b', 'a="b\\'])
def test_labels_are_read_in_linear_time(piece: str) -> None:
    assert is_linear(lambda size: parse(f"x{{{piece * size}}} 1"))
