"""AppArmor: which profile the kernel has for a container's process, and what it denies it."""

from __future__ import annotations

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.node import SLEEPS, VirtualNode, container, pod

SCRIPT = f"""\
echo $(cat /proc/1/attr/current)
for file in allowed denied; do touch /tmp/$file 2>/dev/null && echo $file; done
mkdir /tmp/mnt; mount -t tmpfs none /tmp/mnt 2>/dev/null && echo mounted
echo done
trap 'exit 0' TERM; {SLEEPS}"""
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


RUNTIME_DEFAULT = ["cri-containerd.apparmor.d (enforce)", "allowed", "denied"]
PROFILES: dict[str, tuple[JSON | None, list[str]]] = {
    "none": (None, RUNTIME_DEFAULT),
    "runtime": ({"type": "RuntimeDefault"}, RUNTIME_DEFAULT),
    "local": (
        {"type": "Localhost", "localhostProfile": "lab-denies"},
        ["lab-denies (enforce)", "allowed"],
    ),
    "unconfined": ({"type": "Unconfined"}, ["unconfined", "allowed", "denied", "mounted"]),
}


@pytest.mark.parametrize("where", ["pod", pytest.param("container", marks=pytest.mark.long)])
def test_apparmor_denies_a_process_what_its_profile_denies(node: VirtualNode, where: str) -> None:
    """The containers have the capability to mount; profiles but Unconfined deny it."""
    may_mount = {"capabilities": {"add": ["SYS_ADMIN"]}}
    pods = []
    for name, (profile, _) in PROFILES.items():
        own = {"appArmorProfile": profile} if profile else {}
        context = {**may_mount, **(own if where == "container" else {})}
        main = container(script=SCRIPT, securityContext=context)
        pods.append(pod(name, main, securityContext=own if where == "pod" else {}))
    node.run_pods(*pods)
    assert node.logged(*PROFILES) == {name: lines for name, (_, lines) in PROFILES.items()}


def test_a_missing_profile_keeps_the_container_from_being_created(node: VirtualNode) -> None:
    missing = {"type": "Localhost", "localhostProfile": "lab-missing"}
    text = "failed to generate apparmor spec opts: apparmor profile not found lab-missing"
    node.wait_not_created("missing", {"appArmorProfile": missing}, text)
    # loaded afterwards, it is found at the next attempt
    node.write("/etc/apparmor.d/lab-missing", DENIES.replace("lab-denies", "lab-missing"))
    node.shell("apparmor_parser -r /etc/apparmor.d/lab-missing")
    try:
        node.wait_pods("missing")
    finally:
        node.remove_pods()
        node.shell("apparmor_parser -R /etc/apparmor.d/lab-missing")
