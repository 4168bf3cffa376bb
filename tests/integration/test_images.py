"""Images on a real containerd, from a real registry that requires a password."""

from __future__ import annotations

from pathlib import Path

from kubeletpy.base.clock import SystemClock
from kubeletpy.images.gc import ImageGarbageCollector
from kubeletpy.images.gc_selection import ImageGCPolicy
from kubeletpy.images.image_manager import PullSettings
from kubeletpy.pods.pod import PullSecret
from tests.integration.runtime_node import make_container, make_pod, runtime_node
from tools.env.containerd import Containerd
from tools.env.images import busybox_image
from tools.env.registry import Registry


def secret(registry: Registry, password: str | None = None) -> PullSecret:
    auths = registry.pull_secret()["auths"]
    if password is not None:
        auths = {server: {**entry, "password": password} for server, entry in auths.items()}
    return PullSecret("default", "registry", "uid", auths)


async def test_pull_with_a_secret(
    containerd: Containerd, work_dir: Path, cgroup_root: str, registry: Registry
) -> None:
    containerd.trust(registry.server)
    image = registry.push(busybox_image(extra={"only": b"here"}), "team/app:1")
    pulls = PullSettings(qps=0)
    async with runtime_node(containerd, work_dir, cgroup_root, pulls=pulls) as node:
        pod = make_pod("pull", [make_container("a", image=image)])
        result = await node.sync(pod)
        error = result.start_errors["a"]
        assert error.code == "ErrImagePull"
        assert registry.server in error.message
        again = await node.sync(pod, secret(registry))
        assert again.start_errors["a"].code == "ImagePullBackOff"
        assert again.start_errors["a"].message.startswith(
            f'Back-off pulling image "{image}": ErrImagePull: '
        )
        assert again.retry_at is not None
        wrong = make_pod("wrong", [make_container("a", image=image)])
        refused = await node.sync(wrong, secret(registry, "hunter2"))
        assert refused.start_errors["a"].code == "ErrImagePull"
        right = make_pod("right", [make_container("a", image=image)])
        started = await node.sync(right, secret(registry))
        assert not started.failed, started.error_message()
        assert started.status is not None
        newest = started.status.newest("a")
        assert newest is not None
        assert newest.running
        assert newest.image == image
        assert "/team/app@sha256:" in newest.image_ref
        notified = "\n".join(node.events.seen)
        assert f'Pulling: Pulling image "{image}"' in notified
        assert f'Pulled: Successfully pulled image "{image}" in ' in notified
        assert "hunter2" not in notified
        assert registry.password not in notified
        used = make_pod("used", [make_container("a", image=image)])
        await node.sync(used)
        assert node.events.seen[-3] == (
            f'Pulled: Container image "{image}" already present on machine and can be accessed by '
            "the pod"
        )


async def test_never_and_bad_names(
    containerd: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        pod = make_pod(
            "bad",
            [
                make_container("never", image="kubeletpy.local/no:1", imagePullPolicy="Never"),
                make_container("name", image="Not:An:Image"),
                make_container("good"),
            ],
        )
        result = await node.sync(pod)
        codes = {name: error.code for name, error in result.start_errors.items()}
        assert codes == {"never": "ErrImageNeverPull", "name": "InvalidImageName"}
        assert result.status is not None
        assert [c.name for c in result.status.running_containers] == ["good"]
        assert node.metrics.starts.started_containers_errors.labels(
            "container", "InvalidImageName"
        )._value.get() == 1  # fmt: skip


async def test_unused_images_go(
    containerd: Containerd, work_dir: Path, cgroup_root: str, open_registry: Registry
) -> None:
    containerd.trust(open_registry.server)
    spare = open_registry.push(busybox_image(extra={"spare": b"1"}), "spare:1")
    async with runtime_node(containerd, work_dir, cgroup_root, pulls=PullSettings(qps=0)) as node:
        pod = make_pod("spare", [make_container("a", image=spare)])
        assert not (await node.sync(pod)).failed
        collector = ImageGarbageCollector(
            node.runtime,
            node.runtime,
            node.events,
            SystemClock(),
            node.metrics.images,
            node_name="node",
            policy=ImageGCPolicy(high_threshold_percent=100, max_age=0.001, min_age=0),
        )
        in_use = await collector.detect()
        ids = {image.id for image in await node.runtime.list_images()}
        newest = node.statuses[pod.uid].newest("a")
        assert newest is not None
        assert 1 <= len(in_use) <= 2  # that of sandboxes is one of them where it is not pinned
        assert in_use < ids
        await node.kill(pod, pod.uid)
        await node.manager.collector.collect(all_sources_ready=True, removable=lambda uid: True)
        assert len(await collector.detect()) == len(in_use) - 1
        disk = await collector._disk()
        assert 0 < disk.available < disk.capacity
