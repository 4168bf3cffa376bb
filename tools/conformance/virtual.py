"""A node under test that is a virtual machine: systemd, cgroup v2 and the systemd cgroup driver.

It boots under user-mode Linux and is part of a network of the laboratory, where the run's control
plane and tests are, too. One of several has kube-proxy and routes to their pods. It sees
directories of this machine: the checkout, the programs of the release, the keys of the control
plane, and the one that holds its own files.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kubeletpy.agent.rootless.containerd import render_conflist
from tools.conformance.member import Place, cluster_script, proxy_command
from tools.conformance.node import AGENTS, Setup
from tools.env.go_kubelet import kubelet_command
from tools.env.images import write_archive
from tools.lab.image import CHECKOUT
from tools.lab.network import address_of, device_argument
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
_CNI_STATE = Path("/var/lib/cni")
_PYTHON = (f"--setenv=PYTHONPATH={CHECKOUT}:{SITE}", "--setenv=PYTHONFAULTHANDLER=1")
_KUBELETPY = ("/usr/bin/python3", "-m", "kubeletpy.cli.main", "run")


class VirtualNode:
    """Implements :class:`tools.conformance.node.Node`."""

    def __init__(self, setup: Setup, disk: Path, kernel: UmlKernel, place: Place) -> None:
        """``disk``: an image of the laboratory (:mod:`tools.lab.image`)."""
        self._setup, self._place = setup, place
        self._shared = setup.directory / "n"
        self._shared.mkdir(parents=True)
        self._log = self._shared / "agent.log"
        self._proxy_log = self._shared / "kube-proxy.log"
        self.logs = {"agent.log": self._log}
        self._machine = UserModeLinux(
            disk,
            setup.directory / "m",
            memory_mib=MEMORY_MIB,
            more=(device_argument(place.number),),
            within=place.network.inside,
            kernel=kernel,
        )

    def start(self, agent: str) -> None:
        """Boot it, start the agent and wait until the node is Ready."""
        number, network = self._place.number, self._place.network
        network.add_tap(number)
        self._machine.boot()
        network.attach(self._machine, number)
        if self._place.count > 1:
            self._shell(
                f"hostname {self._setup.name} && modprobe br_netfilter"
                f" && {cluster_script(number, self._place.count)}"
            )
        else:
            network.route(POD_SUBNET, number)
        pki = self._setup.plane.authority.directory
        for folder in (CHECKOUT, self._setup.programs, pki, self._shared):
            self._machine.mount_host(folder, str(folder))
        self._start_runtime()
        self._shell(SHOW_CLOCK)
        self._start_agent(agent)
        self._setup.wait_ready(READY_S, self._ended)
        if self._place.count > 1:
            self._start_proxy()

    def _start_proxy(self) -> None:
        """Kube-proxy exits when its node gets an address, so it starts once the node is Ready."""
        setup = self._setup
        user = f"proxy-{setup.name}", setup.plane.url, "system:kube-proxy"
        kubeconfig = setup.plane.authority.kubeconfig(*user)
        program = setup.programs / "kube-proxy"
        self._run_unit(
            "kube-proxy", self._proxy_log, proxy_command(program, kubeconfig, setup.name)
        )

    def remove(self) -> None:
        """Switch it off; its log is then on this machine's disk."""
        with suppress(GuestError):  # it may be off already
            self._shell(f"systemctl stop {_UNIT} kube-proxy; umount {self._shared}")
        self._machine.cut_power()

    def _start_runtime(self) -> None:
        pods = self._setup.pods
        generation = containerd_generation(versions_of(self._machine)["containerd"])
        files = {
            CONTAINERD_CONFIG: containerd_config("systemd", generation, self._setup.sandbox_image),
            NETWORK_CONFIG: render_conflist(pods, _CNI_STATE) if pods else pod_network(),
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

    def _start_agent(self, agent: str) -> None:
        setup = self._setup
        config = self._shared / "config.json"
        config.write_text(
            json.dumps(
                setup.kubelet_config(containerRuntimeEndpoint=_SOCKET, cgroupDriver="systemd")
            )
        )
        program, *flags = kubelet_command(
            setup.programs / "kubelet",
            ROOT,
            kubeconfig=setup.plane.node_kubeconfig(setup.name),
            config=config,
            node_name=setup.name,
        )
        command = [
            *(_KUBELETPY if agent == AGENTS[0] else [program]),
            *flags,
            f"--node-ip={setup.address or address_of(self._place.number)}",
        ]
        self._run_unit(_UNIT, self._log, command, *_PYTHON)

    def _run_unit(self, unit: str, log: Path, command: Sequence[str | Path], *more: str) -> None:
        """Run a command as a transient unit; ``more``: further options of systemd-run."""
        parts = [
            "systemd-run",
            f"--unit={unit}",
            "--property=KillMode=process",
            f"--property=StandardOutput=append:{log}",
            f"--property=StandardError=append:{log}",
            *more,
            *command,
        ]
        self._shell(shlex.join(map(str, parts)))

    def _ended(self) -> str | None:
        reported = self._machine.run("systemctl", "is-active", _UNIT)
        return (
            f"its agent is {reported.output.strip()}; see {self._log}" if reported.status else None
        )

    def _shell(self, script: str) -> None:
        done = self._machine.run("bash", "-ec", script, timeout=READY_S)
        if done.status:
            raise GuestError(f"{script}\nexit code {done.status}: {done.output}")
