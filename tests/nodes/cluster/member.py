"""A virtual machine that joins a cluster: deploy's unit, kube-proxy, and routes to the other pods.

Everything is a unit that starts at boot, so that a node whose power was cut returns by itself.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import yaml

from tests.nodes.guest import LimitedConnection, find_groups
from tests.nodes.setup import CONFIG
from tools.control_plane.plane import ControlPlane
from tools.lab.network import address_of, guest_script, routing_script
from tools.lab.uml import UserModeLinux
from tools.lab.versions import DEPLOY

NODES = 3
POD_NETWORK = "10.88.0.0/16"
_CA = "/etc/kubernetes/pki/ca.crt"
_PROXY = "/usr/local/bin/kube-proxy"
_PROXY_CONFIG = "/etc/kubernetes/kube-proxy.conf"


def pod_subnet(number: int) -> str:
    """Addresses of the pods of a node."""
    return f"10.88.{number}.0/24"


def network_script(number: int) -> str:
    """Commands that a node runs at boot: its address, and routes to the pods of the others."""
    routing = routing_script(number, NODES, pod_subnet)
    return f"{guest_script(number)} && modprobe br_netfilter && {routing}"


def _unit(description: str, service: str, before: str = "") -> str:
    return (
        f"[Unit]\nDescription={description}\nBefore={before}\n\n[Service]\n{service}\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def network_unit(number: int) -> str:
    """A unit that runs the commands before the agent starts."""
    script = shlex.quote(network_script(number))
    service = f"Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -ec {script}"
    return _unit("Network of the laboratory", service, "kubeletpy.service kube-proxy.service")


PROXY_UNIT = _unit(
    "kube-proxy",
    f"ExecStart={_PROXY} --kubeconfig={_PROXY_CONFIG} --proxy-mode=iptables"
    f" --cluster-cidr={POD_NETWORK}\nRestart=always\nRestartSec=2",
)


class Member(LimitedConnection):
    """One node of the cluster; its number is that of its address."""

    machine: UserModeLinux

    def __init__(self, machine: UserModeLinux, directory: Path, suite: str, number: int) -> None:
        super().__init__(machine, directory, suite)
        self.number, self.name, self.address = number, f"node-{number}", address_of(number)

    def join(self, plane: ControlPlane, programs: Path) -> None:
        """Install everything and start it. ``programs``: the directory of kube-proxy."""
        self.write("/etc/hostname", f"{self.name}\n")
        self.write("/etc/systemd/system/lab-network.service", network_unit(self.number))
        self.shell(f"hostname {self.name} && systemctl enable --now lab-network")
        self.install_agent(pod_subnet(self.number))
        self.configure_containerd("systemd")
        config = yaml.safe_load((DEPLOY / "kubelet-config.yaml").read_text()) | {
            "cgroupDriver": "systemd",
            "authentication": {"x509": {"clientCAFile": _CA}},
        }
        self.write(CONFIG, json.dumps(config, indent=1))
        self.write(_CA, plane.authority.ca.read_text())
        self.write("/etc/kubernetes/kubelet.conf", plane.node_kubeconfig(self.name).read_text())
        user = f"kube-proxy-{self.number}", plane.url, "system:kube-proxy"
        self.write(_PROXY_CONFIG, plane.authority.kubeconfig(*user).read_text())
        self.machine.copy_in(programs / "kube-proxy", _PROXY)
        self.write("/etc/systemd/system/kube-proxy.service", PROXY_UNIT)
        self.shell(
            "systemctl daemon-reload && systemctl restart containerd"
            " && systemctl enable --now kubeletpy kube-proxy && sync"
        )

    def running_containers_of(self, uid: str) -> list[str]:
        """Ids of the containers of a pod that have a process, its sandbox included."""
        tasks = "ctr -n k8s.io tasks list | awk '$3 == \"RUNNING\" {print $1}'"
        return self.shell(f"{{ {_containers_of(uid)}; {tasks}; }} | sort | uniq -d").split()

    def await_removal(self, uid: str) -> None:
        """Wait until nothing of a pod is left: no record of a container, cgroup or directory."""
        directory = f"ls -d /var/lib/kubelet/pods/{uid} 2>/dev/null"
        left = f"{{ {_containers_of(uid)}; {directory}; {find_groups(uid)}; }}"
        self.until(f'[ -z "$({left})" ]', say=left)


def _containers_of(uid: str) -> str:
    """A command that prints the ids of the containers of a pod that the runtime has."""
    return f"ctr -n k8s.io containers list --quiet 'labels.\"io.kubernetes.pod.uid\"=={uid}'"
