"""NFS volumes of the node's own server, which is stopped and started again."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.node import VirtualNode, container, pod
from tests.nodes.setup import ADMIN

EXPORT = "/srv/shared"
SERVER = "[nfsd]\nvers{other}=n\ngrace-time=10\nlease-time=10\n"
"""After a start, clients wait for the grace time."""
OTHER = {"4": "3", "3": "4"}
PORTS = {"4": "", "3": "rpcbind.service rpcbind.socket"}
"""Units by version: clients of NFS 3 get the ports from rpcbind, NFS 4 has a fixed one."""
KUBECTL = f"kubectl --kubeconfig={ADMIN}"
SUMMARY = "/api/v1/nodes/node/proxy/stats/summary"
MOUNTS = "awk '{print $5, $9}' /proc/self/mountinfo | grep /pods/ | grep nfs"


@pytest.fixture(params=OTHER)
def version(request: pytest.FixtureRequest) -> str:
    """The only version of NFS that the server has, 4 before 3."""
    return str(request.param)


@pytest.fixture
def node(node: VirtualNode, version: str) -> Iterator[VirtualNode]:
    """A node with an NFS server, which runs again before the pods are removed."""
    units = f"{PORTS[version]} nfs-server".strip()
    node.configure("systemd")
    node.write("/etc/nfs.conf.d/lab.conf", SERVER.format(other=OTHER[version]))
    node.write("/etc/exports", f"{EXPORT} *(rw,no_root_squash,no_subtree_check,insecure,fsid=1)\n")
    node.shell(f"mkdir -p {EXPORT} && systemctl unmask {units} && systemctl start {units}")
    yield node
    node.shell("systemctl start nfs-server")
    node.remove_pods()
    node.shell(f"systemctl stop {units} && systemctl mask {units} && rm -r {EXPORT}")


def shares(name: str) -> JSON:
    """A pod that appends a line to its file in the volume each second."""
    script = f"while :; do date >> /data/{name}; sleep 1; done"
    return pod(
        name,
        container(script=script, volumeMounts=[{"name": "data", "mountPath": "/data"}]),
        volumes=[{"name": "data", "nfs": {"server": "127.0.0.1", "path": EXPORT}}],
    )


def await_growth(node: VirtualNode, name: str) -> None:
    """Wait until a pod has written more lines than there are."""
    lines = f"cat {EXPORT}/{name} | wc -l"
    node.until(f"[ $({lines}) -gt {node.shell(lines)} ]", say=f"{KUBECTL} describe pod {name}")


def measured(node: VirtualNode) -> set[str]:
    """The pods of the summary, which has to come within half a minute."""
    summary = json.loads(node.kubectl("get", "--raw", SUMMARY, timeout=30))
    return {each["podRef"]["name"] for each in summary["pods"]}


@pytest.mark.long
def test_a_stopped_server_delays_only_the_pods_that_use_it(node: VirtualNode, version: str) -> None:
    node.run_pods(shares("kept"), shares("deleted"), pod("other"))
    for name in ("kept", "deleted"):
        await_growth(node, name)
    uid = node.get("pod", "deleted")["metadata"]["uid"]
    other = node.get("pod", "other")["status"]
    node.until(f"grep {uid} /proc/mounts | grep ' nfs.*,vers={version}'")

    node.shell("systemctl stop nfs-server")
    node.kubectl("delete", "pod", "deleted", "--wait=false")
    node.apply(shares("late"))
    node.run_pods(pod("new"))
    assert {"kept", "other"} <= measured(node)
    # the mount is removed by force, while the server does not answer
    node.kubectl("wait", "--for=delete", "pod/deleted", "--timeout=300s")
    node.until(f"! grep {uid} /proc/self/mountinfo && [ ! -e /var/lib/kubelet/pods/{uid} ]")
    node.until(
        f"{KUBECTL} get events | grep 'pod/late' | grep FailedMount", say=f"{KUBECTL} get events"
    )
    # an agent that starts meanwhile does not wait for the mount that it finds
    node.shell("systemctl restart kubeletpy")
    node.wait_ready()
    assert {"kept", "other"} <= measured(node)
    assert node.get("pod", "other")["status"] == other
    (ready,) = (
        each for each in node.get("node", "node")["status"]["conditions"] if each["type"] == "Ready"
    )
    assert ready["status"] == "True"

    node.shell("systemctl start nfs-server")
    await_growth(node, "kept")
    node.wait_pods("late")
    await_growth(node, "late")
    (kept,) = node.get("pod", "kept")["status"]["containerStatuses"]
    assert kept["restartCount"] == 0
    node.remove_pods()
    node.until(f'! {{ {MOUNTS}; }} && [ -z "$(ls /var/lib/kubelet/pods)" ]', say=MOUNTS)
