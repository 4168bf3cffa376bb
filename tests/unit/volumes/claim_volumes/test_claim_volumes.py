"""Volumes of claims on real directories: found, mounted, kept across a restart, taken down."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi import objects as watched
from kubeletpy.kubeapi.errors import Forbidden, NotFound
from kubeletpy.kubeapi.objects import WatchedObjects
from kubeletpy.kubeapi.protocol import Resource
from kubeletpy.kubeapi.watch_state import MAX_WATCHES, FailingWatches, StreamedLists
from kubeletpy.metrics.families import Families
from kubeletpy.metrics.volumes import VolumeMetrics
from kubeletpy.pods.environment import EnvironmentInputs, NodeFacts
from kubeletpy.pods.pod import Mount, Pod
from kubeletpy.runtime_manager.protocol import ContainerAdditions
from kubeletpy.volumes.claims.model import SELinux, VolumeError
from kubeletpy.volumes.containers.container_mounts import ContainerMounts
from kubeletpy.volumes.containers.environment import ContainerEnvironment
from kubeletpy.volumes.files.disk import MS_BIND, mount
from kubeletpy.volumes.intree.base import HostPathPlugin
from kubeletpy.volumes.intree.local import LocalPlugin
from kubeletpy.volumes.intree.nfs import NfsPlugin, options_of
from kubeletpy.volumes.operations.acts import Expander, VolumeActs
from kubeletpy.volumes.operations.claim_objects import ClaimObjects, kept
from kubeletpy.volumes.operations.reporter import Reporter
from kubeletpy.volumes.volume_manager import VolumeManager
from tests.kit.volumes import Node, claim, pv, running, spec


class NodeApi:
    """An API in which a node may only read claims and volumes by name, as in a cluster."""

    watch_capacity = MAX_WATCHES

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Any] = {}
        self.lists = 0
        self.gets = 0
        self.streamed_lists = StreamedLists()
        self.failing_watches = FailingWatches()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> JSON:
        self.gets += 1
        found = self.objects.get((resource.plural, name))
        if found is None:
            raise NotFound("there is none", code=404)
        return cast(JSON, found)

    def watch(self, *_: Any, **supplied: Any) -> Any:
        # a streamed list is a watch
        self.lists += 1
        raise Forbidden("no list", code=403)


class ClaimNode(Node):
    """A node with a manager of claims; ``restart`` is a kill -9 and a new start."""

    def __init__(self, root: Path) -> None:
        (root / "disk").mkdir()
        self.claim_api = NodeApi()
        self.labels: Mapping[str, str] = {"kubernetes.io/hostname": "n"}
        super().__init__(root)

    def start(self) -> None:
        super().start()
        kube_api, rng = cast(Any, self.claim_api), random.Random(1)
        plugins = (LocalPlugin(self.root), HostPathPlugin(self.root), NfsPlugin(self.root))
        objects = ClaimObjects(
            WatchedObjects(kube_api, rng=rng, keep=kept, read_when_forbidden=True),
            plugins,
            "n",
            lambda: {"metadata": {"labels": self.labels}},
            controller_attaches=True,
            selinux=SELinux(),
        )
        reporter = Reporter(self, VolumeMetrics(Families()))
        acts = VolumeActs(Expander(kube_api, self, self.clock, "n"), reporter)
        self.claims = VolumeManager(
            plugins, objects, acts, reporter, changed=lambda uid: self.woken.set()
        )
        self.volumes.claims = self.claims

    async def restart(self) -> None:
        await self.claims.close()
        await super().restart()
        await self.claims.run()

    def bind(self, source: dict[str, Any] | None = None, **fields: Any) -> None:
        local = source or {"local": {"path": str(self.root / "disk")}}
        self.claim_api.objects["persistentvolumeclaims", "data"] = claim()
        self.claim_api.objects["persistentvolumes", "pv1"] = pv(local, **fields)

    def target(self, uid: str = "u1") -> Path:
        return self.root / "pods" / uid / "volumes" / "kubernetes.io~local-volume" / "pv1"

    async def mount(self, pod: Pod) -> Mount:
        (mount,) = (await self.volumes.set_up(pod))["c"]
        return mount


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClaimNode]:
    monkeypatch.setattr(watched, "PRESSED_WAITS", (0.01, 0.05))
    async with running(ClaimNode) as made:
        await made.claims.run()
        yield made
        await made.claims.close()


def claiming(uid: str = "u1", **spec: Any) -> Pod:
    use = {"name": "v", "mountPath": "/data"}
    return Pod(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": uid},
            "spec": {
                "containers": [{"name": "c", "image": "i", "volumeMounts": [use]}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
                **spec,  # type: ignore[typeddict-item]
            },
        }
    )


async def test_a_local_volume_is_bound_kept_and_taken_down(node: ClaimNode) -> None:
    node.bind()
    pod = claiming()
    mount = await node.mount(pod)
    assert (mount.host_path, mount.container_path) == (str(node.target()), "/data")
    (node.target() / "file").write_text("kept")
    calls = node.claim_api.gets
    assert await node.mount(pod) == mount
    assert node.claim_api.gets == calls, "what is known is not read again"
    await node.restart()
    assert node.mounts == [str(node.target())]
    assert await node.mount(pod) == mount
    await node.volumes.tear_down("u1")
    assert not node.mounts
    assert not node.target().exists()
    assert (node.root / "disk" / "file").read_text() == "kept"


async def test_a_part_of_a_volume_is_where_the_kubelet_takes_it_down(node: ClaimNode) -> None:
    """The path contains the name of the PersistentVolume, not that of the pod's volume."""
    node.bind()
    pod = claiming()
    pod.containers[0]["volumeMounts"][0]["subPath"] = "some/where"
    supplied = ContainerAdditions(EnvironmentInputs(facts=NodeFacts(pod_ips=("10.0.0.1",))))
    environment = ContainerEnvironment(node.root / "pods", node.objects)
    inputs = (await environment.provide(pod, pod.containers[0], supplied)).environment
    maker = ContainerMounts(node.root / "pods")
    mounts = [await node.mount(pod)]
    made, _ = await maker.prepare(pod, pod.containers[0], inputs, mounts)
    part = node.root / "pods" / "u1" / "volume-subpaths" / "pv1" / "c" / "0"
    assert made.host_path == str(part)
    assert part.samefile(node.root / "disk" / "some" / "where")
    await node.volumes.tear_down("u1")
    assert not node.mounts


