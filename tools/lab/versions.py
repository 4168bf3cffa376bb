"""The versions of a node's programs, as a table of results names them."""

from __future__ import annotations

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
