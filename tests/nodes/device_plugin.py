"""A device plugin on a virtual node, as a unit that starts at each boot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.nodes.node import VirtualNode
from tools.lab.image import CHECKOUT

DEVICE = "/dev/loop-control"
"""The device file of the node that stands behind each of its devices."""
RESOURCE = "test.example/dev"
_DIRECTORY = "/var/lib/lab-device-plugin"
_UNIT = "lab-device-plugin"


def unit(delay: int) -> str:
    """The unit; the plugin starts ``delay`` seconds after the agent."""
    return f"""\
[Unit]
Description=A device plugin

[Service]
ExecStartPre=/bin/sh -c 'until systemctl -q is-active kubeletpy; do sleep 0.2; done; sleep {delay}'
ExecStart=/usr/bin/python3 {_DIRECTORY}/plugin.py {_DIRECTORY} \
--sockets /var/lib/kubelet/device-plugins --resource {RESOURCE} --device {DEVICE}
TimeoutStartSec=infinity

[Install]
WantedBy=multi-user.target
"""


@contextmanager
def device_plugin(node: VirtualNode, *devices: str, delay: int = 0) -> Iterator[None]:
    """A plugin with healthy devices, and a node that has them. It prefers the last of them."""
    node.write(f"{_DIRECTORY}/devices.json", json.dumps(dict.fromkeys(devices, "Healthy")))
    source = CHECKOUT / "tests/device_plugin/__main__.py"
    node.machine.copy_in(source, f"{_DIRECTORY}/plugin.py")
    node.write(f"/etc/systemd/system/{_UNIT}.service", unit(delay))
    node.shell("modprobe loop; systemctl daemon-reload")
    node.shell(f"systemctl enable --no-block --now {_UNIT}")
    reported = RESOURCE.replace(".", "\\.")
    node.wait_node(f"jsonpath={{.status.allocatable.{reported}}}={len(devices)}")
    yield
    node.remove_pods()
    node.shell(f"systemctl disable --now {_UNIT}")
