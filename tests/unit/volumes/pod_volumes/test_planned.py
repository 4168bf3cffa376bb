"""Volumes to set up and mounts to make: decisions from the pod alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.base.structs import replace
from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.pod import Mount, Pod
from kubeletpy.pods.runtime_status import ContainerConfigError, SubPathError
from kubeletpy.volumes.claims.model import SetUp
from kubeletpy.volumes.containers.container_mounts import (
    ContainerMounts,
    bind_mount_options,
    recursive_read_only,
)
from kubeletpy.volumes.containers.pod_mounts import PodMounts, expand_strictly
from kubeletpy.volumes.files.paths import PodPaths, UnsafePath
from kubeletpy.volumes.node.node_volumes import file_owner
from kubeletpy.volumes.pod_volumes.planned import MAX_REFERENCES, ObjectRef, plan_volumes
from kubeletpy.volumes.pod_volumes.set_up import EmptyDirError, memory_size, page_size


def make_pod(volumes: list[Any] | None = None, *containers: Any, **spec: Any) -> Pod:
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    each = [{"name": f"c{n}", **fields} for n, fields in enumerate(containers or ({},))]
    obj = {"metadata": metadata, "spec": {"containers": each, "volumes": volumes or [], **spec}}
    return Pod(cast(Any, obj))


def uses(*names: str, **more: Any) -> dict[str, Any]:
    return {"volumeMounts": [{"name": n, "mountPath": f"/{n}", **more} for n in names]}


def test_only_what_a_container_of_any_kind_uses() -> None:
    pod = make_pod(
        [{"name": n, "emptyDir": {}} for n in ("a", "b", "c", "d", "e")],
        uses("b"),
        initContainers=[{"name": "i", **uses("c")}],
        ephemeralContainers=[{"name": "e", **uses("d")}],
    )
    assert {volume.name for volume in plan_volumes(pod).volumes} == {"b", "c", "d"}


def test_an_env_file_uses_its_volume() -> None:
    env = [{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}}]
    plan = plan_volumes(make_pod([{"name": "v", "emptyDir": {}}], {"env": env}))
    assert [volume.name for volume in plan.volumes] == ["v"]


def test_objects_of_volumes_and_environments() -> None:
    sources = [{"configMap": {"name": "c2"}}, {"secret": {"name": "s2"}}, {"downwardAPI": {}}]
    env = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "k"}}},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "k"}}},
    ]
    pod = make_pod(
        [
            {"name": "c", "configMap": {"name": "c1"}},
            {"name": "s", "secret": {"secretName": "s1"}},
            {"name": "p", "projected": {"sources": sources}},
            {"name": "unused", "configMap": {"name": "no"}},
        ],
        {**uses("c", "s", "p"), "env": env, "envFrom": [{"configMapRef": {"name": "c3"}}]},
    )
    plan = plan_volumes(pod)
    named = {(ref.kind, ref.name) for ref in plan.objects}
    assert named == {("configMap", "c1"), ("configMap", "c2"), ("secret", "s1"), ("secret", "s2")}
    assert plan.env_objects == {ObjectRef("secret", "s3"), ObjectRef("configMap", "c3")}


@pytest.mark.parametrize(
    ("volume", "container", "problem"),
    [
        (
            {"emptyDir": {}},
            {"volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]},
            "emptyDir volumes are no block devices",
        ),
        ({"emptyDir": {}}, uses("other"), "no volume of this name"),
    ],
)
def test_volumes_that_cannot_be_provided(volume: Any, container: Any, problem: str) -> None:
    plan = plan_volumes(make_pod([{"name": "v", **volume}], container))
    (stated,) = plan.problems.values()
    assert problem in stated
    assert plan.volumes == ()


@pytest.mark.parametrize("kind", ["persistentVolumeClaim", "ephemeral", "csi", "nfs", "gitRepo"])
def test_volumes_that_plugins_provide(kind: str) -> None:
    device = {"volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]}
    for container, use in ((uses("v"), (True, False)), (device, (False, True))):
        plan = plan_volumes(make_pod([{"name": "v", kind: {"a": "b"}}], container))
        (volume,) = plan.claimed
        assert (volume.kind, volume.source, volume.mounted, volume.mapped) == (
            kind,
            {"a": "b"},
            *use,
        )
        assert not plan.problems


def mounts(pod: Pod) -> list[Mount]:
    return list(PodMounts(pod, plan_volumes(pod), PodPaths("/r/pods", "u"))["c0"])


@pytest.mark.parametrize(
    ("source", "use", "expected"),
    [
        ({"emptyDir": {}}, {}, Mount("/v", "/r/pods/u/volumes/kubernetes.io~empty-dir/v")),
        (
            {"emptyDir": {}},
            {"readOnly": True, "mountPropagation": "HostToContainer"},
            Mount(
                "/v",
                "/r/pods/u/volumes/kubernetes.io~empty-dir/v",
                readonly=True,
                propagation="HOST_TO_CONTAINER",
            ),
        ),
        (
            {"configMap": {"name": "c"}},
            {},
            Mount("/v", "/r/pods/u/volumes/kubernetes.io~configmap/v", readonly=True),
        ),
        (
            {"secret": {"secretName": "c"}},
            {},
            Mount("/v", "/r/pods/u/volumes/kubernetes.io~secret/v", readonly=True),
        ),
        (
            {"downwardAPI": {}},
            {},
            Mount("/v", "/r/pods/u/volumes/kubernetes.io~downward-api/v", readonly=True),
        ),
        (
            {"projected": {}},
            {},
            Mount("/v", "/r/pods/u/volumes/kubernetes.io~projected/v", readonly=True),
        ),
        (
            {"hostPath": {"path": "/x"}},
            {"mountPropagation": "Bidirectional"},
            Mount("/v", "/x", propagation="BIDIRECTIONAL"),
        ),
        (
            {"image": {"reference": "i", "pullPolicy": "Never"}},
            {},
            Mount("/v", "", readonly=True, image="i", image_pull_policy="Never"),
        ),
        ({}, {"mountPath": "v"}, Mount("/v", "/r/pods/u/volumes/kubernetes.io~empty-dir/v")),
    ],
)
def test_mounts(source: Any, use: Any, expected: Mount) -> None:
    (found,) = mounts(make_pod([{"name": "v", **source}], uses("v", **use)))
    managed = not {"hostPath", "image"} & source.keys()
    assert found == replace(expected, volume="v", selinux_relabel=managed)


def test_mounts_and_devices_of_each_container() -> None:
    device = {"name": "disk", "devicePath": "/dev/x"}
    pod = make_pod(
        [
            {"name": "own", "emptyDir": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
            {"name": "plain", "persistentVolumeClaim": {"claimName": "p"}},
            {"name": "disk", "persistentVolumeClaim": {"claimName": "b"}},
        ],
        uses("own", "data"),
        {**uses("own", "data", "plain", readOnly=True), "volumeDevices": [device]},
        {"volumeDevices": [device]},
        {},
        {"volumeMounts": [{"name": "data", "mountPath": "relative"}]},
    )
    claimed = {
        "data": SetUp("/pv/data", "pv-data", False, selinux_relabel=True, block=False, group=7),
        "plain": SetUp("/pv/plain", "pv-plain", False, selinux_relabel=False, block=False),
        "disk": SetUp("/pv/disk", "pv-disk", True, selinux_relabel=False, block=True, group=8),
    }
    found = PodMounts(pod, plan_volumes(pod), PodPaths("/r/pods", "u"), claimed)
    own = Mount("/own", "/r/pods/u/volumes/kubernetes.io~empty-dir/own", volume="own")
    data = Mount("/data", "/pv/data", volume="data", spec_name="pv-data", index=1, group=7)
    plain = Mount("/plain", "/pv/plain", True, volume="plain", spec_name="pv-plain", index=2)
    disk = Mount("/dev/x", "/pv/disk", volume="disk", device="r", group=8)
    assert dict(found) == {
        "c0": (replace(own, selinux_relabel=True), replace(data, selinux_relabel=True)),
        "c1": (replace(own, readonly=True), replace(data, readonly=True), plain, disk),
        "c2": (disk,),
        "c4": (replace(data, container_path="/relative", index=0),),
    }
    assert len(found) == 4
    with pytest.raises(KeyError):
        found["c3"]
    writable = {**claimed, "disk": replace(claimed["disk"], read_only=False)}
    mounts = PodMounts(pod, plan_volumes(pod), PodPaths("/r/pods", "u"), writable)
    assert mounts["c2"] == (replace(disk, device="mrw"),)


def test_names_from_hostile_manifests() -> None:
    pod = make_pod([{"name": "../x", "emptyDir": {}}], uses("../x"))
    with pytest.raises(UnsafePath):
        mounts(pod)


@pytest.mark.parametrize(
    ("requested", "read_only", "propagation", "supported", "result"),
    [
        (None, True, "PRIVATE", True, False),
        ("Disabled", False, "BIDIRECTIONAL", True, False),
        ("IfPossible", True, "PRIVATE", True, True),
        ("IfPossible", True, "PRIVATE", False, False),
        ("IfPossible", False, "PRIVATE", True, "requires readOnly"),
        ("Enabled", True, "PRIVATE", True, True),
        ("Enabled", True, "PRIVATE", False, "does not support"),
        ("Enabled", False, "PRIVATE", True, "requires readOnly"),
        ("Enabled", True, "HOST_TO_CONTAINER", True, "requires mountPropagation"),
        ("Sometimes", True, "PRIVATE", True, "unknown value"),
        ("", True, "PRIVATE", True, "unknown value"),
    ],
)
def test_recursive_read_only(
    requested: str | None, read_only: bool, propagation: str, supported: bool, result: bool | str
) -> None:
    mount = Mount("/v", "/h", readonly=read_only, propagation=propagation, volume="v")
    spec = {} if requested is None else {"recursiveReadOnly": requested}
    if isinstance(result, str):
        with pytest.raises(ContainerConfigError, match=result):
            recursive_read_only(spec, mount, supported)
    else:
        assert recursive_read_only(spec, mount, supported) is result


@pytest.mark.parametrize(
    ("requested", "refused", "result"),
    [
        (None, "no support", ()),
        ([], "no support", ()),
        (["noexec", "nodev", "nosuid"], "", ("noexec", "nodev", "nosuid")),
        (["nosuid", "nosuid"], "", ("nosuid",)),
        (["noexec"], "no support", 'volumeMount "v": bindMountOptions: no support'),
        (["noexec", "exec"], "", "bindMountOptions: unknown option 'exec'"),
        (["rbind,suid"], "", "bindMountOptions: unknown option 'rbind,suid'"),
        (["x" * 10_000] * 10_000, "", "unknown option 'x{255}…'$"),
    ],
)
def test_bind_mount_options(requested: list[str] | None, refused: str, result: Any) -> None:
    mount = Mount("/v", "/h", volume="v")
    spec = {} if requested is None else {"bindMountOptions": requested}
    if isinstance(result, str):
        with pytest.raises(ContainerConfigError, match=result):
            bind_mount_options(spec, mount, refused)
    else:
        assert bind_mount_options(spec, mount, refused) == result


async def test_each_mount_of_a_container_has_its_own_options() -> None:
    specs = [
        {"name": "v", "mountPath": "/a", "bindMountOptions": ["noexec"]},
        {"name": "v", "mountPath": "/b", "subPath": ""},
    ]
    pod = make_pod(None, {"volumeMounts": specs}, enableServiceLinks=False)
    mounts = [Mount("/a", "/v", volume="v"), Mount("/b", "/v", volume="v", index=1)]
    why = [""]
    maker = ContainerMounts(Path("/nowhere"), options_refused=lambda: why[0])
    container, env = pod.containers[0], EnvironmentInputs()
    made = await maker.prepare(pod, container, env, mounts)
    assert [mount.options for mount in made] == [("noexec",), ()]
    why[0] = "the container runtime does not support it"  # replaced while the agent runs
    with pytest.raises(ContainerConfigError, match=why[0]):
        await maker.prepare(pod, container, env, mounts)
    unsure = ContainerMounts(Path("/nowhere"))
    with pytest.raises(ContainerConfigError, match="bindMountOptions"):
        await unsure.prepare(pod, container, env, mounts)


@pytest.mark.parametrize(
    ("expression", "path"),
    [("$(A)/b", "one/b"), ("x", "x"), ("$$(A)", "$(A)"), ("$(NO)", None), ("$(A)$(NO)", None)],
)
def test_sub_path_expressions_need_all_variables(expression: str, path: str | None) -> None:
    if path is None:
        with pytest.raises(UnsafePath, match="missing value for NO"):
            expand_strictly(expression, {"A": "one"})
    else:
        assert expand_strictly(expression, {"A": "one"}) == path


async def test_no_variable_is_shown_when_a_sub_path_is_refused() -> None:
    spec = {"name": "v", "mountPath": "/x", "subPathExpr": "$(A)/b"}
    container = {"name": "c", "volumeMounts": [spec], "env": [{"name": "A", "value": "../hush"}]}
    about = {"name": "p", "namespace": "n", "uid": "u"}
    spec_of_pod = {"containers": [container], "enableServiceLinks": False}
    pod = Pod(cast(Any, {"metadata": about, "spec": spec_of_pod}))
    maker = ContainerMounts(Path("/nowhere"))
    mounts = [Mount("/x", "/y", volume="v")]
    with pytest.raises(SubPathError, match=r"\$\(A\)/b") as caught:
        await maker.prepare(pod, cast(Any, container), EnvironmentInputs(), mounts)
    assert "hush" not in str(caught.value)
    assert caught.value.cause == Cause(CauseKind.SUB_PATH)


async def test_no_variable_is_shown_when_a_sub_path_cannot_be_prepared(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "k").write_text("no directory")
    spec = {"name": "v", "mountPath": "/x", "subPathExpr": "k/$(A)"}
    container = {"name": "c", "volumeMounts": [spec], "env": [{"name": "A", "value": "hush"}]}
    about = {"name": "p", "namespace": "n", "uid": "u"}
    spec_of_pod = {"containers": [container], "enableServiceLinks": False}
    pod = Pod(cast(Any, {"metadata": about, "spec": spec_of_pod}))
    maker = ContainerMounts(tmp_path / "pods")
    mounts = [Mount("/x", str(tmp_path / "volume"), volume="v")]
    with pytest.raises(SubPathError, match="Not a directory") as caught:
        await maker.prepare(pod, cast(Any, container), EnvironmentInputs(), mounts)
    assert "hush" not in str(caught.value)
    assert str(tmp_path / "volume") in str(caught.value)


@pytest.mark.parametrize(
    ("path", "result"), [("", ""), ("usr//bin/.", "usr/bin"), ("../etc", "must not contain")]
)
async def test_parts_of_images(path: str, result: str) -> None:
    spec = {"name": "v", "mountPath": "/x", "subPath": path}
    pod = make_pod(None, {"volumeMounts": [spec]}, enableServiceLinks=False)
    maker = ContainerMounts(Path("/nowhere"))
    mounts = [Mount("/x", "", volume="v", image="i")]
    ready = maker.prepare(pod, pod.containers[0], EnvironmentInputs(), mounts)
    if " " in result:
        with pytest.raises(ContainerConfigError, match=result):
            await ready
    else:
        assert [mount.image_sub_path for mount in await ready] == [result]


MI = 1 << 20


@pytest.mark.parametrize(
    ("limit", "containers", "spec", "allocatable", "size"),
    [
        ("64Mi", [{}], {}, "1Gi", 64 * MI),
        (None, [{}], {}, "1Gi", 1024 * MI),
        (None, [{}], {}, None, 0),
        ("0", [{}], {}, None, 0),
        ("64Mi", ["32Mi"], {}, "1Gi", 32 * MI),
        ("64Mi", ["32Mi", None], {}, "1Gi", 64 * MI),
        ("1Gi", ["32Mi", "64Mi"], {}, "1Gi", 96 * MI),
        ("1Gi", ["32Mi"], {"resources": {"limits": {"memory": "16Mi"}}}, "1Gi", 16 * MI),
    ],
)
def test_sizes_of_memory_volumes(
    limit: str | None, containers: list[Any], spec: Any, allocatable: str | None, size: int
) -> None:
    each = [
        {"resources": {"limits": {"memory": memory}}} if isinstance(memory, str) else {}
        for memory in containers
    ]
    source = {} if limit is None else {"sizeLimit": limit}
    assert memory_size(source, make_pod([], *each, **spec), allocatable) == size


def test_an_invalid_size_is_refused() -> None:
    with pytest.raises(EmptyDirError, match="not a quantity"):
        memory_size({"sizeLimit": "much"}, make_pod(), None)


@pytest.mark.parametrize(
    ("medium", "requested", "result"),
    [
        ("HugePages", ["hugepages-2Mi"], 2 * MI),
        ("HugePages-1Gi", ["hugepages-2Mi", "hugepages-1Gi"], 1024 * MI),
        ("HugePages", [], "they request none"),
        ("HugePages", ["hugepages-2Mi", "hugepages-1Gi"], "one size"),
        ("HugePages-1Gi", ["hugepages-2Mi"], "no container requests hugepages-1Gi"),
    ],
)
def test_huge_pages(medium: str, requested: list[str], result: int | str) -> None:
    pod = make_pod([], {"resources": {"limits": dict.fromkeys(requested, "4Mi")}})
    if isinstance(result, str):
        with pytest.raises(EmptyDirError, match=result):
            page_size(medium, pod)
    else:
        assert page_size(medium, pod) == result


@pytest.mark.parametrize(
    ("of_pod", "containers", "user"),
    [
        ({}, [{}], None),
        ({"runAsUser": 7}, [{}, {}], 7),
        ({"runAsUser": 7}, [{"runAsUser": 7}, {}], 7),
        ({"runAsUser": 7}, [{"runAsUser": 8}, {}], None),
        ({}, [{"runAsUser": 8}, {}], None),
        ({}, [{"runAsUser": 8}, {"runAsUser": 8}], 8),
    ],
)
def test_the_user_of_all_containers(of_pod: Any, containers: list[Any], user: int | None) -> None:
    each = [{"securityContext": context} for context in containers]
    pod = make_pod([], *each, securityContext={**of_pod, "fsGroup": 9})
    assert (file_owner(pod).user, file_owner(pod).group) == (user, 9)


def test_sources_count_in_projected_volumes_only() -> None:
    sources: list[Any] = [{"serviceAccountToken": {}}] * (MAX_REFERENCES + 1)
    assert not plan_volumes(
        make_pod([{"name": "v", "emptyDir": {"sources": sources}}], uses("v"))
    ).refused


@pytest.mark.parametrize(("references", "refused"), [(MAX_REFERENCES, False), (1001, True)])
def test_a_pod_of_too_many_objects_is_refused(references: int, refused: bool) -> None:
    """4,300 objects used 8,200 descriptors, after which the node's lease could not be renewed."""
    sources: list[Any] = [{"configMap": {"name": f"c{n}", "optional": True}} for n in range(600)]
    sources += [{"serviceAccountToken": {"path": f"t{n}", "audience": str(n)}} for n in range(100)]
    env = [{"secretRef": {"name": f"s{n}"}} for n in range(references - 700)]
    pod = make_pod(
        [{"name": "v", "projected": {"sources": sources}}], {**uses("v"), "envFrom": env * 2}
    )
    parts = plan_volumes(pod).refused
    assert bool(parts) == refused
    if refused:
        assert "refers to 1001 configMaps, secrets, tokens and certificates" in parts


@pytest.mark.parametrize("kind", ["serviceAccountToken", "podCertificate"])
def test_tokens_and_certificates_are_counted_as_objects_are(kind: str) -> None:
    def refused(requests: int) -> str:
        sources: list[Any] = [{kind: {}}] * requests + [{"configMap": {"name": "c"}}]
        volumes = [{"name": "v", "projected": {"sources": sources}}, {"name": "e", "emptyDir": {}}]
        return plan_volumes(make_pod(volumes, uses("v", "e"))).refused

    assert refused(MAX_REFERENCES - 1) == ""
    assert f"refers to {MAX_REFERENCES + 1} configMaps, secrets, tok" in refused(MAX_REFERENCES)
