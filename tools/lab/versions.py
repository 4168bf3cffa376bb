"""The versions of a node's programs, and the configuration of its containerd."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tools.lab.machine import Machine
from tools.lab.recipe import RUNC
from tools.lab.requests import GuestError

_COMMANDS = {
    "distribution": ". /etc/os-release; echo $PRETTY_NAME",
    "kernel": "uname -r",
    "systemd": "systemctl --version | awk 'NR == 1 {print $2}'",
    "cgroup": "stat -fc %T /sys/fs/cgroup | sed 's/cgroup2fs/v2/'",
    "containerd": "containerd --version | awk '{print $3}'",
    "python": "python3 --version | awk '{print $2}'",
}


def versions_of(machine: Machine, oci: str = RUNC) -> dict[str, str]:
    """Program -> its version; ``oci`` is the OCI runtime in use. Raises GuestError."""
    found = {}
    commands = {**_COMMANDS, oci: f"{oci} --version | awk 'NR == 1 {{print $3}}'"}
    for program, command in commands.items():
        done = machine.run("sh", "-c", command)
        if done.status or not done.output.strip():
            raise GuestError(f"no version of {program}: {done.output}")
        found[program] = done.output.strip()
    return found


def containerd_generation(version: str) -> int:
    """The version of the configuration file that a containerd is given: 2, or 3 from 2.0 on.

    For example ``"1.7.24~ds1"`` is 2, and ``"v2.1.9"`` is 3.
    """
    return 3 if int(version.lstrip("v").split(".")[0]) >= 2 else 2


DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CONTAINERD_CONFIG = "/etc/containerd/config.toml"
POD_SUBNET = "10.88.0.0/24"
STATE_TIMEOUT = '\n[timeouts]\n"io.containerd.timeout.task.state" = "60s"\n'
"""How long a shim may take to show a task's state. After the default of 2 s, which a busy machine
exceeds, containerd uses 0 as the process of the sandbox, and the start of a container fails."""
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
    return re.sub(r"SystemdCgroup = \w+", options, text) + STATE_TIMEOUT


def pod_network(subnet: str = POD_SUBNET) -> str:
    """The CNI configuration of a node whose pods have addresses in ``subnet``."""
    ranges = [[{"subnet": subnet}]]
    routes = [{"dst": "0.0.0.0/0"}]
    ipam = {"type": "host-local", "ranges": ranges, "routes": routes}
    bridge = {"type": "bridge", "bridge": "pods0", "isGateway": True, "ipam": ipam}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]})
