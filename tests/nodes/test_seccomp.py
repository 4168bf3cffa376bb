"""Seccomp: the mode of a container's process in the kernel, and which calls its profile denies."""

from __future__ import annotations

import json

import pytest

from kubeletpy.base.api.types import JSON
from tests.nodes.node import SLEEPS, VirtualNode, container, pod

PROFILES = "/var/lib/kubelet/seccomp"
NO_DIRECTORIES = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}],
}
SCRIPT = f"""\
awk '/^Seccomp:/ {{print "mode", $2}}' /proc/1/status
mkdir /tmp/made 2>/dev/null && echo mkdir
unshare -U true 2>/dev/null && echo unshare
echo done
trap 'exit 0' TERM; {SLEEPS}"""
"""The runtime's profile denies a new user namespace to a process that may not administrate."""
UNCONFINED = ["mode 0", "mkdir", "unshare"]
RUNTIME_DEFAULT = ["mode 2", "mkdir"]
LOCALHOST = ["mode 2", "unshare"]
LOCAL = {"type": "Localhost", "localhostProfile": "lab/no-directories.json"}


@pytest.fixture
def node(node: VirtualNode) -> VirtualNode:
    """A node with a profile of its own."""
    node.write(f"{PROFILES}/lab/no-directories.json", json.dumps(NO_DIRECTORIES))
    return node


PODS: dict[str, tuple[JSON | None, JSON | None, list[str]]] = {
    "none": (None, None, UNCONFINED),
    "pod-unconfined": ({"type": "Unconfined"}, None, UNCONFINED),
    "pod-runtime": ({"type": "RuntimeDefault"}, None, RUNTIME_DEFAULT),
    "runtime": (None, {"type": "RuntimeDefault"}, RUNTIME_DEFAULT),
    "pod-local": (LOCAL, None, LOCALHOST),
    "local": (None, LOCAL, LOCALHOST),
    "runtime-local": ({"type": "RuntimeDefault"}, LOCAL, LOCALHOST),
    "local-unconfined": (LOCAL, {"type": "Unconfined"}, UNCONFINED),
}
"""Pod -> its profile, its container's, and what the container writes."""


@pytest.mark.long
@pytest.mark.parametrize("default", [False, True])
def test_seccomp_denies_a_process_what_its_profile_denies(node: VirtualNode, default: bool) -> None:
    """With seccompDefault, a container for which nothing is set has the runtime's profile."""
    if default:
        node.configure("systemd", seccompDefault=True)
    else:
        node.configure("systemd")
    pods = []
    for name, (of_pod, of_container, _) in PODS.items():
        own, inner = ({"seccompProfile": each} if each else {} for each in (of_pod, of_container))
        pods.append(pod(name, container(script=SCRIPT, securityContext=inner), securityContext=own))
    node.run_pods(*pods)
    desired = {name: lines for name, (_, _, lines) in PODS.items()}
    if default:
        desired["none"] = RUNTIME_DEFAULT
    assert node.logged(*PODS) == desired


def test_a_missing_profile_keeps_the_container_from_being_created(node: VirtualNode) -> None:
    node.configure("systemd")
    missing = {"type": "Localhost", "localhostProfile": "lab/missing.json"}
    file = f"{PROFILES}/lab/missing.json"
    node.shell(f"rm -f {file}")
    text = f'cannot load seccomp profile "{file}": open {file}: no such file or directory'
    node.wait_not_created("missing", {"seccompProfile": missing}, text)
    # written afterwards, it is found at the next attempt
    node.write(file, json.dumps(NO_DIRECTORIES))
    node.wait_pods("missing")
