"""cpu and memory for metrics-server."""

from __future__ import annotations

from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.server.resource_metrics import (
    Sample,
    container_samples,
    node_samples,
    render,
    sandbox_samples,
    summed_samples,
)

NAMES = {"io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "n"}
POD = (("namespace", "n"), ("pod", "p"))


def stats(container: str, nanos: int, memory: int) -> cri.ContainerStats:
    return cri.ContainerStats(
        attributes=cri.ContainerAttributes(
            id=f"id-{container}", labels={**NAMES, "io.kubernetes.container.name": container}
        ),
        cpu=cri.CpuUsage(timestamp=5_000_000, usage_core_nano_seconds=cri.UInt64Value(value=nanos)),
        memory=cri.MemoryUsage(timestamp=7, working_set_bytes=cri.UInt64Value(value=memory)),
    )


def test_containers_that_run_and_their_sums() -> None:
    given = [stats("a", 2_500_000_000, 10), stats("b", 500_000_000, 20), stats("dead", 1, 1)]
    found = container_samples(given, {"id-a": 3_000_000_000, "id-b": 0})
    a, b = (("container", "a"), *POD), (("container", "b"), *POD)
    assert found == [
        Sample("container_cpu_usage_seconds_total", a, 2.5, 5_000_000),
        Sample("container_memory_working_set_bytes", a, 10, 7),
        Sample("container_start_time_seconds", a, 3.0),
        Sample("container_cpu_usage_seconds_total", b, 0.5, 5_000_000),
        Sample("container_memory_working_set_bytes", b, 20, 7),
    ]
    assert summed_samples(found) == [
        Sample("pod_cpu_usage_seconds_total", POD, 3.0, 5_000_000),
        Sample("pod_memory_working_set_bytes", POD, 30, 7),
    ]


def test_pods_as_the_runtime_says() -> None:
    memory = cri.MemoryUsage(working_set_bytes=cri.UInt64Value(value=9))
    one = cri.PodSandboxStats(
        attributes=cri.PodSandboxAttributes(labels=NAMES),
        linux=cri.LinuxPodSandboxStats(memory=memory),
    )
    assert sandbox_samples([one]) == [Sample("pod_memory_working_set_bytes", POD, 9)]


def test_the_node() -> None:
    stat = "cpu  100 10 50 9999 77 5 4 1 100 0\ncpu0 1\n"
    meminfo = "MemTotal: 1000 kB\nMemFree: 300 kB\nInactive(file): 200 kB\nHugePages_Total: 0\n"
    assert node_samples(stat, meminfo, 100) == [
        Sample("node_cpu_usage_seconds_total", (), 1.7),
        Sample("node_memory_working_set_bytes", (), 500 * 1024),
    ]


def test_the_text() -> None:
    text = render(
        [
            Sample("resource_scrape_error", (), 0.0),
            Sample("pod_memory_working_set_bytes", (("pod", 'a"b'),), 5, 1_234_000_000),
        ]
    ).decode()
    assert text.splitlines() == [
        "# HELP pod_memory_working_set_bytes Working set of the pod in bytes",
        "# TYPE pod_memory_working_set_bytes gauge",
        'pod_memory_working_set_bytes{pod="a\\"b"} 5 1234',
        "# HELP resource_scrape_error 1 if container metrics could not be had, else 0",
        "# TYPE resource_scrape_error gauge",
        "resource_scrape_error 0.0",
    ]
