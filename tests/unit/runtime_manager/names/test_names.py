"""Labels, annotations, hashes and log paths (docs/reference/names.csv: cri-label, cri-annotation,
log).
"""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.names import (
    CONFIG_HASH,
    MAX_HANDLER,
    AnnotatedContainerInfo,
    LabeledInfo,
    UnsafeName,
    config_hash,
    container_annotations,
    container_hash,
    container_id_of_log_link,
    container_labels,
    container_log_directory,
    container_log_path,
    container_parts,
    log_link,
    pod_labels,
    pod_log_directory,
    pod_uid_of_log_directory,
    read_container_annotations,
    read_labels,
    read_restart_count,
    sandbox_labels,
    termination_file,
)
from tests.kit.records import container, make_pod

PORTS = [{"containerPort": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"name": "web", "image": "nginx:1.25"}, "3899ff6c"),
        # Go leaves what is not ASCII as it is
        ({"name": "web", "image": "b\u00fccher"}, "a66f1754"),
    ],
)
def test_the_kubelets_hash(spec: Any, expected: str) -> None:
    assert container_hash(spec) == expected


def test_only_name_and_image_count() -> None:
    one: Any = {"name": "a", "image": "b", "env": [{"name": "X"}]}
    assert container_hash(one) == container_hash({"name": "a", "image": "b"})
    assert container_hash(one) != container_hash({"name": "a", "image": "c"})
    assert container_hash({"name": "a", "image": "<&>\u2028é"}) != container_hash(one)


def test_sandbox_labels_win_over_the_pods_own() -> None:
    pod = make_pod(metadata={"labels": {"app": "shop", "io.kubernetes.pod.name": "forged"}})
    labels = sandbox_labels(pod)
    assert labels == {
        "app": "shop",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "prod",
        "io.kubernetes.pod.uid": "uid-1",
    }
    info = read_labels(labels)
    assert (info.pod_name, info.pod_namespace, info.pod_uid) == ("web", "prod", "uid-1")
    assert pod_labels(labels) == {"app": "shop"}


def test_container_labels_and_back() -> None:
    pod = make_pod()
    info = read_labels(container_labels(pod, pod.containers[0]))
    assert info == LabeledInfo("web", "prod", "uid-1", "app")
    assert read_labels({}) == LabeledInfo("", "", "", "")


def test_container_annotations_and_back() -> None:
    pre_stop = {"exec": {"command": ["sync"]}}
    spec: Any = container(
        "app",
        ports=PORTS,
        lifecycle={"preStop": pre_stop},
        terminationMessagePath="/dev/log",
        terminationMessagePolicy="File",
    )
    pod = make_pod(
        spec, metadata={"deletionGracePeriodSeconds": 5}, terminationGracePeriodSeconds=40
    )
    annotations = container_annotations(pod, spec, 3, {"device": "x", HASH_KEY: "forged"})
    assert annotations["device"] == "x"
    assert annotations["io.kubernetes.container.restartCount"] == "3"
    assert annotations["io.kubernetes.pod.terminationGracePeriod"] == "40"
    assert annotations[HASH_KEY] == container_hash(spec)
    assert annotations["io.kubernetes.container.terminationMessagePath"] == "/dev/log"
    assert annotations["io.kubernetes.container.terminationMessagePolicy"] == "File"
    assert read_restart_count(annotations) == 3
    assert read_container_annotations(annotations) == AnnotatedContainerInfo(
        pre_stop=pre_stop,  # type: ignore[arg-type]
        ports=tuple(PORTS),  # type: ignore[arg-type]
        deletion_grace_period=5,
        termination_grace_period=40,
    )


HASH_KEY = "io.kubernetes.container.hash"


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {
            "io.kubernetes.container.restartCount": "many",
            "io.kubernetes.container.preStopHandler": "{",
            "io.kubernetes.container.ports": '"x"',
            "io.kubernetes.pod.deletionGracePeriod": "9" * 400,
        },
        {
            "io.kubernetes.container.restartCount": "-7",
            "io.kubernetes.container.preStopHandler": "[1]",
            "io.kubernetes.container.ports": '{"name":"x"}',
            "io.kubernetes.pod.deletionGracePeriod": "9" * 20,
            "io.kubernetes.pod.terminationGracePeriod": "",
        },
        {
            "io.kubernetes.container.preStopHandler": "[" * 100_000,
            "io.kubernetes.container.ports": "[1, null]",
        },
    ],
)
def test_invalid_annotations_never_fail(annotations: dict[str, str]) -> None:
    assert read_container_annotations(annotations) == AnnotatedContainerInfo()
    assert read_restart_count(annotations) == 0


