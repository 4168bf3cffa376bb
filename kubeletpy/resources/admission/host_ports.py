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
    requested = list(host_ports(pod))
    for other in others if requested else ():
        for have in host_ports(other):
            for port in requested:
                if have[1:] == port[1:] and (not have[0] or not port[0] or have[0] == port[0]):
                    yield port, other


def clash(pod: Pod, others: Iterable[Pod]) -> bool:
    """Whether one of the other pods has a port that the pod requests."""
    return any(True for _ in holders(pod, others))
