"""A virtual machine with the agent as an administrator installs it: deploy's unit and containerd.

Nothing here depends on the API server that the agent uses.
"""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path
from typing import Protocol

from kubeletpy.base.api.types import JSON
from tests.nodes.setup import LIBRARY, PROGRAM
from tools.env.debian import unpacked
from tools.env.images import PAUSE, busybox_image, pause_image, write_archive
from tools.env.process import run
from tools.lab.image import CHECKOUT
from tools.lab.machine import Machine
from tools.lab.recipe import RUNC, SITE
from tools.lab.requests import GuestError
from tools.lab.versions import (
    CONTAINERD_CONFIG,
    DEPLOY,
    NETWORK_CONFIG,
    POD_SUBNET,
    containerd_config,
    containerd_generation,
    pod_network,
    versions_of,
)

WITHIN_S = 1800
"""Timeout for changes that take seconds on a quiet machine, and minutes under QEMU."""
GROUPS = "/sys/fs/cgroup"
_PACKAGES = ("kubeletpy", "up/kubeletpy_up")


def find_groups(uid: str) -> str:
    """A command that prints the cgroups of a pod, without those below them."""
    names = f"-name '*pod{uid}*' -o -name '*pod{uid.replace('-', '_')}*'"
    return f"find {GROUPS} -type d \\( {names} \\) -prune -printf '%P\\n'"


class HasEvidence(Protocol):
    """A machine or a control plane of which a failing test leaves evidence."""

    def leave(self, directory: Path) -> None:
        """Write logs and records to a directory. Raises GuestError or CommandError."""