def test_a_restart_count_stays_an_int32() -> None:
    huge = {"io.kubernetes.container.restartCount": str(2**40)}
    assert read_restart_count(huge) + 1 < 2**31


def test_a_grace_period_may_have_19_digits() -> None:
    longest = {"io.kubernetes.pod.deletionGracePeriod": "9" * 19}
    assert read_container_annotations(longest).deletion_grace_period == 10**19 - 1


def test_a_log_directory_whose_name_is_too_long() -> None:
    assert pod_log_directory("/l", "ns", "n" * 216, "u" * 35).endswith("u")
    with pytest.raises(UnsafeName, match=r"name of 256 bytes, .* that is 1 bytes shorter"):
        pod_log_directory("/l", "ns", "n" * 217, "u" * 35)


def test_log_paths() -> None:
    assert pod_log_directory("/var/log/pods", "ns", "pod", "u-1") == "/var/log/pods/ns_pod_u-1"
    assert (
        container_log_directory("/var/log/pods", "ns", "pod", "u-1", "app")
        == "/var/log/pods/ns_pod_u-1/app"
    )
    assert container_log_path("app", 3) == "app/3.log"
    assert pod_uid_of_log_directory("ns_pod_u-1") == "u-1"
    assert pod_uid_of_log_directory("u-1") == "u-1"
    assert pod_uid_of_log_directory("a_b_c_u-1") == "u-1"


def test_log_link_names_are_cut_to_255() -> None:
    link = log_link("/var/log/containers", "pod", "ns", "app", "abc123def")
    assert link == "/var/log/containers/pod_ns_app-abc123def.log"
    long = log_link("/l", "p" * 200, "ns", "app", "f" * 64)
    name = long.removeprefix("/l/")
    assert len(name) == 255
    assert name.endswith(".log")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pod_ns_app-abc123def.log", "abc123def"),
        ("pod_ns_app-abc123.log", "abc123"),
        ("pod_ns_app-abc12.log", None),
        ("pod_ns_app-abc.log", None),
        ("pod_ns_app-abc123def", None),
        ("", None),
    ],
)
def test_container_id_of_a_link(name: str, expected: str | None) -> None:
    assert container_id_of_log_link(name) == expected


@pytest.mark.parametrize("bad", ["a/../b", "", "..", "a\0b"])
def test_names_that_lead_elsewhere_are_refused(bad: str) -> None:
    with pytest.raises(UnsafeName):
        container_log_path(bad, 0)


def test_a_uid_that_leads_elsewhere_is_refused() -> None:
    with pytest.raises(UnsafeName):
        pod_log_directory("/var/log/pods", "ns", "pod", "../../../etc")
    with pytest.raises(UnsafeName):
        log_link("/l", "pod", "ns", "app", "../../etc/passwd")


@pytest.mark.parametrize(("more", "kept"), [(0, True), (1, False)])
def test_handlers_and_ports_as_large_as_can_be(more: int, kept: bool) -> None:
    handler = {"exec": {"command": ["x" * (MAX_HANDLER - len('{"exec":{"command":[""]}}') + more)]}}
    ports = [{"name": "x" * (MAX_HANDLER - len('[{"name":""}]') + more)}]
    spec: Any = container("app", lifecycle={"preStop": handler}, ports=ports)
    info = read_container_annotations(container_annotations(make_pod(), spec, 0))
    assert (info.pre_stop == handler, info.kept_pre_stop == "") == (kept, kept)
    assert bool(info.ports) is kept


