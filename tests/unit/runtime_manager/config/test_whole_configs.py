"""Complete CRI configs of a pod that sets every field and of a pod that sets none.

Source: docs/reference/behaviour.md, h5, j2, k2; docs/reference/names.csv: cri-label,
cri-annotation, cri-metadata; docs/reference/constants.csv: resources.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from kubeletpy.pods.pod import ContainerKind, DeviceNode, Mount, Placement, Pod
from kubeletpy.pods.runtime_status import ContainerConfigError, SandboxConfigError
from kubeletpy.runtime_manager.config.container_config import (
    ContainerInputs,
    build_container_config,
)
from kubeletpy.runtime_manager.config.resources import oom_score_adj
from kubeletpy.runtime_manager.config.sandbox_config import (
    MAX_METADATA,
    ResolverConfig,
    build_pod_sandbox_config,
)
from kubeletpy.runtime_manager.config.settings import RuntimeSettings, UserNamespaceRange
from kubeletpy.runtime_manager.names import MAX_HANDLER, PORTS, container_annotations
from tests.kit.records import container, make_pod

PLAIN = RuntimeSettings(memory_capacity=1 << 34, cluster_domain="cluster.local")
RICH = RuntimeSettings(
    memory_capacity=1 << 34,
    swap_capacity=1 << 32,
    limited_swap=True,
    swap_controller=True,
    cgroup_v2=True,
    hugepage_sizes=("2MB", "1GB"),
    selinux_enabled=True,
    stop_signals=True,
    thermal_throttle_paths=("/sys/devices/system/cpu/cpu0/thermal_throttle",),
)
DNS = ResolverConfig(("10.96.0.10",), ("prod.svc.cluster.local",), ("ndots:5",))
LABELS = {
    "io.kubernetes.pod.name": "web",
    "io.kubernetes.pod.namespace": "prod",
    "io.kubernetes.pod.uid": "uid-1",
}


def everything() -> Pod:
    """A pod that uses every field it can."""
    app = container(
        "app",
        command=["/bin/$(WHAT)", "$$(WHAT)"],
        args=["--level=$(LEVEL)", "$(NOPE)"],
        workingDir="/srv",
        env=[{"name": "WHAT", "value": "serve"}, {"name": "LEVEL", "value": "3"}],
        ports=[
            {"name": "web", "containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"},
            {"containerPort": 53, "hostPort": 53, "protocol": "UDP"},
            {"containerPort": 9000},
        ],
        resources={
            "requests": {"cpu": "250m", "memory": "2Gi"},
            "limits": {"cpu": "500m", "memory": "4Gi", "hugepages-2Mi": "64Mi"},
        },
        lifecycle={"preStop": {"exec": {"command": ["true"]}}, "stopSignal": "SIGUSR1"},
        terminationMessagePath="dev/log",
        terminationMessagePolicy="File",
        stdin=True,
        stdinOnce=True,
        tty=True,
        securityContext={
            "runAsGroup": 7,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
        },
    )
    sidecar = container(
        "side",
        restartPolicy="Always",
        ports=[
            {"hostPort": 53, "protocol": "UDP"},
            {"containerPort": 1, "hostPort": 2, "protocol": "SCTP"},
            {"hostPort": 99},
        ],
    )
    return make_pod(
        app,
        init=[sidecar],
        metadata={
            "labels": {"app": "shop", "io.kubernetes.pod.name": "lies"},
            "annotations": {"team": "shop"},
            "deletionGracePeriodSeconds": 9,
        },
        terminationGracePeriodSeconds=20,
        shareProcessNamespace=True,
        overhead={"cpu": "100m", "memory": "64Mi"},
        securityContext={
            "runAsUser": 1000,
            "runAsGroup": 0,
            "fsGroup": 5,
            "supplementalGroups": [6, 6],
            "sysctls": [
                {"name": "net/ipv4/conf/eth0.1/mtu", "value": "1400"},
                {"name": "kernel.shm_rmid_forced"},
            ],
            "seLinuxOptions": {"level": "s0:c1,c2"},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    )  # fmt: skip


def as_data(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return found


def sandbox(pod: Pod, settings: RuntimeSettings = RICH, **more: Any) -> dict[str, Any]:
    return as_data(build_pod_sandbox_config(pod, 2, settings, DNS, **more))


def whole_container(pod: Pod, settings: RuntimeSettings, **inputs: Any) -> dict[str, Any]:
    supplied = ContainerInputs(**{"restart_count": 3, "image_ref": "sha256:abc", **inputs})
    made = build_container_config(pod, pod.containers[0], ContainerKind.REGULAR, settings, supplied)
    return as_data(made)


INPUTS: dict[str, Any] = {
    "mounts": [
        Mount(
            "/data", "/pods/data", readonly=True, propagation="HOST_TO_CONTAINER",
            selinux_relabel=True, recursive_read_only=True,
        ),
        Mount("/both", "/pods/both", propagation="BIDIRECTIONAL", options=("noexec",)),
        Mount("/disk", "/dev/loop3", device="mrw"),
        Mount("/image", "", image="files:1", image_ref="sha256:f", image_sub_path="etc"),
    ],
    "termination_log": "/pods/log",
    "extra_groups": [8],
    "extra_annotations": {"io.kubernetes.container.hash": "lies", "device": "x"},
    "extra_envs": [("FIRST", "1"), ("LEVEL", "device")],
    "devices": [DeviceNode("/dev/gpu", "/dev/gpu0", "rw")],
    "cdi_devices": ["v/gpu=0", "v/gpu=0", "v/gpu=1"],
    "placement": Placement("0-1", "0", no_cfs_quota=True),
}  # fmt: skip

SANDBOX: dict[str, Any] = {
    "metadata": {"name": "web", "uid": "uid-1", "namespace": "prod", "attempt": 2},
    "hostname": "web",
    "log_directory": "/var/log/pods/prod_web_uid-1",
    "dns_config": {
        "servers": ["10.96.0.10"],
        "searches": ["prod.svc.cluster.local"],
        "options": ["ndots:5"],
    },
    "port_mappings": [
        {"container_port": 80, "host_port": 8080, "host_ip": "10.0.0.1"},
        {"protocol": "UDP", "container_port": 53, "host_port": 53},
        {"protocol": "SCTP", "container_port": 1, "host_port": 2},
        {"host_port": 99},
    ],
    "labels": {
        "io.kubernetes.pod.uid": "uid-1",
        "io.kubernetes.pod.namespace": "prod",
        "io.kubernetes.pod.name": "web",
        "app": "shop",
    },
    "annotations": {"team": "shop"},
    "linux": {
        "cgroup_parent": "/kubepods/podx",
        "security_context": {
            "namespace_options": {},
            "selinux_options": {"level": "s0:c1,c2"},
            "run_as_user": {"value": "1000"},
            "supplemental_groups": ["5", "8", "6", "6"],
            "run_as_group": {},
            "seccomp": {},
        },
        "sysctls": {"kernel.shm_rmid_forced": "", "net.ipv4.conf.eth0/1.mtu": "1400"},
        "overhead": {
            "cpu_period": "100000",
            "cpu_quota": "10000",
            "cpu_shares": "102",
            "memory_limit_in_bytes": "67108864",
            "unified": {"memory.oom.group": "1"},
        },
        "resources": {
            "cpu_period": "100000",
            "cpu_quota": "50000",
            "cpu_shares": "256",
            "memory_limit_in_bytes": "4294967296",
            "unified": {"memory.oom.group": "1"},
        },
    },
}

PLAIN_SANDBOX: dict[str, Any] = {
    "metadata": {"name": "web", "uid": "uid-1", "namespace": "prod", "attempt": 2},
    "hostname": "web",
    "log_directory": "/var/log/pods/prod_web_uid-1",
    "dns_config": {
        "servers": ["10.96.0.10"],
        "searches": ["prod.svc.cluster.local"],
        "options": ["ndots:5"],
    },
    "labels": {
        "io.kubernetes.pod.namespace": "prod",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.uid": "uid-1",
    },
    "linux": {
        "security_context": {"namespace_options": {"pid": "CONTAINER"}, "seccomp": {}},
        "overhead": {},
        "resources": {"cpu_period": "100000", "cpu_shares": "2"},
    },
}

HOST_SANDBOX: dict[str, Any] = {
    "metadata": {"name": "web", "uid": "uid-1", "namespace": "prod", "attempt": 2},
    "log_directory": "/var/log/pods/prod_web_uid-1",
    "dns_config": {
        "servers": ["10.96.0.10"],
        "searches": ["prod.svc.cluster.local"],
        "options": ["ndots:5"],
    },
    "labels": {
        "io.kubernetes.pod.namespace": "prod",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.uid": "uid-1",
    },
    "linux": {
        "security_context": {
            "namespace_options": {"network": "NODE", "pid": "NODE", "ipc": "NODE"},
            "privileged": True,
            "seccomp": {},
        },
        "overhead": {},
        "resources": {"cpu_period": "100000", "cpu_shares": "2"},
    },
}

CONTAINER: dict[str, Any] = {
    "metadata": {"name": "app", "attempt": 3},
    "image": {"image": "sha256:abc", "user_specified_image": "registry.example/app:1"},
    "command": ["/bin/serve", "$(WHAT)"],
    "args": ["--level=3", "$(NOPE)"],
    "working_dir": "/srv",
    "envs": [
        {"key": "FIRST", "value": "MQ=="},
        {"key": "LEVEL", "value": "ZGV2aWNl"},  # the runtime uses the last one of a name
        {"key": "WHAT", "value": "c2VydmU="},
        {"key": "LEVEL", "value": "Mw=="},
    ],
    "mounts": [
        {
            "container_path": "/data",
            "host_path": "/pods/data",
            "readonly": True,
            "selinux_relabel": True,
            "propagation": "PROPAGATION_HOST_TO_CONTAINER",
            "recursive_read_only": True,
        },
        {
            "container_path": "/both",
            "host_path": "/pods/both",
            "propagation": "PROPAGATION_BIDIRECTIONAL",
            "mount_options": ["noexec"],
        },
        {
            "container_path": "/image",
            "image": {"image": "sha256:f", "user_specified_image": "files:1"},
            "image_sub_path": "etc",
        },
        {"container_path": "/dev/log", "host_path": "/pods/log", "selinux_relabel": True},
    ],
    "devices": [
        {"container_path": "/dev/gpu", "host_path": "/dev/gpu0", "permissions": "rw"},
        {"container_path": "/disk", "host_path": "/dev/loop3", "permissions": "mrw"},
    ],
    "labels": {
        "io.kubernetes.container.name": "app",
        "io.kubernetes.pod.namespace": "prod",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.uid": "uid-1",
    },
    "annotations": {
        "io.kubernetes.container.terminationMessagePolicy": "File",
        "io.kubernetes.container.preStopHandler": '{"exec":{"command":["true"]}}',
        "io.kubernetes.container.ports": '[{"name":"web","containerPort":80,"hostPort":8080,'
        '"hostIP":"10.0.0.1"},{"containerPort":53,"hostPort":53,"protocol":"UDP"},'
        '{"containerPort":9000}]',
        "device": "x",
        "io.kubernetes.container.terminationMessagePath": "dev/log",
        "io.kubernetes.pod.deletionGracePeriod": "9",
        "io.kubernetes.container.restartCount": "3",
        "io.kubernetes.pod.terminationGracePeriod": "20",
        "io.kubernetes.container.hash": "7eb8c5f0",
    },
    "log_path": "app/3.log",
    "stdin": True,
    "stdin_once": True,
    "tty": True,
    "linux": {
        "resources": {
            "cpu_period": "100000",
            "cpu_quota": "-1",
            "cpu_shares": "256",
            "memory_limit_in_bytes": "4294967296",
            "oom_score_adj": "875",
            "cpuset_cpus": "0-1",
            "cpuset_mems": "0",
            "hugepage_limits": [{"page_size": "2MB", "limit": "67108864"}, {"page_size": "1GB"}],
            "unified": {
                "memory.oom.group": "1",
                "memory.swap.max": "536870912",
                "memory.high": "max",
            },
        },
        "security_context": {
            "capabilities": {"add_capabilities": ["NET_ADMIN"], "drop_capabilities": ["ALL"]},
            "namespace_options": {},
            "selinux_options": {"level": "s0:c1,c2"},
            "run_as_user": {"value": "1000"},
            "readonly_rootfs": True,
            "supplemental_groups": ["5", "6", "6", "8"],
            "no_new_privs": True,
            "run_as_group": {"value": "7"},
            "masked_paths": [
                "/proc/asound",
                "/proc/acpi",
                "/proc/interrupts",
                "/proc/kcore",
                "/proc/keys",
                "/proc/latency_stats",
                "/proc/timer_list",
                "/proc/timer_stats",
                "/proc/sched_debug",
                "/proc/scsi",
                "/sys/firmware",
                "/sys/devices/virtual/powercap",
                "/sys/devices/system/cpu/cpu0/thermal_throttle",
            ],
            "readonly_paths": [
                "/proc/bus",
                "/proc/fs",
                "/proc/irq",
                "/proc/sys",
                "/proc/sysrq-trigger",
            ],
            "seccomp": {},
        },
    },
    "CDI_devices": [{"name": "v/gpu=0"}, {"name": "v/gpu=1"}],
    "stop_signal": "SIGNAL_SIGUSR1",
}

PLAIN_CONTAINER: dict[str, Any] = {
    "metadata": {"name": "app", "attempt": 3},
    "image": {"image": "sha256:abc", "user_specified_image": "registry.example/app:1"},
    "labels": {
        "io.kubernetes.container.name": "app",
        "io.kubernetes.pod.namespace": "prod",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.uid": "uid-1",
    },
    "annotations": {
        "io.kubernetes.container.terminationMessagePolicy": "",
        "io.kubernetes.container.hash": "7eb8c5f0",
        "io.kubernetes.container.restartCount": "3",
        "io.kubernetes.container.terminationMessagePath": "",
    },
    "log_path": "app/3.log",
    "linux": {
        "resources": {"cpu_period": "100000", "cpu_shares": "2", "oom_score_adj": "1000"},
        "security_context": {
            "namespace_options": {"pid": "CONTAINER"},
            "run_as_user": {},
            "masked_paths": [
                "/proc/asound",
                "/proc/acpi",
                "/proc/interrupts",
                "/proc/kcore",
                "/proc/keys",
                "/proc/latency_stats",
                "/proc/timer_list",
                "/proc/timer_stats",
                "/proc/sched_debug",
                "/proc/scsi",
                "/sys/firmware",
                "/sys/devices/virtual/powercap",
            ],
            "readonly_paths": [
                "/proc/bus",
                "/proc/fs",
                "/proc/irq",
                "/proc/sys",
                "/proc/sysrq-trigger",
            ],
            "seccomp": {"profile_type": "Unconfined"},
        },
    },
}


def test_sandboxes() -> None:
    made = sandbox(everything(), cgroup_parent="/kubepods/podx", extra_groups=[8])
    assert made == SANDBOX
    assert sandbox(make_pod(), PLAIN) == PLAIN_SANDBOX
    app = container(
        "app", ports=[{"hostPort": 80, "containerPort": 80}], securityContext={"privileged": True}
    )
    host = make_pod(
        app, hostNetwork=True, hostPID=True, hostIPC=True, securityContext={}, hostname="db"
    )
    assert sandbox(host, PLAIN) == HOST_SANDBOX


def test_containers() -> None:
    assert whole_container(everything(), RICH, **INPUTS) == CONTAINER
    assert whole_container(make_pod(enableServiceLinks=False), PLAIN) == PLAIN_CONTAINER


def test_a_container_in_a_user_namespace_without_selinux() -> None:
    """Ids of files are those seen inside the container."""
    userns = UserNamespaceRange(131072)
    inputs: dict[str, Any] = {
        "mounts": [Mount("/data", "/pods/data", selinux_relabel=True)],
        "termination_log": "/pods/log",
        "userns": userns,
    }
    app = container("app", terminationMessagePath="/dev/log")
    ids = [{"host_id": 131072, "length": 65536}]
    assert whole_container(make_pod(app, hostUsers=False), PLAIN, **inputs)["mounts"] == [
        {
            "container_path": "/data", "host_path": "/pods/data",
            "uidMappings": ids, "gidMappings": ids,
        },
        {
            "container_path": "/dev/log", "host_path": "/pods/log",
            "uidMappings": ids, "gidMappings": ids,
        },
    ]  # fmt: skip


@pytest.mark.parametrize("what", ["labels", "annotations"])
def test_the_size_of_metadata(what: str) -> None:
    own = sum(len(key + value) for key, value in LABELS.items()) if what == "labels" else 0
    for more, fits in ((0, True), (1, False)):
        pod = make_pod(metadata={what: {"k": "x" * (MAX_METADATA - own - 1 + more)}})
        if fits:
            sandbox(pod)
        else:
            with pytest.raises(SandboxConfigError, match=f"{what} have {MAX_METADATA + 1} bytes"):
                sandbox(pod)


@pytest.mark.parametrize(("length", "fits"), [(4095, True), (4096, False)])
def test_the_length_of_a_path(length: int, fits: bool) -> None:
    pod = make_pod(container("app", terminationMessagePath="/" * length))
    if fits:
        whole_container(pod, PLAIN)
    else:
        with pytest.raises(
            ContainerConfigError, match="terminationMessagePath has 4096 characters"
        ):
            whole_container(pod, PLAIN)


def test_ports_that_are_too_many_for_an_annotation() -> None:
    """Only the port that the preStop hook names is kept, and not if it alone is too large."""
    many = [{"containerPort": n} for n in range(MAX_HANDLER // 10)]
    hook = {"preStop": {"httpGet": {"port": "web"}}}

    def ports(*first: dict[str, Any], **fields: Any) -> str | None:
        app = container("app", ports=[*first, *many], **fields)
        return container_annotations(make_pod(app), app, 0).get(PORTS)  # type: ignore[arg-type]

    web = {"name": "web", "containerPort": 1}
    assert ports(web, lifecycle=hook) == '[{"name":"web","containerPort":1}]'
    assert ports(web) is None
    assert ports({"containerPort": 1}, lifecycle=hook) is None
    assert ports({**web, "hostIP": "x" * MAX_HANDLER}, lifecycle=hook) is None


@pytest.mark.parametrize(
    ("kind", "request_of_pod", "of_containers", "capacity", "score"),
    [
        # the part of a pod's request that no container requests is spread evenly
        (ContainerKind.REGULAR, "3Gi", ("1Gi", "0"), 16, 1000 - 125),
        (ContainerKind.REGULAR, "1Gi", ("1Gi", "0"), 16, 1000 - 62),
        (ContainerKind.REGULAR, None, ("16Gi", "0"), 16, 3),
        (ContainerKind.REGULAR, None, ("1Ki", "0"), 16, 999),
        (ContainerKind.REGULAR, None, ("1Gi", "0"), 0, 999),
    ],
)
def test_oom_scores(
    kind: ContainerKind,
    request_of_pod: str | None,
    of_containers: tuple[str, str],
    capacity: int,
    score: int,
) -> None:
    """The score is 1000 less the requested thousandths of the node's memory."""
    first, second = (
        container(name, resources={"requests": {"memory": size}})
        for name, size in zip("ab", of_containers, strict=True)
    )
    more: dict[str, Any] = (
        {} if request_of_pod is None else {"resources": {"requests": {"memory": request_of_pod}}}
    )
    pod = make_pod(first, second, **more)
    found = oom_score_adj(pod, pod.containers[0], kind, capacity << 30)
    assert found == score
