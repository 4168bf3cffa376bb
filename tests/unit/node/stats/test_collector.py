"""One collection: the source of each number, and the calls to the runtime."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.clock import SystemClock
from kubeletpy.base.structs import replace
from kubeletpy.node.stats import collector as views
from kubeletpy.node.stats.collector import Shared, StatsViews
from kubeletpy.node.stats.group_files import GroupFiles, container_id, first_process
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    RuntimeResources,
    SandboxStatus,
)
from kubeletpy.remote.errors import ResourceExhausted, Unavailable
from kubeletpy.remote.generated import api_pb2 as cri
from tests.kit.machines import pod_of
from tests.kit.stats import Machine, Runtime, machine_info
from tests.kit.virtual_time import on_virtual_time

pytestmark = pytest.mark.virtual_time

FACTS = machine_info(2, 1, 1, 4096, 0)


def container_stats(identifier: str, cpu: int = 9, memory: int = 8) -> cri.ContainerStats:
    """A runtime's stats of a container."""
    return cri.ContainerStats(
        attributes=cri.ContainerAttributes(id=identifier),
        cpu=cri.CpuUsage(timestamp=6, usage_core_nano_seconds=cri.UInt64Value(value=cpu)),
        memory=cri.MemoryUsage(timestamp=6, working_set_bytes=cri.UInt64Value(value=memory)),
        writable_layer=cri.FilesystemUsage(
            fs_id=cri.FilesystemIdentifier(mountpoint="/"),
            used_bytes=cri.UInt64Value(value=70),
            inodes_used=cri.UInt64Value(value=7),
        ),
    )


def sandbox_stats(identifier: str, *containers: cri.ContainerStats) -> cri.PodSandboxStats:
    """A runtime's stats of a sandbox."""
    network = cri.NetworkUsage(
        timestamp=6,
        default_interface=cri.NetworkInterfaceUsage(
            name="eth0", rx_bytes=cri.UInt64Value(value=11)
        ),
    )
    return cri.PodSandboxStats(
        attributes=cri.PodSandboxAttributes(id=identifier),
        linux=cri.LinuxPodSandboxStats(
            cpu=cri.CpuUsage(timestamp=6, usage_core_nano_seconds=cri.UInt64Value(value=55)),
            network=network,
            process=cri.ProcessUsage(process_count=cri.UInt64Value(value=5)),
            containers=containers,
        ),
    )


@on_virtual_time
async def _usage(machine: Machine, **more: bool) -> tuple[Any, Any]:
    """A short and a complete reading."""
    collector = machine.collector(**more)
    try:
        return await collector.usage(), await collector.detail()
    finally:
        await collector.close()