async def test_a_pod_of_an_agent_before_is_taken_down_without_the_api(node: ClaimNode) -> None:
    node.bind()
    await node.mount(claiming())
    node.claim_api.objects.clear()
    await node.restart()
    await node.volumes.tear_down("u1")
    assert not node.mounts
    assert not node.target().exists()


async def test_a_removed_pod_is_taken_down_without_waiting(node: ClaimNode) -> None:
    node.bind()
    await node.mount(claiming())
    await node.restart()
    node.woken.clear()
    with pytest.raises(OSError, match="being taken down by their plugins"):
        await asyncio.to_thread(node.volumes.release_orphan, "u1")
    await node.woken.wait()
    assert not node.mounts
    await asyncio.to_thread(node.volumes.release_orphan, "u1")


async def test_a_claim_is_waited_for_and_seen_when_it_is_bound(node: ClaimNode) -> None:
    pod = claiming()
    with pytest.raises(VolumeError, match='persistentvolumeclaim "data" not found') as missing:
        await node.volumes.set_up(pod)
    assert not missing.value.reported
    node.claim_api.objects["persistentvolumeclaims", "data"] = claim(status={"phase": "Pending"})
    node.woken.clear()
    await node.woken.wait()
    with pytest.raises(VolumeError, match="error processing PVC ns/data: PVC is not bound"):
        await node.volumes.set_up(pod)
    node.woken.clear()
    bound = claim(metadata={"resourceVersion": "2"})
    node.bind()
    node.claim_api.objects["persistentvolumeclaims", "data"] = bound
    await node.woken.wait()
    await node.mount(pod)
    kinds, tries = 2, 2  # claims and volumes; a second try after reads were found to be allowed
    assert kinds <= node.claim_api.lists <= kinds * tries, "a forbidden list is seldom repeated"


