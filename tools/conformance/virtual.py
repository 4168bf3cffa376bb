"""A node under test that is a virtual machine: systemd, cgroup v2 and the systemd cgroup driver.

It boots under user-mode Linux and is part of a network of the laboratory, where the run's control
plane and tests are, too. It sees directories of this machine: the checkout, the programs of the
release, the keys of the control plane, and the one that holds its own files.
"""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from pathlib import Path

from tools.conformance.node import AGENTS, NAME, Setup
from tools.env.go_kubelet import kubelet_command
from tools.env.images import write_archive
from tools.lab.image import CHECKOUT
from tools.lab.network import Network, address_of, device_argument
from tools.lab.recipe import SITE
from tools.lab.requests import GuestError
from tools.lab.uml import SHOW_CLOCK, UmlKernel, UserModeLinux
from tools.lab.versions import (
    CONTAINERD_CONFIG,
    NETWORK_CONFIG,
    POD_SUBNET,
    containerd_config,
    containerd_generation,
    pod_network,
    versions_of,
)

READY_S = 600.0
MEMORY_MIB = 4096
ROOT = Path("/var/lib/kubelet")
_UNIT = "agent"
_CERTS = "/etc/containerd/certs.d"
_SOCKET = "unix:///run/containerd/containerd.sock"
_KUBELETPY = ("/usr/bin/python3", "-m", "kubeletpy.cli.main", "run")
_NUMBER = 0
"""It is the network's only machine."""


class VirtualNode:
    """Implements :class:`tools.conformance.node.Node`."""

    def __init__(self, setup: Setup, disk: Path, kernel: UmlKernel, network: Network) -> None:
        """``disk``: an image of the laboratory (:mod:`tools.lab.image`)."""
        self._setup, self._network = setup, network
        self._shared = setup.directory / "n"
        self._shared.mkdir(parents=True)
        self._log = self._shared / "agent.log"
        self.logs = {"agent.log": self._log}
        self._machine = UserModeLinux(
            disk,
            setup.directory / "m",
            memory_mib=MEMORY_MIB,
            more=(device_argument(_NUMBER),),
            within=network.inside,
            kernel=kernel,
        )

    def start(self, agent: str) -> None:
        """Boot it, start the agent and wait until the node is Ready."""
        self._network.add_tap(_NUMBER)
        self._machine.boot()
        self._network.attach(self._machine, _NUMBER)
        self._network.route(POD_SUBNET, _NUMBER)
        pki = self._setup.plane.authority.directory
        for folder in (CHECKOUT, self._setup.programs, pki, self._shared):
            self._machine.mount_host(folder, str(folder))
        self._start_runtime()
        self._shell(SHOW_CLOCK)
        self._shell(self._start_command(agent))
        self._setup.wait_ready(READY_S, self._ended)

    def remove(self) -> None:
        """Switch it off; its log is then on this machine's disk."""
        with suppress(GuestError):  # it may be off already
            self._shell(f"systemctl stop {_UNIT}; umount {self._shared}")
        self._machine.cut_power()

    def _start_runtime(self) -> None:
        generation = containerd_generation(versions_of(self._machine)["containerd"])
        files = {
            CONTAINERD_CONFIG: containerd_config("systemd", generation, self._setup.sandbox_image),
            NETWORK_CONFIG: pod_network(),
        }
        self._setup.write_mirror(self._shared / "certs.d")
        archive = write_archive(self._shared / "images.tar", *self._setup.images)
        for target, text in files.items():
            source = self._shared / "text"
            source.write_text(text)
            self._machine.copy_in(source, target)
        self._shell(
            f"cp -r {self._shared}/certs.d {_CERTS} && systemctl restart containerd"
            f" && ctr -n k8s.io images import {archive}"
        )
        archive.unlink()

    def _start_command(self, agent: str) -> str:
        config = self._shared / "config.json"
        config.write_text(
            json.dumps(
                self._setup.kubelet_config(containerRuntimeEndpoint=_SOCKET, cgroupDriver="systemd")
            )
        )
        program, *flags = kubelet_command(
            self._setup.programs / "kubelet",
            ROOT,
            kubeconfig=self._setup.plane.node_kubeconfig(NAME),
            config=config,
            node_name=NAME,
        )
        parts = [
            "systemd-run",
            f"--unit={_UNIT}",
            "--property=KillMode=process",
            f"--property=StandardOutput=append:{self._log}",
            f"--property=StandardError=append:{self._log}",
            f"--setenv=PYTHONPATH={CHECKOUT}:{SITE}",
            "--setenv=PYTHONFAULTHANDLER=1",
            *(_KUBELETPY if agent == AGENTS[0] else [program]),
            *flags,
            f"--node-ip={address_of(_NUMBER)}",
        ]
        return shlex.join(map(str, parts))

    def _ended(self) -> str | None:
        reported = self._machine.run("systemctl", "is-active", _UNIT)
        return (
            f"its agent is {reported.output.strip()}; see {self._log}" if reported.status else None
        )

    def _shell(self, script: str) -> None:
        done = self._machine.run("bash", "-ec", script, timeout=READY_S)
        if done.status:
            raise GuestError(f"{script}\nexit code {done.status}: {done.output}")