async def test_files_are_enough_for_cpu_and_memory(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.add("u1", "a", "b")
    collector = machine.collector()
    reading = await collector.usage()
    (pod,) = reading.pods
    assert [group.name for group in pod.containers] == ["a", "b"]
    for group in (pod.group, pod.sandbox, *pod.containers):
        assert group is not None
        assert group.stats is not None
        assert (group.stats.cpu_ns, group.stats.working_set) == (4_000_000_000, 7000)
    assert pod.containers[0].path == "/kubepods/podu1/cri-containerd-u1xa.scope"
    assert reading.node.group.stats is not None
    assert reading.node.group.stats.cpu_ns == 1_500_000_000
    assert machine.runtime.requested == []


async def test_all_requests_within_a_second_share_one_collection(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.add("u1", "a")
    collector = machine.collector()
    readings = await asyncio.gather(*(collector.detail() for _ in range(20)))
    assert all(reading is readings[0] for reading in readings)
    assert machine.runtime.requested == ["containers"]
    await asyncio.sleep(1.1)
    await collector.detail()
    assert machine.runtime.requested == ["containers"] * 2


def test_pods_without_a_cgroup_here_have_stats_of_the_runtime(tmp_path: Path) -> None:
    stats = sandbox_stats("vmxsb", container_stats("vmxa"))
    machine = Machine(tmp_path, Runtime(sandboxes=[stats]))
    machine.add("vm", "a", groups=False)
    machine.paths["vm"] = "/kubepods/podvm"
    usage, _ = _usage(machine)
    (pod,) = usage.pods
    assert pod.containers[0].stats is not None
    assert (pod.containers[0].stats.cpu_ns, pod.containers[0].stats.working_set) == (9, 8)
    assert pod.group.stats is not None
    assert pod.group.stats.cpu_ns == 55
    assert pod.network is not None
    assert (pod.network.default, pod.network.interfaces[0].rx_bytes) == ("eth0", 11)
    assert pod.processes == 5


def test_a_runtime_without_stats_of_sandboxes(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Runtime(containers=[container_stats("vmxa")]))
    machine.add("vm", "a", groups=False)
    usage, _ = _usage(machine)
    assert usage.pods[0].containers[0].stats.cpu_ns == 9
    assert usage.problem == ""
    assert machine.runtime.requested[:4] == [
        "status vmxsb",
        "status vmxa",
        "sandboxes",
        "containers",
    ]


def test_writable_layers_come_from_the_runtime(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Runtime(containers=[container_stats("u1xa")]))
    machine.add("u1", "a")
    _, detail = _usage(machine)
    (group,) = detail.pods[0].containers
    assert group.stats.cpu_ns == 4_000_000_000, "the files go before the runtime"
    assert (group.layer.used, group.layer.inodes, group.layer.at) == (70, 7, 6)
    assert group.layer.space.capacity > 0
    assert group.stats.devices[0].write_bytes == 2


def test_the_gate_puts_the_runtime_first(tmp_path: Path) -> None:
    stats = sandbox_stats("u1xsb", container_stats("u1xa"))
    machine = Machine(tmp_path, Runtime(sandboxes=[stats]))
    machine.add("u1", "a")
    usage, _ = _usage(machine, prefer_runtime=True)
    (group,) = usage.pods[0].containers
    assert (group.stats.cpu_ns, group.stats.working_set) == (9, 8)
    assert group.stats.memory == 9000, "what the runtime does not report comes from the files"
    assert usage.pods[0].group.stats.cpu_ns == 55


@pytest.mark.parametrize("wrong", [Unavailable("ListContainerStats", "down")])
def test_a_runtime_that_fails_takes_only_its_own_numbers(
    tmp_path: Path, wrong: Unavailable
) -> None:
    machine = Machine(tmp_path, Runtime(containers=wrong))
    machine.add("u1", "a")
    usage, detail = _usage(machine)
    assert usage.problem == ""
    assert "down" in detail.problem
    assert detail.pods[0].containers[0].stats.working_set == 7000
    assert detail.pods[0].containers[0].layer is None


def test_stats_that_are_too_large_are_left_out_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    large = ResourceExhausted("ListPodSandboxStats", "larger than max")
    machine = Machine(tmp_path, Runtime(sandboxes=large, containers=[container_stats("u1xa")]))
    machine.add("u1", "a")
    usage, _ = _usage(machine, prefer_runtime=True)
    assert usage.pods[0].containers[0].stats.cpu_ns == 9
    machine.runtime.containers = large
    caplog.clear()
    usage, detail = _usage(machine, prefer_runtime=True)
    assert "larger" in usage.problem and "larger" in detail.problem
    assert usage.pods[0].containers[0].stats.working_set == 7000
    assert [each.levelname for each in caplog.records if "no stats" in each.message] == ["WARNING"]


def test_only_running_containers_and_one_of_each_name(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.add("u1", "a")
    machine.add("gone")
    (live, dead) = machine.statuses
    ended = SandboxStatus("oldxsb", ready=False, created_at=1)
    younger = replace(live.containers[0], id="u1xnewer", created_at=9)
    stopped = ContainerStatus("u1xx", "x", ContainerState.EXITED)
    machine.statuses = [
        replace(
            live,
            sandboxes=(*live.sandboxes, ended),
            containers=(*live.containers, younger, stopped),
        ),
        replace(dead, sandboxes=(replace(dead.sandboxes[0], ready=False),)),
    ]
    usage, _ = _usage(machine)
    (pod,) = usage.pods
    assert pod.sandbox.id == "u1xsb"
    assert [group.id for group in pod.containers] == ["u1xnewer"]


def test_processes_and_interfaces(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.add("u1", "a")
    machine.add("host", "a", host_network=True)
    own = os.getpid()
    for uid in ("u1", "host"):
        machine.group(f"/kubepods/pod{uid}/{uid}xsb", [own])
    net = machine.proc / str(own) / "net"
    net.mkdir(parents=True)
    (net / "dev").write_text("eth0: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n")
    _, detail = _usage(machine)
    by_uid = {pod.ref.uid: pod for pod in detail.pods}
    assert by_uid["u1"].network.interfaces[0].tx_bytes == 5
    assert by_uid["u1"].processes == 1
    assert by_uid["u1"].sandbox.descriptors > 0
    assert by_uid["host"].network is None, "those are the node's own interfaces"


def test_a_pod_that_is_removed_while_it_is_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.add("u1", "a")
    machine.paths["u1"] = "/kubepods/podelse"
    usage, _ = _usage(machine)
    assert usage.pods[0].containers[0].stats is None
    assert usage.pods[0].group.stats is None


@pytest.mark.parametrize("path", ["/kubepods/../../etc", "relative", "/a/.."])
def test_no_path_leads_out_of_the_hierarchies(tmp_path: Path, path: str) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "cpu.stat").write_text("usage_usec 1\n")
    machine.add("u1", "a")
    machine.paths["u1"] = path
    usage, _ = _usage(machine)
    assert usage.pods[0].group.stats is None


async def test_views(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Runtime(containers=[container_stats("u1xa")]))
    machine.group("/kubepods")
    machine.add("u1", "a")
    provided: list[str] = []
    reported = StatsViews(machine.collector(), "node-1", lambda: FACTS, provider=provided.append)
    second = json.loads(await reported.summary(only_cpu_and_memory=False))
    (pod,) = second["pods"]
    assert pod["containers"][0]["cpu"]["usageNanoCores"] == 0
    assert pod["containers"][0]["rootfs"]["usedBytes"] == 70
    begun = {g["name"]: g["startTime"] for g in second["node"]["systemContainers"]}
    assert begun["pods"] >= "2024", "since its cgroup is there"
    assert second["node"]["runtime"]["imageFs"]["usedBytes"] == 77
    assert second["node"]["runtime"]["containerFs"]["inodesUsed"] == 7
    assert b'container="a"' in await reported.cadvisor_metrics()
    assert b'container="a"' in await reported.resource_metrics()
    assert provided == [views.FROM_FILES]


def _cpu(document: Any) -> dict[str, int | None]:
    """The usageNanoCores of everything in a summary."""
    (pod,) = document["pods"]
    groups = [document["node"], *document["node"]["systemContainers"], pod, *pod["containers"]]
    named = [each.get("name") or each.get("nodeName") or "pod" for each in groups]
    rates = [each["cpu"].get("usageNanoCores") for each in groups]
    return dict(zip(named, rates, strict=True))


@pytest.mark.parametrize("short", [True, False])
async def test_the_first_summary_has_cpu_rates(tmp_path: Path, short: bool) -> None:
    """It measures twice; so does one after a long time, and none in between."""
    machine = Machine(tmp_path, Runtime(containers=[container_stats("u1xa")]))
    machine.group("/kubepods")
    machine.add("u1", "a")
    now = asyncio.get_running_loop().time
    reported = StatsViews(machine.collector(), "node-1", lambda: FACTS)
    for pause, waits in ((0, True), (0.1, False), (15, False), (300, False), (700, True)):
        await asyncio.sleep(pause)
        requested = now()
        both = await asyncio.gather(
            *(reported.summary(only_cpu_and_memory=short) for _ in range(2))
        )
        for each in both:
            rates = _cpu(json.loads(each))
            assert rates.keys() >= {"node-1", "pods", "pod", "a"}
            assert set(rates.values()) == {0}
        assert (now() - requested > 0.5) == waits
        assert now() - requested < 0.7


async def test_a_new_container_has_a_cpu_rate_since_its_start(tmp_path: Path) -> None:
    """Also one that takes the place of another, whose counter begins at 0 again."""
    machine = Machine(tmp_path)
    machine.group("/kubepods")
    machine.add("u1", "a")
    now = asyncio.get_running_loop().time
    reported = StatsViews(machine.collector(), "node-1", lambda: FACTS)
    await reported.summary(only_cpu_and_memory=True)
    await asyncio.sleep(30)
    (pod,) = machine.statuses
    started = int((machine.clock.now() - 10) * 1e9)
    (old,) = pod.containers
    again = replace(old, id="u1xb", started_at=started, created_at=started)
    machine.statuses[:] = [replace(pod, containers=(again,))]
    machine.group("/kubepods/podu1/cri-containerd-u1xb.scope")
    requested = now()
    rates = _cpu(json.loads(await reported.summary(only_cpu_and_memory=True)))
    assert rates["a"] == 400_000_000, "4 s of CPU in 10 s"
    assert now() == requested, "it does not wait"


class Metrics(Runtime):
    """A runtime with its own metrics."""

    async def list_metric_descriptors(self) -> list[cri.MetricDescriptor]:
        self.requested.append("descriptors")
        return [cri.MetricDescriptor(name="m", help="h", label_keys=["id"])]

    async def list_pod_sandbox_metrics(self) -> list[cri.PodSandboxMetrics]:
        self.requested.append("metrics")
        if len(self.requested) > 4:
            raise Unavailable("ListPodSandboxMetrics", "down")
        value = cri.UInt64Value(value=5)
        metric = cri.Metric(name="m", metric_type=cri.GAUGE, label_values=["x"], value=value)
        return [cri.PodSandboxMetrics(metrics=[metric])]


async def test_the_scrape_may_be_the_runtimes_own(tmp_path: Path) -> None:
    runtime = Metrics()
    machine = Machine(tmp_path, runtime)
    machine.add("u1", "a")
    provided: list[str] = []
    reported = StatsViews(
        machine.collector(),
        "node-1",
        lambda: FACTS,
        from_runtime=runtime,  # type: ignore[arg-type]
        provider=provided.append,
    )
    text = b'# HELP m h\n# TYPE m gauge\nm{id="x"} 5\n'
    assert [await reported.cadvisor_metrics() for _ in range(3)] == [text] * 3
    assert b"container_memory_working_set_bytes" in await reported.cadvisor_metrics()
    assert runtime.requested.count("descriptors") == 1
    assert provided[-1] == views.FROM_FILES
    assert views.FROM_RUNTIME in provided


@pytest.mark.parametrize(
    ("info", "pid"),
    [('{"pid": 42}', 42), ('{"pid": 1}', 0), ('{"pid": "7"}', 0), ("[]", 0), ("", 0), ("{", 0)],
)
def test_the_first_process_in_the_info_of_a_runtime(info: str, pid: int) -> None:
    assert first_process(info) == pid


@pytest.mark.parametrize(
    ("spec", "reported", "weight", "shares"),
    [
        # by the conversion of runtimes until 2025, and by that of later ones
        ({"requests": {"cpu": "1"}}, None, 39, 1024),
        ({"requests": {"cpu": "1"}}, None, 100, 1024),
        ({"requests": {"cpu": "100m"}}, None, 4, 102),
        ({"requests": {"cpu": "100m"}}, None, 17, 102),
        ({"limits": {"cpu": "2"}}, None, 174, 2048),
        ({"requests": {"cpu": "512"}}, None, 10_000, 262_144),
        ({}, None, 1, 2),
        # while a resize is not carried out yet, the runtime's report fits and the spec does not
        ({"requests": {"cpu": "2"}}, 1024, 39, 1024),
        ({"requests": {"cpu": "2"}}, 1024, 100, 1024),
        # neither fits: the inverse that is nearer to the request
        ({"requests": {"cpu": "1"}}, None, 38, 972),
        ({"requests": {"cpu": "1"}}, None, 101, 1037),
        # no spec is known
        (None, 1024, 100, 1024),
        (None, None, 100, 1024),
    ],
)
def test_shares_of_a_container(
    tmp_path: Path, spec: Any, reported: int | None, weight: int, shares: int
) -> None:
    machine = Machine(tmp_path)
    machine.add("u1", "a")
    if reported is not None:
        (pod,) = machine.statuses
        resources = RuntimeResources(cpu_shares=reported)
        containers = tuple(replace(each, resources=resources) for each in pod.containers)
        machine.statuses[:] = [replace(pod, containers=containers)]
    if spec is not None:
        machine.pods["u1"] = pod_of({"name": "a", "image": "i", "resources": spec}, uid="u1")
    for path, number in (("cri-containerd-u1xa.scope", weight), ("", 39), ("u1xsb", 1)):
        (machine.cgroups / machine.paths["u1"].lstrip("/") / path / "cpu.weight").write_text(
            f"{number}\n"
        )
    (machine.cgroups / "kubepods/cpu.weight").write_text("79\n")
    _, detail = _usage(machine)
    (pod,) = detail.pods
    assert pod.containers[0].stats.shares == shares
    # the agent itself writes weights of pods and of groups of pods
    assert (pod.group.stats.shares, pod.sandbox.stats.shares) == (998, 2)
    assert [group.stats.shares for group in detail.node.groups] == [2046]


@pytest.mark.parametrize("name", ["abc", "cri-containerd-abc.scope", "crio-abc"])
def test_the_container_of_a_cgroup(name: str) -> None:
    assert container_id(name) == "abc"


@pytest.mark.parametrize("ending", ["", ".scope"])
def test_a_containers_monitor_is_not_the_container(tmp_path: Path, ending: str) -> None:
    for prefix in ("crio", "crio-conmon"):
        (tmp_path / "pod" / f"{prefix}-abc{ending}").mkdir(parents=True)
    groups = GroupFiles(2, {"memory": tmp_path}, SystemClock())
    assert groups.containers("/pod") == {"abc": f"/pod/crio-abc{ending}"}


def test_a_canceled_waiter_does_not_cancel_the_shared_collection() -> None:
    @on_virtual_time
    async def check() -> None:
        made = 0

        async def make() -> int:
            nonlocal made
            made += 1
            await asyncio.sleep(0.5)
            if made == 2:
                raise ValueError
            return made

        shared = Shared(make)
        first, second = asyncio.create_task(shared.get()), asyncio.create_task(shared.get())
        await asyncio.sleep(0.1)
        first.cancel()
        assert await second == 1
        await asyncio.sleep(1)
        with pytest.raises(ValueError):
            await shared.get()
        assert await shared.get() == 3, "an error is not kept"

    check()


async def test_a_close_cancels_a_collection_that_a_later_one_replaced() -> None:
    async def make() -> int:
        return await asyncio.sleep(10, 1)

    shared = Shared(make)
    waiters = [asyncio.create_task(shared.get(begun_after=at)) for at in (-1.0, 1.0)]
    await asyncio.sleep(0)
    await shared.close()
    await asyncio.wait(waiters)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert all(waiter.cancelled() for waiter in waiters)
