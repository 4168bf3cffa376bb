"""Virtual machines for kubeadm, in a network of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.nodes.cluster.kubeadm_files import VERSION
from tests.nodes.cluster.kubeadm_images import kubeadm_images
from tests.nodes.cluster.kubeadm_node import KubeadmNode
from tests.nodes.cluster.member import pod_subnet
from tools.control_plane.building import KUBEADM, KUBELET, PROXY, programs
from tools.control_plane.releases import NEWEST
from tools.env.debian import unpacked
from tools.env.images import write_archive
from tools.env.kubectl import kubectl
from tools.lab.network import Network, device_argument
from tools.lab.uml import UserModeLinux

MEMORY_MIB = 3072


class KubeadmMachines:
    """Makes machines; `made` are those that run."""

    def __init__(
        self, directory: Path, disk: Path, suite: str, network: Network, stack: ExitStack
    ) -> None:
        """``stack`` ends the machines. Raises CommandError: a program does not build."""
        self._directory, self._disk, self._suite = directory, disk, suite
        self._network, self._stack = network, stack
        self._programs = programs(NEWEST)
        for each in (KUBELET, PROXY, KUBEADM):
            programs(NEWEST, each)
        images = directory / "images"
        images.mkdir(parents=True)
        self._images = write_archive(
            images / "images.tar", *kubeadm_images(self._programs, VERSION)
        )
        self.made: list[KubeadmNode] = []

    def boot(self) -> KubeadmNode:
        """Boot the next machine, and install everything. Raises NotReadyError or GuestError."""
        number = len(self.made)
        self._network.add_tap(number)
        machine = UserModeLinux(
            self._disk,
            self._directory / f"m{number}",
            memory_mib=MEMORY_MIB,
            more=(device_argument(number),),
        )
        self._stack.callback(machine.cut_power)
        machine.boot()
        self._network.route(pod_subnet(number), number)
        own = self._directory / f"n{number}"
        own.mkdir()
        node = KubeadmNode(machine, own, self._suite, number)
        self.made.append(node)
        node.install(self._programs, self._images)
        return node


@contextmanager
def kubeadm_machines(directory: Path, disk: Path, suite: str) -> Iterator[KubeadmMachines]:
    """Machines that end with the block; until then this thread is in their network."""
    kubectl("new")
    unpacked("apparmor", suite)  # their network has no way to an archive
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        made = KubeadmMachines(directory, disk, suite, network, stack)
        stack.enter_context(network.entered())
        yield made
