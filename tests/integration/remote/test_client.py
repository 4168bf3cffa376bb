"""The CRI client on real containerds: a whole pod, errors, events, a daemon lost and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kubeletpy.metrics.registry import Metrics
from kubeletpy.remote import errors
from kubeletpy.remote.client import RemoteRuntime, cgroup_driver
from kubeletpy.remote.containerd import task_exits
from kubeletpy.remote.generated import api_pb2 as cri
from tools.env.containerd import Containerd
from tools.env.images import BUSYBOX

MISSING = "0" * 64


@pytest.fixture
def metrics() -> Metrics:
    """The metrics of the client."""
    return Metrics()


@pytest.fixture
async def runtime(containerd: Containerd, metrics: Metrics) -> AsyncIterator[RemoteRuntime]:
    """A client of each containerd in turn."""
    client = RemoteRuntime(f"unix://{containerd.socket}", metrics=metrics.runtime)
    await client.connect()
    yield client
    await client.close()


def sandbox_config(cgroup: str) -> cri.PodSandboxConfig:
    """The sandbox of a pod "web"."""
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name="web", uid="u1", namespace="default"),
        linux=cri.LinuxPodSandboxConfig(cgroup_parent=f"{cgroup}/web"),
    )


def container_config(*command: str) -> cri.ContainerConfig:
    """A busybox container "app"."""
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="app"),
        image=cri.ImageSpec(image=BUSYBOX, user_specified_image=BUSYBOX),
        command=command,
        linux=cri.LinuxContainerConfig(),
    )


async def test_version_and_status(runtime: RemoteRuntime, containerd: Containerd) -> None:
    assert (await runtime.version()).runtime_name == "containerd"
    conditions = {c.type: c.status for c in (await runtime.status()).status.conditions}
    assert conditions["RuntimeReady"]
    assert conditions["NetworkReady"]
    assert await runtime.list_pod_sandbox() == []
    version = (await runtime.version()).runtime_version
    assert await cgroup_driver(runtime) == (None if version.startswith("1.") else "cgroupfs")


async def test_life_of_a_pod(runtime: RemoteRuntime, cgroup_root: str, metrics: Metrics) -> None:
    config = sandbox_config(cgroup_root)
    sandbox = await runtime.run_pod_sandbox(config, "")
    status = (await runtime.pod_sandbox_status(sandbox)).status
    assert status.state == cri.SANDBOX_READY
    assert status.network.ip
    with pytest.raises(errors.CRIError, match=r"RunPodSandbox default/web: .*reserved for"):
        await runtime.run_pod_sandbox(config, "")

    container = await runtime.create_container(sandbox, container_config("sleep", "1000"), config)
    await runtime.start_container(container)
    assert [c.id for c in await runtime.list_containers()] == [container]
    ran = await runtime.exec_sync(container, ["sh", "-c", "echo out; echo err >&2; exit 3"], 5)
    assert (ran.stdout, ran.stderr, ran.exit_code) == (b"out\n", b"err\n", 3)
    with pytest.raises(errors.CRIError, match="ExecSync"):
        await runtime.exec_sync(container, ["no-such-program"], 5)
    with pytest.raises(errors.DeadlineExceeded):
        await runtime.exec_sync(container, ["sleep", "100"], 1)
    assert await runtime.exec(cri.ExecRequest(container_id=container, cmd=["true"], stdout=True))
    assert (await runtime.container_stats(container)).attributes.id == container

    await runtime.stop_container(container, 0)
    assert (await runtime.container_status(container)).status.exit_code == 137
    await runtime.stop_pod_sandbox(sandbox)
    await runtime.remove_pod_sandbox(sandbox)
    assert await runtime.list_containers() == []
    scraped = metrics.render().decode()
    assert 'kubelet_runtime_operations_errors_total{operation_type="exec_sync"} 2' in scraped
    assert 'kubelet_run_podsandbox_duration_seconds_count{runtime_handler=""} 2' in scraped


async def test_absent_objects(runtime: RemoteRuntime) -> None:
    with pytest.raises(errors.NotFound, match=f"ContainerStatus {MISSING}"):
        await runtime.container_status(MISSING)
    with pytest.raises(errors.NotFound):
        await runtime.pod_sandbox_status(MISSING)
    await runtime.remove_container(MISSING)
    await runtime.remove_pod_sandbox(MISSING)
    absent = await runtime.image_status(cri.ImageSpec(image="kubeletpy.local/absent:1"))
    assert not absent.HasField("image")
    assert (await runtime.image_status(cri.ImageSpec(image=BUSYBOX))).image.size
    assert BUSYBOX in {tag for image in await runtime.list_images() for tag in image.repo_tags}
    assert (await runtime.image_fs_info()).image_filesystems


async def test_events(runtime: RemoteRuntime, containerd: Containerd, cgroup_root: str) -> None:
    tasks = aiter(task_exits(runtime.connection))
    first = asyncio.ensure_future(anext(tasks))
    stream = runtime.get_container_events()
    if old := (await runtime.version()).runtime_version.startswith("1."):
        with pytest.raises(errors.Unimplemented):
            await anext(aiter(stream))
    config = sandbox_config(cgroup_root)
    sandbox = await runtime.run_pod_sandbox(config, "")
    script = "until [ -e /go ]; do sleep 0.1; done; sleep 0.2; exit 7"
    container = await runtime.create_container(
        sandbox, container_config("sh", "-c", script), config
    )
    await runtime.start_container(container)
    await runtime.exec_sync(container, ["touch", "/go"], 5)
    async with asyncio.timeout(10):
        assert await first == container, "the end of the exec is not reported"
        # The CRI service of containerd learns of the end a moment later. Until then it stops the
        # container, whose shim may have closed its connection: "ttrpc: closed".
        if old:
            status = runtime.container_status
            while (await status(container)).status.state != cri.CONTAINER_EXITED:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        else:
            async for event in stream:
                stopped = event.container_event_type == cri.CONTAINER_STOPPED_EVENT
                if event.container_id == container and stopped:
                    break
        await runtime.stop_pod_sandbox(sandbox)
        assert await anext(tasks) == sandbox
        if old:
            return
    codes = {s.id: s.exit_code for s in event.containers_statuses}
    assert codes[container] == 7
    assert event.pod_sandbox_status.id == sandbox


async def test_daemon_lost_and_back(runtime: RemoteRuntime, containerd: Containerd) -> None:
    heard: list[bool] = []
    runtime.add_listener(heard.append)
    async with asyncio.timeout(30):
        await asyncio.to_thread(containerd.kill)
        await runtime.wait_lost()
        with pytest.raises(errors.Unavailable):
            await runtime.list_pod_sandbox()
        await asyncio.to_thread(containerd.start)
        await runtime.wait_ready()
    assert (await runtime.version()).runtime_name == "containerd"
    assert heard == [False, True]


async def test_hanging_daemon(containerd: Containerd) -> None:
    client = RemoteRuntime(f"unix://{containerd.socket}", request_timeout=0.3)
    await client.connect(10)
    containerd.pause()
    try:
        with pytest.raises(errors.DeadlineExceeded):
            await client.status()
    finally:
        containerd.resume()
    await client.close()