def test_large_handlers_and_ports_stay_out_of_annotations() -> None:
    """All annotations of a node travel in one answer."""
    hook = {"httpGet": {"port": "bye", "path": "/" + "x" * 1_000_000}}
    many = [{"containerPort": n, "name": f"p{n}"} for n in range(1, 9000)]
    ports = [*many, {"containerPort": 9000, "name": "bye"}]
    spec: Any = container("app", lifecycle={"preStop": hook}, ports=ports)
    annotations = container_annotations(make_pod(), spec, 0)
    assert sum(map(len, annotations.values())) < 2 * MAX_HANDLER
    info = read_container_annotations(annotations)
    assert info.pre_stop is None
    assert len(info.kept_pre_stop) == 64
    assert info.ports == ({"containerPort": 9000, "name": "bye"},), "the hook's own"
    small: Any = container("app", lifecycle={"preStop": {"exec": {"command": ["x"]}}})
    info = read_container_annotations(container_annotations(make_pod(), small, 0))
    assert (info.pre_stop, info.kept_pre_stop) == ({"exec": {"command": ["x"]}}, "")


# Where the agent keeps its own files for a container.


def test_the_directory_of_a_container() -> None:
    assert container_parts("uid-1", "app") == ("pods", "uid-1", "containers", "app")
    assert container_parts("a.b", "..c") == ("pods", "a.b", "containers", "..c")


@pytest.mark.parametrize("part", ["", "a/b", "a\0b", ".", ".."])
def test_names_that_lead_elsewhere(part: str) -> None:
    for uid, name in ((part, "app"), ("uid-1", part)):
        with pytest.raises(UnsafeName, match="cannot be part of a path"):
            container_parts(uid, name)
        assert termination_file("/root", uid, name, "/root/pods/u/containers/c/0a1b2c3d") == ""


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        (
            "/var/lib/kubelet",
            "/var/lib/kubelet/pods/uid-1/containers/app/0a1b2c3d",
            "/var/lib/kubelet/pods/uid-1/containers/app/0a1b2c3d",
        ),
        # the runtime has resolved a link
        (
            "/var/lib/kubelet/",
            "/data/kubelet/pods/uid-1/containers/app/0a1b2c3d",
            "/var/lib/kubelet/pods/uid-1/containers/app/0a1b2c3d",
        ),
        ("/root", "/root/pods/uid-1/containers/app/0A1B2C3D", ""),
        ("/root", "/root/pods/uid-1/containers/app/0a1b2c3d4", ""),
        ("/root", "/root/pods/uid-1/containers/other/0a1b2c3d", ""),
        ("/root", "/root/pods/uid-2/containers/app/0a1b2c3d", ""),
        ("/root", "/rootpods/uid-1/containers/app/0a1b2c3d", ""),
        ("/root", "/etc/passwd", ""),
        ("/root", "", ""),
    ],
)
def test_the_file_for_a_termination_message(root: str, path: str, expected: str) -> None:
    assert termination_file(root, "uid-1", "app", path) == expected


# Changes of a config that require another container, and those that do not.

WORDS = "/dev/termination-log"
MANY = {f"key-{number}": "x" for number in range(20)}


def config(parts: str = "/pods/1", **fields: object) -> cri.ContainerConfig:
    made = cri.ContainerConfig(**fields)  # type: ignore[arg-type]
    made.mounts.add(container_path=WORDS, host_path=parts)
    made.mounts.add(container_path="/data", host_path="/volumes/data")
    return made


def test_the_hash() -> None:
    plain = config_hash(config(), WORDS)
    assert config_hash(config("/pods/2"), WORDS) == plain
    assert config_hash(config(annotations={CONFIG_HASH: plain}), WORDS) == plain
    backwards = config(annotations=dict(reversed(MANY.items())))
    assert config_hash(config(annotations=MANY), WORDS) == config_hash(backwards, WORDS)
    elsewhere = config()
    elsewhere.mounts[1].host_path = "/volumes/other"
    others = [
        elsewhere,
        config(annotations={"a": "b"}),
        config(envs=[cri.KeyValue(key="a", value=b"b")]),
        config(log_path="a/1.log"),
    ]
    assert len({plain, *(config_hash(each, WORDS) for each in others)}) == 5
    assert config_hash(config("/pods/2"), "") != config_hash(config("/pods/1"), "")
