"""Several nodes under test as processes of this machine, which form a cluster.

Each node is a process in namespaces of its own (:mod:`tools.conformance.member`). A bridge joins
them with the control plane and the tests, which are in the bridge's network namespace. They reach
pods by routes through their nodes, and Services through the first node.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kubeletpy.library.control_plane import Authority
from tools.conformance.dns import ADDRESS, DOMAIN, dns_objects
from tools.conformance.member import Place, live, pod_network
from tools.conformance.node import NAME, Setup
from tools.conformance.process import READY_S
from tools.control_plane.plane import SERVICES
from tools.env.kubectl import kubectl
from tools.lab.network import Network, address_of

_START_S = 600.0
"""Timeout for nodes to be Ready, images included, which takes 40 s on a quiet machine.

A node whose agent does not get ready ends before.
"""
_END_S = 300.0
_FORK = multiprocessing.get_context("fork")


class ProcessCluster:
    """Implements :class:`tools.conformance.node.Node`."""

    def __init__(self, setup: Setup, network: Network, count: int) -> None:
        self._setup, self._network = setup, network
        self._setups = [_setup_of(setup, number) for number in range(count)]
        self._lifeline = os.pipe2(os.O_CLOEXEC)
        self._members: list[multiprocessing.process.BaseProcess] = []

    @property
    def logs(self) -> Mapping[str, Path]:
        """Logs of agents and of kube-proxy."""
        return {
            f"{each.name}-{log}.log": each.directory / "n" / f"{log}.log"
            for each in self._setups
            for log in ("agent", "kube-proxy")
        }

    def start(self, agent: str) -> None:
        """Start the agents and the DNS server, and wait until the nodes are Ready."""
        for number, setup in enumerate(self._setups):
            assert setup.pods is not None
            self._network.route(setup.pods.subnet, number)
            place = Place(number, len(self._setups), self._network)
            member = _FORK.Process(target=live, args=(setup, agent, place, self._lifeline))
            member.start()
            self._members.append(member)
        self._network.route(SERVICES, 0)
        for setup in self._setups:
            setup.wait_ready(_START_S, self._died)
        self._apply(dns_objects())
        kubectl("new").run(
            self._setup.plane.admin,
            *("rollout", "status", "--namespace=kube-system", "deployment/coredns"),
            f"--timeout={READY_S:.0f}s",
            timeout=READY_S + 10,
        )

    def remove(self) -> None:
        """End the agents, their pods and what they left."""
        for end in self._lifeline:
            with suppress(OSError):
                os.close(end)
        for member in self._members:
            member.join(_END_S)
            if member.is_alive():
                print(f"process {member.pid} of a node does not end", file=sys.stderr)

    def _died(self) -> str | None:
        """Why waiting for nodes is pointless."""
        ended = [
            setup.name
            for setup, member in zip(self._setups, self._members, strict=True)
            if not member.is_alive()
        ]
        return f"{', '.join(ended)} ended; see its log" if ended else None

    def _apply(self, objects: Sequence[object]) -> None:
        file = self._setup.directory / "objects.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        kubectl("new").run(self._setup.plane.admin, "apply", "-f", file)


def _setup_of(setup: Setup, number: int) -> Setup:
    """The parts of a node of the cluster."""
    return replace(
        setup,
        directory=setup.directory / f"m{number}",
        name=f"{NAME}-{number}",
        address=address_of(number),
        pods=pod_network(number),
        more={"clusterDNS": [ADDRESS], "clusterDomain": DOMAIN},
    )


def api_server_flags(authority: Authority) -> list[str]:
    """Flags of an API server that has a Service in its cluster, and can have further API servers.

    These trust the certificate of its requests.
    """
    user = "front-proxy-client"
    certificate, key = authority.issue(user, user)
    return [
        "--endpoint-reconciler-type=lease",
        f"--requestheader-client-ca-file={authority.ca}",
        f"--requestheader-allowed-names={user}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={certificate}",
        f"--proxy-client-key-file={key}",
    ]
