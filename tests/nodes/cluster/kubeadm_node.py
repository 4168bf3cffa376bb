"""A virtual machine on which kubeadm makes a node: containerd, kubelet, kubeadm and images."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.nodes.cluster.kubeadm_files import (
    KUBEADM_DROP_IN,
    KUBELET_UNIT,
    init_config,
    join_config,
)
from tests.nodes.cluster.member import network_unit, pod_subnet
from tests.nodes.guest import LimitedConnection
from tools.lab.network import address_of
from tools.lab.requests import GuestError
from tools.lab.uml import SHOW_CLOCK, UserModeLinux
from tools.lab.versions import DEPLOY

MANIFESTS = "/etc/kubernetes/manifests"
IGNORED = {
    "NumCPU": "this kernel has one processor, and a control plane is to have two",
    "SystemVerification": "this kernel has no cpusets",
}
"""Check of kubeadm -> why it fails on this kernel."""
_AGENT_DROP_IN = "kubelet.service.d/20-kubeletpy.conf"
_CONFIG = "/etc/kubernetes/kubeadm.yaml"
_ADMIN = "/etc/kubernetes/admin.conf"
_HOST_PROGRAMS, _HOST_IMAGES = "/run/lab-programs", "/run/lab-images"
_MOUNTS = "{ grep -E ' (/var/lib/kubelet|/run/netns)/' /proc/mounts || true; }"


class KubeadmNode(LimitedConnection):
    """One machine; its number is that of its address.

    Attributes:
        admin: the kubeconfig of the cluster that `init` makes here.
        directory: what is copied from the machine.
    """

    machine: UserModeLinux

    def __init__(self, machine: UserModeLinux, directory: Path, suite: str, number: int) -> None:
        super().__init__(machine, directory, suite)
        self.number, self.name, self.address = number, f"kubeadm-{number}", address_of(number)
        self.directory, self.admin = directory, directory / "admin.conf"

    def install(self, programs: Path, images: Path) -> None:
        """Install what kubeadm expects, and the agent beside it. ``images``: an archive."""
        self.write("/etc/hostname", f"{self.name}\n")
        self.write("/etc/hosts", f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        self.write("/etc/systemd/system/lab-network.service", network_unit(self.number))
        self.shell(f"hostname {self.name} && systemctl enable --now lab-network && {SHOW_CLOCK}")
        self.install_agent(pod_subnet(self.number))
        self.configure_containerd("systemd")
        self.write("/usr/lib/systemd/system/kubelet.service", KUBELET_UNIT)
        self.write("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", KUBEADM_DROP_IN)
        self.machine.mount_host(programs, _HOST_PROGRAMS)
        self.machine.mount_host(images.parent, _HOST_IMAGES)
        self.shell(
            f"install -m 755 {_HOST_PROGRAMS}/kubelet {_HOST_PROGRAMS}/kubeadm /usr/bin/"
            " && systemctl daemon-reload && systemctl restart containerd"
            " && systemctl enable kubelet"
            f" && ctr -n k8s.io images import {_HOST_IMAGES}/{images.name} && sync"
        )

    def use_agent(self) -> None:
        """Put the agent in the kubelet's place, as docs/joining.md describes it."""
        self.write(f"/etc/systemd/system/{_AGENT_DROP_IN}", (DEPLOY / _AGENT_DROP_IN).read_text())
        self.shell("systemctl daemon-reload")

    def init(self) -> None:
        """`kubeadm init` without CoreDNS, and copy the administrator's kubeconfig."""
        self.write(_CONFIG, init_config(self.address))
        self._kubeadm("init", f"--config={_CONFIG}", "--skip-phases=addon/coredns")
        self.machine.copy_out(_ADMIN, self.admin)

    def join(self, plane: KubeadmNode) -> None:
        """`kubeadm join` with a new token of another machine's cluster."""
        reported = plane.shell("kubeadm token create --print-join-command")
        parts = shlex.split(reported.splitlines()[-1])
        token, ca_hash = (
            parts[parts.index(flag) + 1] for flag in ("--token", "--discovery-token-ca-cert-hash")
        )
        self.write(_CONFIG, join_config(f"{plane.address}:6443", token, ca_hash))
        self._kubeadm("join", f"--config={_CONFIG}")

    def reset(self) -> None:
        """`kubeadm reset`."""
        self._kubeadm("reset", "--force")

    def _kubeadm(self, *parts: str) -> None:
        output = self.shell(f"kubeadm {' '.join(parts)} --ignore-preflight-errors={_IGNORED}")
        (self.directory / f"kubeadm-{parts[0]}.log").write_text(f"{output}\n")

    def tasks(self) -> list[str]:
        """Id and process of each container and sandbox that runs."""
        listed = "ctr -n k8s.io tasks list | awk '$3 == \"RUNNING\" {print $1, $2}' | sort"
        return self.shell(listed).splitlines()

    def left(self) -> str:
        """The rest of a node after its reset: containers, mounts, files, and a unit that runs."""
        files = "find /var/lib/kubelet /var/lib/etcd /etc/kubernetes/manifests"
        files += " /etc/kubernetes/pki /etc/kubernetes/*.conf -mindepth 1"
        return self.shell(
            f"ctr -n k8s.io containers list --quiet; {_MOUNTS};"
            f" {{ {files}; }} 2>/dev/null; systemctl is-active kubelet | grep -vx inactive || true"
        )

    def leave(self, directory: Path) -> None:
        """Also the output of kubeadm, and the logs of the pods."""
        super().leave(directory)
        for file in self.directory.glob("kubeadm-*.log"):
            (directory / file.name).write_bytes(file.read_bytes())
        try:
            self.shell("tar -C /var/log -czf /tmp/pods.tar.gz pods")
            self.machine.copy_out("/tmp/pods.tar.gz", directory / "pods.tar.gz")
        except GuestError as error:
            (directory / "pods.tar.gz").write_text(f"{error}\n")


_IGNORED = ",".join(IGNORED)