async def test_node_affinity_of_a_volume_is_checked(node: ClaimNode) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    node.bind(nodeAffinity={"required": {"nodeSelectorTerms": [term]}})
    with pytest.raises(VolumeError, match="NodeAffinity check failed") as refused:
        await node.volumes.set_up(claiming())
    assert 'persistentvolume "pv1"' in str(refused.value)
    node.labels = {"zone": "b"}
    node.claims.replan_soon()
    await node.mount(claiming())


async def test_a_path_that_is_not_there_is_an_event(node: ClaimNode) -> None:
    node.bind({"local": {"path": "/nonexistent/x"}})
    with pytest.raises(VolumeError, match="No such file or directory"):
        await node.volumes.set_up(claiming())
    assert node.events[0].startswith(
        'FailedMount: MountVolume.MountDevice failed for volume "pv1" : local volume path'
    )
    await node.volumes.tear_down("u1")


async def test_a_pod_alone_may_have_a_volume_of_one_pod(node: ClaimNode) -> None:
    node.bind(accessModes=["ReadWriteOncePod"])
    await node.mount(claiming())
    with pytest.raises(
        VolumeError, match="ReadWriteOncePod access mode and is already in use by another pod"
    ):
        await node.volumes.set_up(claiming("u2"))
    await node.volumes.tear_down("u1")
    await node.mount(claiming("u2"))


async def test_files_are_owned_by_the_group(node: ClaimNode) -> None:
    node.bind()
    (node.root / "disk" / "file").write_text("")
    await node.mount(claiming(securityContext={"fsGroup": 4242}))
    for path in (node.target(), node.target() / "file"):
        assert path.stat().st_gid == 4242


async def test_read_only_claims_are_read_only(node: ClaimNode) -> None:
    node.bind()
    source = {"claimName": "data", "readOnly": True}
    pod = claiming(volumes=[{"name": "v", "persistentVolumeClaim": source}])
    assert (await node.mount(pod)).readonly
    with pytest.raises(OSError, match="Read-only"):
        (node.target() / "file").write_text("")


async def test_a_volume_of_a_host_path_is_the_path(node: ClaimNode) -> None:
    path = node.root / "made"
    node.bind({"hostPath": {"path": str(path), "type": "DirectoryOrCreate"}})
    assert (await node.mount(claiming())).host_path == str(path)
    assert path.is_dir()
    await node.volumes.tear_down("u1")
    assert path.is_dir()


async def test_kinds_that_nobody_has_are_refused_by_name(node: ClaimNode) -> None:
    node.bind({"rbd": {"image": "x"}})
    with pytest.raises(VolumeError, match="kubeletpy has no rbd volumes"):
        await node.volumes.set_up(claiming())


async def test_mounts_inside_the_volume_are_unmounted_first(node: ClaimNode) -> None:
    node.bind()
    (node.root / "disk" / "sub").mkdir()
    await node.mount(claiming())
    mount(str(node.root / "disk"), str(node.target() / "sub"), flags=MS_BIND)
    await node.volumes.tear_down("u1")
    assert not node.mounts


@pytest.mark.parametrize(
    ("server", "export"),
    [("host", "host:/e"), ("fd00::1", "[fd00::1]:/e"), ("[fd00::1]", "[fd00::1]:/e")],
)
def test_how_nfs_is_mounted(server: str, export: str) -> None:
    source = {"server": server, "path": "/e"}
    made = spec(kind="nfs", source=source, mount_options=("vers=4", "hard", "hard"))
    assert made.export == export
    assert options_of(made) == ["-o", "hard,vers=4"]
    assert options_of(spec(source={}, read_only=True)) == ["-o", "ro"]
