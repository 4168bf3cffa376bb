"""The node under test, whatever machine it is on, and what all of them have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kubeletpy.agent.rootless.containerd import Network as PodNetwork
from kubeletpy.base.api.types import JSON
from tools.conformance.images import REGISTRY
from tools.control_plane.plane import ControlPlane
from tools.env.images import Image
from tools.env.kubectl import kubectl
from tools.env.process import CommandError
from tools.env.waiting import wait_until

NAME = "conformance"
AGENTS = ("kubeletpy", "kubelet")


class Node(Protocol):
    """A node of a control plane, with a containerd of its own; or several."""

    @property
    def logs(self) -> Mapping[str, Path]:
        """Logs, by their names in reports; those of agents are complete once it is removed."""
        ...

    def start(self, agent: str) -> None:
        """Start the agent "kubeletpy" or "kubelet" and wait until the node is Ready.

        Raises CommandError, GuestError or NotReadyError.
        """
        ...

    def remove(self) -> None:
        """End the agent, its pods and what both left."""
        ...


@dataclass(frozen=True)
class Setup:
    """The parts of a node.

    Attributes:
        directory: for its files; short (sockets).
        programs: the directory of the Go kubelet.
        plane: its control plane.
        images: its runtime has them from the beginning.
        mirror: the URL of a registry that has them, too.
        gates: feature gates.
        name: of the node.
        address: its InternalIP, or two with a comma between; empty: of its default route.
        pods: the network of its pods; None: one with a subnet that this machine does not use.
        more: further fields of the agent's configuration.
    """

    directory: Path
    programs: Path
    plane: ControlPlane
    images: Sequence[Image]
    mirror: str
    gates: Mapping[str, bool]
    name: str = NAME
    address: str = ""
    pods: PodNetwork | None = None
    more: Mapping[str, object] = field(default_factory=dict)

    @property
    def sandbox_image(self) -> str:
        """The name of the image of sandboxes."""
        return next(each.name for each in self.images if "/pause:" in each.name)

    def kubelet_config(self, **more: object) -> JSON:
        """The configuration of the agent; ``more``: further fields."""
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"x509": {"clientCAFile": str(self.plane.authority.ca)}},
            "authorization": {"mode": "Webhook"},
            "failSwapOn": False,
            "evictionHard": {"memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "registryPullQPS": 0,
            "serializeImagePulls": False,
            "featureGates": dict(self.gates),
            **self.more,
            **more,
        }

    def write_mirror(self, certs: Path) -> None:
        """Let a containerd whose ``config_path`` is ``certs`` pull the images from the mirror."""
        folder = certs / REGISTRY
        folder.mkdir(parents=True)
        (folder / "hosts.toml").write_text(
            f'server = "https://{REGISTRY}"\n\n'
            f'[host."{self.mirror}"]\n  capabilities = ["pull", "resolve"]\n'
        )

    def wait_ready(self, timeout: float, give_up: Callable[[], str | None]) -> None:
        """Wait until the node is Ready, for ``timeout`` seconds. Raises NotReadyError.

        ``give_up`` returns a reason where its agent does not run.
        """
        wait_until(self._ready, f"node {self.name} Ready", timeout=timeout, give_up=give_up)

    def _ready(self) -> bool:
        desired = "--for=condition=Ready", "--timeout=2s"
        try:
            kubectl("new").run(self.plane.admin, "wait", f"node/{self.name}", *desired)
        except CommandError:
            return False
        return True
