"""Identity, profiles, names and resources of rarer kinds, as the container itself sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.node.conftest import remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status, status
from tools.env import kernel_limits as kernel

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], list[str]]] = {
    # what it runs; container; pod; what it prints
    "hostname-override": ("hostname", {}, {"hostnameOverride": "db.example"}, ["db.example"]),
    "seccomp-of-the-node": (
        "chmod 700 /tmp 2>/dev/null || echo refused",
        {},
        {
            "securityContext": {
                "seccompProfile": {"type": "Localhost", "localhostProfile": "no.json"}
            }
        },
        ["refused"],
    ),
    "seccomp-off": (
        "grep Seccomp: /proc/self/status | cut -f2",
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
        ["0"],
    ),
    "masked-paths": (
        "cat /proc/interrupts | wc -c; ls /sys/firmware | wc -l;"
        " (echo x > /proc/sys/kernel/domainname) 2>/dev/null || echo refused",
        {},
        {},
        ["0", "0", "refused"],
    ),
    "strict-groups": (
        "id -G",
        {"securityContext": {"runAsUser": 1000, "runAsGroup": 2000}},
        {"securityContext": {"supplementalGroups": [4000], "supplementalGroupsPolicy": "Strict"}},
        ["2000 4000"],
    ),
    "group-change-policy": (
        "stat -c '%a %g' /e; touch /e/x; stat -c %g /e/x",
        {"volumeMounts": [{"name": "e", "mountPath": "/e"}]},
        {
            "volumes": [{"name": "e", "emptyDir": {}}],
            "securityContext": {"fsGroup": 3000, "fsGroupChangePolicy": "OnRootMismatch"},
        },
        ["2777 3000", "3000"],
    ),
    "resources-of-the-pod": (
        "cat {} {} | cut -d ' ' -f 1".format(
            *map(kernel.file_in_container, (kernel.MEMORY_LIMIT_FILE, kernel.QUOTA_FILE))
        ),
        {},
        {"resources": {"limits": {"memory": "64Mi", "cpu": "500m"}}},
        [str(64 << 20), "50000"],
    ),
    "services": ("echo $DB_SERVICE_HOST $DB_SERVICE_PORT", {}, {}, ["10.96.0.77 5432"]),
    "no-service-links": (
        "echo ${DB_SERVICE_HOST-none}",
        {},
        {"enableServiceLinks": False},
        ["none"],
    ),
    "device-of-the-node": (
        "stat -c %F /n",
        {"volumeMounts": [{"name": "n", "mountPath": "/n"}]},
        {"volumes": [{"name": "n", "hostPath": {"path": "/dev/null", "type": "CharDevice"}}]},
        ["character special file"],
    ),
    "termination-log-at-a-path": (
        "echo done > /tmp/last; stat -c %a /tmp/last",
        {"terminationMessagePath": "/tmp/last"},
        {},
        ["666"],
    ),
}


@pytest.fixture(scope="module")
def seen(node2: Node) -> Iterator[str]:
    """A namespace where each case has run, all side by side."""
    namespace = "identity"
    node2.api.create("namespaces", "", {"metadata": {"name": namespace}})
    ports = [{"port": 5432}]
    service = {"metadata": {"name": "db"}, "spec": {"clusterIP": "10.96.0.77", "ports": ports}}
    node2.api.create("services", namespace, service)
    profiles = node2.root_dir / "seccomp"
    profiles.mkdir(exist_ok=True)
    refused = {"names": ["chmod", "fchmod", "fchmodat"], "action": "SCMP_ACT_ERRNO"}
    profile = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]}
    (profiles / "no.json").write_text(json.dumps(profile))
    pods = []
    for name, (script, fields, spec, _) in CASES.items():
        made = container("main", script)
        pods.append(pod(name, {**made, **fields}, restartPolicy="Never", **spec))
    node2.apply(*pods, namespace=namespace)
    yield namespace
    remove_pods(node2, namespace)


@pytest.mark.parametrize("name", CASES)
def test_containers_see_their_spec(node2: Node, seen: str, name: str) -> None:
    made = node2.wait_phase(seen, name, "Succeeded")
    assert node2.logs(made, "main").splitlines() == CASES[name][3]


SAID: dict[str, tuple[dict[str, Any], str]] = {
    "trust-bundle": (
        {"projected": {"sources": [{"clusterTrustBundle": {"name": "b", "path": "ca"}}]}},
        "the API server has no clustertrustbundles",
    ),
    "wrong-type": (
        {"hostPath": {"path": "/etc/hostname", "type": "Directory"}},
        "hostPath type check failed: /etc/hostname is not a directory",
    ),
    "nothing-there": (
        {"hostPath": {"path": "/does/not/exist", "type": "Socket"}},
        "hostPath type check failed: /does/not/exist is not a socket file",
    ),
    "no-such-medium": (
        {"emptyDir": {"medium": "HugePages-16Gi"}},
        "medium HugePages-16Gi: no container requests hugepages-16Gi",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_an_invalid_volume_is_reported(node2: Node, namespace: str, name: str) -> None:
    source, stated = SAID[name]
    main = container("main", FOREVER, volumeMounts=[{"name": "v", "mountPath": "/v"}])
    node2.apply(pod("p", main, volumes=[{"name": "v", **source}]), namespace=namespace)
    node2.wait_event(
        namespace, "p", f'FailedMount: MountVolume.SetUp failed for volume "v" : {stated}'
    )
    waits = container_status(node2.pod(namespace, "p"))["state"]["waiting"]
    assert waits["reason"] == "ContainerCreating"


def test_a_runtime_class_with_overhead(node2: Node, namespace: str) -> None:
    """The pod's group has room for the overhead; its container is limited without it."""
    overhead = {"podFixed": {"memory": "32Mi"}}
    runtime_class = {"metadata": {"name": "heavy"}, "handler": "runc", "overhead": overhead}
    node2.api.create("runtimeclasses", "", runtime_class)
    main = container("main", FOREVER, resources={"limits": {"memory": "64Mi", "cpu": "1"}})
    spec = {"runtimeClassName": "heavy", "overhead": overhead["podFixed"]}
    node2.apply(pod("p", main, **spec), namespace=namespace)
    made = node2.wait_running(namespace, "p")
    uid = made["metadata"]["uid"]
    assert status(made)["qosClass"] == "Guaranteed"
    assert kernel.memory_limit(f"{node2.cgroup_root}/kubepods/pod{uid}") == 96 << 20
    file = kernel.file_in_container(kernel.MEMORY_LIMIT_FILE)
    code, stated = node2.exec(container_status(made)["containerID"], "cat", file)
    assert (code, stated.strip()) == (0, str(64 << 20))
    assert node2.sandboxes(namespace)[0].runtime_handler == "runc"
