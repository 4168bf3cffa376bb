"""Whether two pods request the same port of the node. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubeletpy.pods.pod import Pod, is_sidecar

EVERYWHERE = ("", "0.0.0.0")
"""Addresses that stand for all addresses of the node."""
HostPort = tuple[str, str, int]
"""Address ("" for all), protocol, port."""


def host_ports(pod: Pod) -> Iterator[HostPort]:
    """The host ports that a pod's long-running containers request."""
    sidecars = (container for container in pod.init_containers if is_sidecar(container))
    for container in (*pod.containers, *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or 0
            if number > 0:
                address = port.get("hostIP") or ""
                where = "" if address in EVERYWHERE else address
                yield where, port.get("protocol") or "TCP", number


def holders(pod: Pod, others: Iterable[Pod]) -> Iterator[tuple[HostPort, Pod]]:
    """Which requested host ports other pods have, and which pods."""
    wanted = list(host_ports(pod))
    for other in others:
        for have in host_ports(other):
            for want in wanted:
                if have[1:] == want[1:] and (not have[0] or not want[0] or have[0] == want[0]):
                    yield want, other


def clash(pod: Pod, others: Iterable[Pod]) -> bool:
    """Whether one of the other pods has a port that the pod requests."""
    wanted = list(host_ports(pod))
    if not wanted:
        return False
    taken: dict[tuple[str, int], set[str]] = {}
    for other in others:
        for address, protocol, number in host_ports(other):
            taken.setdefault((protocol, number), set()).add(address)
    for address, protocol, number in wanted:
        addresses = taken.get((protocol, number), set())
        if addresses and (not address or "" in addresses or address in addresses):
            return True
    return False
