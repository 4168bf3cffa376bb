"""Containerd of a virtual node, as an administrator configures it: that of ``deploy/`` (pure)."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tools.lab.recipe import RUNC

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CONTAINERD_CONFIG = "/etc/containerd/config.toml"
POD_SUBNET = "10.88.0.0/24"
NETWORK_CONFIG = "/etc/cni/net.d/10-pods.conflist"


def containerd_config(driver: str, generation: int, sandbox_image: str, oci: str = RUNC) -> str:
    """deploy's configuration of containerd, with an image of sandboxes and a cgroup driver.

    ``oci`` is the OCI runtime's program below /usr/bin.
    """
    text = (DEPLOY / f"containerd-config-v{generation}.toml").read_text()
    text = re.sub(r'(sandbox(_image)?) = ".*"', rf'\1 = "{sandbox_image}"', text)
    options = f"SystemdCgroup = {str(driver == 'systemd').lower()}"
    if oci != RUNC:
        options += f'\nBinaryName = "/usr/bin/{oci}"'
    return re.sub(r"SystemdCgroup = \w+", options, text)


def pod_network(subnet: str = POD_SUBNET) -> str:
    """The CNI configuration of a node whose pods have addresses in ``subnet``."""
    ranges = [[{"subnet": subnet}]]
    routes = [{"dst": "0.0.0.0/0"}]
    ipam = {"type": "host-local", "ranges": ranges, "routes": routes}
    bridge = {"type": "bridge", "bridge": "pods0", "isGateway": True, "ipam": ipam}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]})
