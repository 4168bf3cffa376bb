"""Pods with users of their own (hostUsers: false), as the node's kernel has them."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.guest import GROUPS
from tests.nodes.node import SLEEPS, VirtualNode, container, pod

mapping = pytest.mark.suite("testing")
"""Debian testing has containerd 2 with runtimes that map ids, and Linux 7."""
PODS = "/var/lib/kubelet/pods"
HOST = "/srv/users"
OUTSIDE = 70000
"""A user of the node with an id that no pod sees."""
LENGTH = 65536
GROUP = 2000
FILES = ("/disk/file", "/memory/file", "/settings/key", "/secret/key", "/projected/token")
_STAT = f"for file in {' '.join(FILES)} /host/root /host/outside /proc/sys/kernel/hostname"
SCRIPT = f"""\
echo map $(cat /proc/self/uid_map)
echo groups $(cat /proc/self/gid_map)
touch /disk/file /memory/file || echo not written
cat /settings/key /secret/key /host/root || echo not read
test -s /projected/token || echo no token
{_STAT}; do
  echo $file $(stat -L -c %u:%g $file)
done
(echo more >> /host/outside) 2>/dev/null && echo written
echo done
trap 'exit 0' TERM; {SLEEPS}"""
"""Reports ids as a container sees them."""


def mapped(name: str, script: str = SCRIPT, **context: int) -> JSON:
    """A pod with users of its own, and with volumes of each kind that has files."""
    volumes: dict[str, JSON] = {
        "disk": {"emptyDir": {}},
        "memory": {"emptyDir": {"medium": "Memory"}},
        "settings": {"configMap": {"name": "settings"}},
        "secret": {"secret": {"secretName": "secret", "defaultMode": 0o440}},
        "projected": {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        "host": {"hostPath": {"path": HOST}},
    }
    mounts = [{"name": each, "mountPath": f"/{each}"} for each in volumes]
    return pod(
        name,
        container(script=script, volumeMounts=mounts),
        volumes=[{"name": each, **source} for each, source in volumes.items()],
        hostUsers=False,
        securityContext={"fsGroup": GROUP, **context},
    )


@pytest.fixture
def node(node: VirtualNode) -> VirtualNode:
    """A node with a directory, a ConfigMap and a Secret for such pods."""
    node.configure("systemd")
    node.shell(
        f"mkdir -p {HOST} && echo of root > {HOST}/root && echo of another > {HOST}/outside"
        f" && chown {OUTSIDE}:{OUTSIDE} {HOST}/outside"
    )
    for kind, name in (("ConfigMap", "settings"), ("Secret", "secret")):
        data = {"data" if kind == "ConfigMap" else "stringData": {"key": f"of the {name}\n"}}
        node.apply({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **data})
    return node


def range_of(node: VirtualNode, name: str, user: int = 0) -> int:
    """The first id of a pod's range, by the maps and the user of its process in the kernel."""
    found = node.get("pod", name)["status"]["containerStatuses"][0]
    assert found["restartCount"] == 0
    identity = found["containerID"].partition("://")[2]
    process = node.shell(f"ctr -n k8s.io tasks list | awk '$1 == \"{identity}\" {{print $2}}'")
    maps = node.shell(f"cat /proc/{process}/uid_map /proc/{process}/gid_map").split()
    assert maps[:3] == maps[3:]
    inside, first, length = map(int, maps[:3])
    assert (inside, length) == (0, LENGTH)
    assert first >= LENGTH
    ids = node.shell(f"awk '/^Uid:/' /proc/{process}/status").split()[1:]
    assert ids == [str(first + user)] * 4
    return first


def seen(user: int, first: int) -> list[str]:
    """The lines of SCRIPT in a pod whose container runs as ``user``."""
    own = f"{user}:{GROUP}"
    return [
        *(f"{kind} 0 {first} {LENGTH}" for kind in ("map", "groups")),
        *("of the settings", "of the secret", "of root"),
        *(f"{file} {own}" for file in FILES[:2]),
        *(f"{file} 0:{GROUP}" for file in FILES[2:4]),
        # the token belongs to the user of the pod's containers
        f"{FILES[4]} {own}",
        # the volume maps ids: root is root; all others, and the kernel's own, are nobody
        *("/host/root 0:0", "/host/outside 65534:65534"),
        "/proc/sys/kernel/hostname 65534:65534",
    ]


@mapping
def test_pods_have_ranges_of_ids_and_volumes_that_map_them(node: VirtualNode) -> None:
    users = {"root": 0, "user": 1000}
    node.run_pods(mapped("root"), mapped("user", runAsUser=1000))
    ranges = {name: range_of(node, name, user) for name, user in users.items()}
    assert abs(ranges["root"] - ranges["user"]) >= LENGTH
    # Linux 6.12 needs this for mounts of containers' cgroups
    assert not node.shell(f"find {GROUPS}/kubepods.slice -type d ! -perm -005")
    logged = node.logged(*users)
    for name, user in users.items():
        assert logged[name] == seen(user, ranges[name])
        uid = node.get("pod", name)["metadata"]["uid"]
        for file in FILES[:2]:
            volume = PurePosixPath(file).parent.name
            path = f"{PODS}/{uid}/volumes/kubernetes.io~empty-dir/{volume}/file"
            # what the container sees is what the disk has
            assert node.shell(f"stat -c %u:%g {path}") == f"{user}:{GROUP}"
    assert node.read(f"{HOST}/outside") == "of another"

    node.shell("systemctl restart kubeletpy")
    node.wait_ready()
    assert {name: range_of(node, name, user) for name, user in users.items()} == ranges
    node.run_pods(pod("third", hostUsers=False))
    third = range_of(node, "third")
    assert all(abs(third - each) >= LENGTH for each in ranges.values())

    node.remove_pods()
    node.until(f"! ls {PODS}/*/userns", say=f"ls -l {PODS}/*")
    node.run_pods(pod("next", hostUsers=False))
    assert range_of(node, "next") in {third, *ranges.values()}
