"""Fields of a pod spec, as the container itself sees them on real containerds."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus
from tests.integration.runtime_node import RuntimeNode, make_container, make_pod, runtime_node
from tools.env import kernel_limits as kernel
from tools.env.containerd import Containerd

LIMITS = (kernel.MEMORY_LIMIT_FILE, kernel.QUOTA_FILE, kernel.SHARES_FILE)


async def termination_message(node: RuntimeNode, script: str, **fields: Any) -> str:
    """Run one container that writes what it sees into its termination log."""
    spec = fields.pop("spec", {})
    tell = f"({script}) > /dev/termination-log 2>&1"
    pod = make_pod("tells", [make_container("app", tell, **fields)], restartPolicy="Never", **spec)
    result = await node.sync(pod)
    assert not result.failed, result.error_message()

    def over(status: PodRuntimeStatus) -> bool:
        record = status.newest("app")
        return record is not None and record.state is ContainerState.EXITED

    status = await node.until(pod, over)
    record = status.newest("app")
    assert record is not None
    assert record.exit_code == 0, record.message
    await node.kill(pod, pod.uid)
    return record.message


CASES: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "user",
        "id -u; id -g",
        {"securityContext": {"runAsUser": 1000, "runAsGroup": 2000}},
        "1000\n2000\n",
    ),
    ("user-only", "id -u", {"securityContext": {"runAsUser": 7, "runAsNonRoot": True}}, "7\n"),
    (
        "pod-group-only",
        "id -u; id -g",
        {"spec": {"securityContext": {"runAsGroup": 2000}}},
        "0\n2000\n",
    ),
    (
        "groups",
        "id -G | tr ' ' '\\n' | sort -n | tail -2",
        {"spec": {"securityContext": {"fsGroup": 3000, "supplementalGroups": [4000]}}},
        "3000\n4000\n",
    ),
    ("working-dir", "pwd", {"workingDir": "/tmp"}, "/tmp\n"),
    (
        "read-only",
        "touch /x 2>/dev/null || echo no",
        {"securityContext": {"readOnlyRootFilesystem": True}},
        "no\n",
    ),
    (
        "capabilities",
        "grep CapEff /proc/self/status",
        {"securityContext": {"capabilities": {"drop": ["ALL"]}}},
        "CapEff:\t0000000000000000\n",
    ),
    (
        "no-new-privs",
        "grep NoNewPrivs /proc/self/status",
        {"securityContext": {"allowPrivilegeEscalation": False}},
        "NoNewPrivs:\t1\n",
    ),
    (
        "seccomp",
        "grep Seccomp: /proc/self/status",
        {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
        "Seccomp:\t2\n",
    ),
    ("no-seccomp", "grep Seccomp: /proc/self/status", {}, "Seccomp:\t0\n"),
    ("hostname", "hostname", {"spec": {"hostname": "db"}}, "db\n"),
    (
        "fqdn",
        "hostname",
        {"spec": {"subdomain": "sub", "setHostnameAsFQDN": True}},
        "tells.sub.default.svc.\n",
    ),
    (
        "dns",
        "cat /etc/resolv.conf",
        {
            "spec": {
                "dnsPolicy": "None",
                "dnsConfig": {
                    "nameservers": ["192.0.2.53"],
                    "searches": ["a.example", "b.example"],
                    "options": [{"name": "ndots", "value": "3"}],
                },
            }
        },
        "search a.example b.example\nnameserver 192.0.2.53\noptions ndots:3\n",
    ),
    (
        "sysctl",
        "cat /proc/sys/net/ipv4/ip_unprivileged_port_start",
        {
            "spec": {
                "securityContext": {
                    "sysctls": [{"name": "net/ipv4/ip_unprivileged_port_start", "value": "99"}]
                }
            }
        },
        "99\n",
    ),
    (
        "environment",
        "echo $WHO $POD $CPU $(echo $FOUND)",
        {
            "env": [
                {"name": "A", "value": "all"},
                {"name": "WHO", "value": "hello-$(A)-$$(A)"},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {
                    "name": "CPU",
                    "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
                },
            ],
            "resources": {"limits": {"cpu": "250m"}},
        },
        "hello-all-$(A) tells 250\n",
    ),
    (
        "limits",
        "cat {} {} {} | cut -d ' ' -f 1".format(*map(kernel.file_in_container, LIMITS)),
        {
            "resources": {
                "limits": {"cpu": "500m", "memory": "64Mi"},
                "requests": {"cpu": "250m", "memory": "32Mi"},
            }
        },
        f"67108864\n50000\n{kernel.kept_shares(256)}\n",
    ),
    (
        "shared-processes",
        "cat /proc/1/comm | grep -v sh; echo",
        {"spec": {"shareProcessNamespace": True}},
        "pause\n\n",
    ),
]


@pytest.mark.parametrize(
    ("script", "fields", "expected"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
async def test_a_container_sees_its_spec(
    containerd: Containerd,
    work_dir: Path,
    cgroup_root: str,
    *,
    script: str,
    fields: dict[str, Any],
    expected: str,
) -> None:
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        assert await termination_message(node, script, **copy.deepcopy(fields)) == expected


def own_namespaces(*kinds: str) -> list[str]:
    return [str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in kinds]


async def test_namespaces_of_the_node(
    containerd: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    script = "for kind in net pid ipc; do readlink /proc/self/ns/$kind; done"
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        shared = {"hostNetwork": True, "hostPID": True, "hostIPC": True, "hostname": "ignored"}
        parts = await termination_message(node, script, spec=shared)
    assert parts.split() == own_namespaces("net", "pid", "ipc")
