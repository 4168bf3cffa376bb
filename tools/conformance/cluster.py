"""Several nodes under test, which form a cluster.

Each node is a process in namespaces of its own (:mod:`tools.conformance.member`), or a virtual
machine (:mod:`tools.conformance.virtual`). A bridge joins them with the control plane and the
tests, which are in the bridge's network namespace. They reach
pods by routes through their nodes, and Services through the first node. Nodes, pods and Services
have addresses of IPv4 and IPv6.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kubeletpy.base import structs
from kubeletpy.library.control_plane import SERVER_NAMES, Authority
from tools.conformance.dns import DNS_ADDRESSES, DOMAIN, dns_objects
from tools.conformance.member import Place, live, pod_network
from tools.conformance.node import NAME, Setup
from tools.conformance.virtual import VirtualNode
from tools.control_plane.plane import SERVICES
from tools.env.kubectl import kubectl
from tools.lab.network import HOST, HOST6, Network, address6_of, address_of
from tools.lab.uml import UmlKernel

_SERVICES, _FIRST_SERVICE6 = f"{SERVICES},fd00:96::/112", "fd00:96::1"
_START_S = 600.0
"""Timeout for nodes to be Ready, images included, which takes 40 s on a quiet machine.

A node whose agent does not get ready ends before.
"""
DNS_S = 300.0
"""Timeout for the DNS server, whose pods run on each node."""
_END_S = 300.0
_FORK = multiprocessing.get_context("fork")


class NodeCluster(ABC):
    """Implements :class:`tools.conformance.node.Node`, for members that a subclass starts."""

    def __init__(
        self, setup: Setup, network: Network, count: int, *, ipv6_first: bool = False
    ) -> None:
        self._setup, self._network, self._ipv6_first = setup, network, ipv6_first
        self._setups = [_setup_of(setup, number, ipv6_first=ipv6_first) for number in range(count)]
        self._places = [Place(number, count, network) for number in range(count)]

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
        self._network.add_address6()
        for number, setup in enumerate(self._setups):
            assert setup.pods is not None
            for subnet in setup.pods.subnet.split(","):
                self._network.route(subnet, number)
        for subnet in _SERVICES.split(","):
            self._network.route(subnet, 0)
        self._start_members(agent)
        for setup in self._setups:
            setup.wait_ready(_START_S, self._died)
        self._apply(dns_objects(DNS_ADDRESSES[self._ipv6_first]))
        kubectl("new").run(
            self._setup.plane.admin,
            *("rollout", "status", "--namespace=kube-system", "deployment/coredns"),
            f"--timeout={DNS_S:.0f}s",
            timeout=DNS_S + 10,
        )

    @abstractmethod
    def _start_members(self, agent: str) -> None:
        """Start the agent and kube-proxy of each node."""

    @abstractmethod
    def _died(self) -> str | None:
        """Why waiting for nodes is pointless."""

    @abstractmethod
    def remove(self) -> None:
        """End the agents, their pods and what they left."""

    def _apply(self, objects: Sequence[object]) -> None:
        file = self._setup.directory / "objects.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        kubectl("new").run(self._setup.plane.admin, "apply", "-f", file)


class ProcessCluster(NodeCluster):
    """Nodes that are processes of this machine."""

    def __init__(
        self, setup: Setup, network: Network, count: int, *, ipv6_first: bool = False
    ) -> None:
        super().__init__(setup, network, count, ipv6_first=ipv6_first)
        self._lifeline = os.pipe2(os.O_CLOEXEC)
        self._members: list[multiprocessing.process.BaseProcess] = []

    def _start_members(self, agent: str) -> None:
        for setup, place in zip(self._setups, self._places, strict=True):
            member = _FORK.Process(target=live, args=(setup, agent, place, self._lifeline))
            member.start()
            self._members.append(member)

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
        ended = [
            setup.name
            for setup, member in zip(self._setups, self._members, strict=True)
            if not member.is_alive()
        ]
        return f"{', '.join(ended)} ended; see its log" if ended else None


class VirtualCluster(NodeCluster):
    """Nodes that are virtual machines."""

    def __init__(
        self,
        setup: Setup,
        network: Network,
        count: int,
        disk: Path,
        kernel: UmlKernel,
        *,
        ipv6_first: bool = False,
    ) -> None:
        """``disk`` and ``kernel``: those of :class:`tools.conformance.virtual.VirtualNode`."""
        super().__init__(setup, network, count, ipv6_first=ipv6_first)
        self._members = [
            VirtualNode(setup, disk, kernel, place)
            for setup, place in zip(self._setups, self._places, strict=True)
        ]

    def _start_members(self, agent: str) -> None:
        with ThreadPoolExecutor() as together:  # threads are in the network of this one
            list(together.map(lambda member: member.start(agent), self._members))

    def remove(self) -> None:
        """Switch them off."""
        for member in self._members:
            member.remove()

    def _died(self) -> str | None:
        return None  # they were Ready


def _in_order(both: str, *, ipv6_first: bool) -> str:
    """Addresses of IPv4 and IPv6, with a comma between, in the order of the cluster."""
    return ",".join(reversed(both.split(","))) if ipv6_first else both


def _setup_of(setup: Setup, number: int, *, ipv6_first: bool) -> Setup:
    """The parts of a node of the cluster."""
    pods = pod_network(number)
    addresses = f"{address_of(number)},{address6_of(number)}"
    return replace(
        setup,
        directory=setup.directory / f"m{number}",
        name=f"{NAME}-{number}",
        address=_in_order(addresses, ipv6_first=ipv6_first),
        pods=structs.replace(pods, subnet=_in_order(pods.subnet, ipv6_first=ipv6_first)),
        more={"clusterDNS": [DNS_ADDRESSES[ipv6_first]], "clusterDomain": DOMAIN},
    )


def api_server_flags(authority: Authority, *, ipv6_first: bool) -> list[str]:
    """Flags of an API server that has a Service in its cluster, and can have further API servers.

    Services have addresses of both families. Further API servers trust the certificate of its
    requests.
    """
    names = *SERVER_NAMES, HOST, HOST6, _FIRST_SERVICE6
    authority.issue("server", "kube-apiserver", names=names)
    user = "front-proxy-client"
    certificate, key = authority.issue(user, user)
    return [
        "--endpoint-reconciler-type=lease",
        f"--service-cluster-ip-range={_in_order(_SERVICES, ipv6_first=ipv6_first)}",
        "--bind-address=::",
        f"--advertise-address={HOST6 if ipv6_first else HOST}",
        f"--requestheader-client-ca-file={authority.ca}",
        f"--requestheader-allowed-names={user}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={certificate}",
        f"--proxy-client-key-file={key}",
    ]
