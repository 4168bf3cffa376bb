"""Devices under cgroup v2, where a BPF program of the container's cgroup admits them.

A container may make the node of any device, so that the file's mode decides nothing: what the
kernel refuses with "Operation not permitted" is refused by that program.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nodes.device_plugin import DEVICE, RESOURCE, device_plugin
from tests.nodes.node import SLEEPS, VirtualNode, container, pod

NUMBERS = "10 237"
ENDS = f"trap 'exit 0' TERM; {SLEEPS}"
HOST = {"name": "device", "hostPath": {"path": DEVICE, "type": "CharDevice"}}
MOUNT = {"name": "device", "mountPath": DEVICE}


def opens(path: str) -> str:
    """Commands that report whether a device can be opened."""
    return f"if (: < {path}) 2>/tmp/error; then echo {path} opened; else cat /tmp/error; fi"


def made(path: str) -> str:
    """Commands that make a node of the device, and open it."""
    return f"mknod {path} c {NUMBERS} && {opens(path)}"


def refused(path: str) -> str:
    """The shell's message about a device that the kernel refuses to open."""
    return f"can't open {path}: Operation not permitted"


@pytest.fixture
def node(node: VirtualNode) -> Iterator[VirtualNode]:
    """A node with a device plugin, whose one device is the control device of loop devices."""
    node.configure("systemd")
    with device_plugin(node, "one"):
        yield node


def test_only_devices_that_a_container_was_given_can_be_opened(node: VirtualNode) -> None:
    none = f"{made('/tmp/own')}; {opens('/dev/null')}; echo done; {ENDS}"
    node.apply(
        pod("none", container(script=none)),
        pod(
            "mounted",
            container(script=f"{opens(DEVICE)}; echo done; {ENDS}", volumeMounts=[MOUNT]),
            volumes=[HOST],
        ),
        pod(
            "privileged",
            container(
                script=f"{opens(DEVICE)}; {made('/tmp/own')}; echo done; {ENDS}",
                volumeMounts=[MOUNT],
                securityContext={"privileged": True},
            ),
            volumes=[HOST],
        ),
        pod(
            "plugin",
            container(
                script=f"{opens('/dev/one')}; {made('/tmp/own')}; echo done; {ENDS}",
                limits={RESOURCE: "1"},
            ),
        ),
    )
    seen = node.logged("none", "mounted", "privileged", "plugin")
    error, opened = seen["none"]
    assert error.endswith(refused("/tmp/own"))
    assert opened == "/dev/null opened"
    assert seen["mounted"][0].endswith(refused(DEVICE))
    assert seen["privileged"] == [f"{DEVICE} opened", "/tmp/own opened"]
    # the plugin's device has these numbers under any name
    assert seen["plugin"] == ["/dev/one opened", "/tmp/own opened"]
