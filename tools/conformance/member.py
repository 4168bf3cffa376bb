"""A node of a cluster of processes: a process in network, mount and UTS namespaces of its own.

It is a fork of the run's process, and the agent, containerd and kube-proxy are its children. It
ends when the other end of its lifeline, a pipe, is closed, so also when the run was killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kubeletpy.agent.rootless.containerd import Network as PodNetwork
from tools.conformance.node import Setup
from tools.conformance.process import ProcessNode
from tools.env.process import CommandError, Daemon, run
from tools.env.waiting import NotReadyError
from tools.lab.network import Network, address6_script, address_script, routing_script

POD_NETWORK = "10.88.0.0/16,fd00:88::/48"
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Place:
    """A node's place in its cluster.

    Attributes:
        number: of the node; the first is 0.
        count: of the cluster's nodes.
        network: theirs.
    """

    number: int
    count: int
    network: Network


def pod_network(number: int) -> PodNetwork:
    """The network of the pods of a node."""
    subnets = f"10.88.{number}.0/24,fd00:88:0:{number}::/64"
    return PodNetwork("pods", "pods0", subnets, masquerade=False)


def cluster_script(number: int, count: int) -> str:
    """Commands that give a node on the network its address of IPv6, and routes to other pods."""
    routing = routing_script(number, count, lambda other: pod_network(other).subnet)
    return f"{address6_script(number)} && {routing}"


def proxy_command(program: Path, kubeconfig: Path, name: str) -> Sequence[str | Path]:
    """The command line of a node's kube-proxy.

    Settings of conntrack are the machine's, which namespaces cannot change.
    """
    return [
        program,
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={name}",
        "--proxy-mode=iptables",
        f"--cluster-cidr={POD_NETWORK}",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]


def live(setup: Setup, agent: str, place: Place, lifeline: tuple[int, int]) -> None:
    """Be the node until the lifeline ends; the target of a process."""
    for each in (signal.SIGINT, signal.SIGTERM):  # what the run does then ends the lifeline
        signal.signal(each, lambda *_: None)  # containers would inherit SIG_IGN
    os.close(lifeline[1])
    isolate(setup.name)
    place.network.add_veth(place.number, os.getpid())
    parts = "ip link set lo up", address_script(place.number)
    run("sh", "-ec", " && ".join((*parts, cluster_script(place.number, place.count))))
    node = ProcessNode(setup)
    proxy = Daemon("kube-proxy", setup.directory / "n")
    try:
        node.start(agent)
        user = f"proxy-{setup.name}", setup.plane.url, "system:kube-proxy"
        kubeconfig = setup.plane.authority.kubeconfig(*user)
        # it exits when its node gets an address
        proxy.start(proxy_command(setup.programs / "kube-proxy", kubeconfig, setup.name))
        os.read(lifeline[0], 1)
    except (CommandError, NotReadyError) as error:
        print(f"{setup.name}: {error}", file=sys.stderr)
    finally:
        proxy.stop()
        node.remove()


def isolate(name: str) -> None:
    """Give this process namespaces of its own, with a host name and a /sys of the network.

    Its mount namespace may not share mounts with others. Raises OSError or CommandError.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(_CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    socket.sethostname(name)
    run("mount", "--make-rprivate", "/")
    kept = Path(tempfile.mkdtemp(prefix="kpe-cgroups-"))
    run("mount", "--rbind", _CGROUPS, kept)
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    run("mount", "--move", kept, _CGROUPS)
    with suppress(OSError):
        kept.rmdir()
