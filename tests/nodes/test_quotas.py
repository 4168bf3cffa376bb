"""Local storage on XFS with a project quota on the kubelet's root directory."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.node import SLEEPS, VirtualNode, container, pod
from tests.nodes.setup import ADMIN

ROOT = "/var/lib/kubelet"
MIB = 1 << 20
QUOTA_MIB = 200
PROJECT = 7
SUMMARY = "/api/v1/nodes/node/proxy/stats/summary"
USED = f"xfs_quota -x -c 'report -p -N -b' {ROOT} | awk '$1 == \"#{PROJECT}\" {{print $2}}'"
"""KiB that the kernel counts below the root directory."""


@pytest.fixture
def node(node: VirtualNode) -> Iterator[VirtualNode]:
    """A node whose root directory is on XFS and may hold 200 MiB."""
    node.configure("systemd", evictionPressureTransitionPeriod="10s")
    node.shell(
        "systemctl stop kubeletpy"
        " && truncate -s 512M /xfs.img && mkfs.xfs -q /xfs.img"
        f" && mount -o loop,prjquota /xfs.img {ROOT}"
        f" && xfs_quota -x -c 'project -s -p {ROOT} {PROJECT}' {ROOT}"
        f" && xfs_quota -x -c 'limit -p bhard={QUOTA_MIB}m {PROJECT}' {ROOT}"
        " && systemctl start kubeletpy"
    )
    node.wait_ready()
    yield node
    node.remove_pods()
    node.shell(
        f"systemctl stop kubeletpy && umount {ROOT} && rm /xfs.img && systemctl start kubeletpy"
    )
    node.wait_ready()


def writes(name: str, mib: int, **volume: str) -> JSON:
    """A pod that writes to its emptyDir."""
    script = f"dd if=/dev/zero of=/scratch/file bs=1M count={mib}; {SLEEPS}"
    mount = {"name": "scratch", "mountPath": "/scratch"}
    return pod(
        name,
        container(script=f"trap 'exit 0' TERM; {script}", volumeMounts=[mount]),
        volumes=[{"name": "scratch", "emptyDir": volume}],
    )


def summary(node: VirtualNode) -> JSON:
    """The node's statistics."""
    found: JSON = json.loads(node.kubectl("get", "--raw", SUMMARY))
    return found


@pytest.mark.long
def test_usage_and_limits_agree_with_the_quota(node: VirtualNode) -> None:
    capacity = node.get("node", "node")["status"]["capacity"]["ephemeral-storage"]
    assert capacity == str(QUOTA_MIB * MIB)
    node.run_pods(writes("small", 30))
    file = f"{ROOT}/pods/*/volumes/kubernetes.io~empty-dir/scratch/file"
    node.until(f"[ $(stat -c %s {file}) -eq {30 * MIB} ]")
    reported = f"kubectl --kubeconfig={ADMIN} get --raw {SUMMARY}"
    node.until(
        f'{reported} | python3 -c \'import json, sys; (pod,) = json.load(sys.stdin)["pods"];'
        f' sys.exit(pod["volume"][0]["usedBytes"] < {30 * MIB})\'',
        say=reported,
    )
    found = summary(node)
    assert found["node"]["fs"]["capacityBytes"] == QUOTA_MIB * MIB
    assert found["pods"][0]["volume"][0]["usedBytes"] < 31 * MIB
    # the kernel's own count, except for the agent's files of the last seconds
    assert abs(found["node"]["fs"]["usedBytes"] - int(node.shell(USED)) * 1024) < MIB

    # a volume over its own limit
    node.apply(writes("limited", 40, sizeLimit="20Mi"))
    node.wait_pods("limited", condition="jsonpath={.status.reason}=Evicted")
    message = node.get("pod", "limited")["status"]["message"]
    assert message == 'Usage of EmptyDir volume "scratch" exceeds the limit "20Mi". '
    # a pod that fills what the quota leaves: less than a tenth is free
    node.apply(writes("greedy", QUOTA_MIB))
    node.wait_pods("greedy", condition="jsonpath={.status.reason}=Evicted")
    assert "low on resource: ephemeral-storage" in node.get("pod", "greedy")["status"]["message"]
    assert node.get("pod", "small")["status"]["phase"] == "Running"
    pressure = '{.status.conditions[?(@.type=="DiskPressure")].status}'
    node.kubectl("wait", f"--for=jsonpath={pressure}=False", "node/node", "--timeout=300s")
    node.remove_pods()
    node.until(f"[ $({USED}) -lt 2048 ]", say=f"{USED}; du -a {ROOT}")
