"""AppArmor: which profile the kernel enforces on a container's process."""

from __future__ import annotations

import pytest

from tests.nodes.node import VirtualNode, container, pod

SLEEPS = "echo $(cat /proc/1/attr/current); trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"
DENIES = """\
profile lab-denies flags=(attach_disconnected) {
  file,
  capability,
  network,
  signal,
  deny /tmp/denied w,
}
"""


@pytest.fixture
def node(node: VirtualNode) -> VirtualNode:
    """A node on the systemd driver, with a profile of AppArmor."""
    node.configure("systemd")
    node.write("/etc/apparmor.d/lab-denies", DENIES)
    node.shell("apparmor_parser -r /etc/apparmor.d/lab-denies")
    return node


@pytest.mark.parametrize(
    ("profile", "enforced"),
    [
        (None, "cri-containerd.apparmor.d (enforce)"),
        ({"type": "RuntimeDefault"}, "cri-containerd.apparmor.d (enforce)"),
        ({"type": "Localhost", "localhostProfile": "lab-denies"}, "lab-denies (enforce)"),
        ({"type": "Unconfined"}, "unconfined"),
    ],
)
def test_apparmor_profile_of_a_process(
    node: VirtualNode, profile: dict[str, str] | None, enforced: str
) -> None:
    context = {"appArmorProfile": profile} if profile else {}
    node.run_pods(pod("confined", container(script=SLEEPS, securityContext=context)))
    assert node.kubectl("logs", "confined") == enforced