class LimitedConnection:
    """A machine that has booted. Times are in seconds."""

    def __init__(
        self, machine: Machine, directory: Path, suite: str = "bookworm", oci: str = RUNC
    ) -> None:
        """``directory``: for what is copied to it and from it; ``suite``: its Debian."""
        self.machine = machine
        self.versions = versions_of(machine, oci)
        self._oci = oci
        self._suite = suite
        self._directory = directory

    # --- commands ---

    def shell(self, script: str, timeout: float = WITHIN_S) -> str:
        """The output of a shell script; raises GuestError when it fails."""
        done = self.machine.run("bash", "-c", script, timeout=timeout)
        if done.status:
            raise GuestError(f"{script}\nexit code {done.status}: {done.output}")
        return done.output.strip()

    def until(self, condition: str, timeout: float = WITHIN_S, say: str = "true") -> None:
        """Wait until a shell command succeeds there; a timeout shows the output of ``say``."""
        end = f"SECONDS=0; until {{ {condition}; }} >/dev/null 2>&1; do sleep 0.3; "
        end += f"[ $SECONDS -lt {timeout:.0f} ] || exit 1; done"
        done = self.machine.run("bash", "-c", end, timeout=timeout + 60)
        if done.status:
            there = self.machine.run("bash", "-c", say).output
            raise GuestError(f"not within {timeout} s: {condition}\n{there}")

    def write(self, path: str, text: str) -> None:
        """Write a file there."""
        file = self._directory / "text"
        file.write_text(text)
        self.shell(f"mkdir -p {Path(path).parent}")
        self.machine.copy_in(file, path)

    def read(self, path: str) -> str:
        """A file's text, without the end of its last line."""
        return self.shell(f"cat {path}")

    # --- making it a node ---

    def install_agent(self, pod_subnet: str = POD_SUBNET) -> None:
        """Install the agent, its unit and images; nothing runs yet but containerd."""
        if self.versions["python"].startswith("{}.{}.".format(*sys.version_info[:2])):
            # the node takes minutes to compile all modules under QEMU
            for package in _PACKAGES:
                run(sys.executable, "-m", "compileall", "-q", CHECKOUT / package, timeout=600)
        archive = self._directory / "packages.tar"
        with tarfile.open(archive, "w") as packed:
            for package in _PACKAGES:
                # with bytecode: it is good for the same Python
                packed.add(CHECKOUT / package, Path(package).name)
            packed.add(DEPLOY, "kubeletpy/deploy")  # as in an installed package
        self.machine.copy_in(archive, "/tmp/packages.tar")
        images = write_archive(self._directory / "images.tar", pause_image(), busybox_image())
        self.machine.copy_in(images, "/tmp/images.tar")
        # from Debian 13 on, /sbin of a package is below /usr
        (parser,) = unpacked("apparmor", self._suite).glob("**/sbin/apparmor_parser")
        self.machine.copy_in(parser, "/usr/sbin/apparmor_parser")
        # containerd reads the parser's version, before which it warns when this file is missing
        self.write("/etc/apparmor/parser.conf", "")
        self.write("/opt/kubeletpy/.venv/bin/kubeletpy", PROGRAM)
        self.write(NETWORK_CONFIG, pod_network(pod_subnet))
        unit = (DEPLOY / "kubeletpy.service").read_text()
        self.write("/etc/systemd/system/kubeletpy.service", unit)
        self.shell(
            f"mkdir -p {LIBRARY} /etc/kubernetes/manifests /var/log/journal"
            " && ln -s /opt/kubeletpy/.venv/bin/kubeletpy /usr/local/bin/"
            " && chmod +x /opt/kubeletpy/.venv/bin/kubeletpy"
            f" && tar -C {LIBRARY} -xf /tmp/packages.tar && rm /tmp/packages.tar"
            f" && python3 -m compileall -q {LIBRARY}"
            f" && printf '{LIBRARY}\\n{SITE}\\n' >"
            " $(python3 -c 'import site; print(site.getsitepackages()[0])')/kubeletpy.pth"
            " && systemctl daemon-reload && systemctl restart systemd-journald containerd"
            " && ctr -n k8s.io images import /tmp/images.tar && rm /tmp/images.tar && sync",
            timeout=WITHIN_S,
        )

    def configure_containerd(self, driver: str) -> None:
        """Write containerd's configuration, which a restart of containerd loads."""
        generation = containerd_generation(self.versions["containerd"])
        self.write(CONTAINERD_CONFIG, containerd_config(driver, generation, PAUSE, self._oci))

    # --- the kernel's files ---

    def groups_of(self, uid: str) -> list[str]:
        """The cgroups of a pod, without those below them, relative to the root."""
        return self.shell(find_groups(uid)).splitlines()

    def group_of(self, pod: JSON) -> str:
        """The one cgroup of a pod."""
        (group,) = self.groups_of(pod["metadata"]["uid"])
        return group

    def container_group(self, pod: JSON, name: str = "") -> str:
        """The cgroup of the process of a running container, as the kernel has it.

        ``name``: of the container, unless it is the only one.
        """
        (container,) = (
            each["containerID"]
            for each in pod["status"]["containerStatuses"]
            if name in ("", each["name"])
        )
        identity = container.partition("://")[2]
        line = self.shell(
            f"ctr -n k8s.io tasks list | awk '$1 == \"{identity}\" {{print $2}}'"
            " | { read pid; cat /proc/$pid/cgroup; }"
        )
        return line.partition("::")[2].strip("/")

    def kernel(self, group: str, *files: str) -> dict[str, str]:
        """Values of a cgroup's files."""
        script = "; ".join(f"echo {file}=$(cat {GROUPS}/{group}/{file})" for file in files)
        lines = self.shell(script).splitlines()
        return dict(line.split("=", 1) for line in lines)

    # --- what a failing test leaves ---

    def leave(self, directory: Path) -> None:
        """Copy its console, its journal and the flight recorder's file."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "console.log").write_text(self.machine.console)
        self._copy(
            "journalctl --no-pager -o short-precise > /tmp/journal.log",
            "/tmp/journal.log",
            directory / "journal.log",
        )
        self._copy(
            "rm -f /tmp/record; kubeletpy record -o /tmp/record",
            "/tmp/record",
            directory / "flight-record",
        )

    def _copy(self, script: str, source: str, target: Path) -> None:
        """Copy a script's file from the node, or write the error in its place."""
        try:
            self.shell(script)
            self.machine.copy_out(source, target)
        except GuestError as error:
            target.write_text(f"{error}\n")
