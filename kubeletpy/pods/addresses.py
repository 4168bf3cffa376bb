"""Which IP addresses a pod has, as its status and its containers' variables show them. Pure.

Source: docs/reference/behaviour.md, e2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubeletpy.config.rules import host_address
from kubeletpy.pods.pod import Pod


def pod_addresses(pod: Pod, sandbox_ips: Sequence[str], host_ips: Sequence[str]) -> list[str]:
    """The pod's addresses, the primary one first; the node's if the pod uses the host network.

    Args:
        sandbox_ips: what the runtime reports for the pod's sandbox; empty for the host network.
        host_ips: the node's addresses, the primary one first.
    """
    found = order_pod_ips(sandbox_ips, host_ips)
    if pod.host_network and host_ips:
        found = found or [host_ips[0]]
        families = {family(ip) for ip in found}
        found += [ip for ip in host_ips[1:2] if family(ip) not in families]
    return found


def order_pod_ips(ips: Iterable[str], host_ips: Sequence[str]) -> list[str]:
    """At most one address per family, the node's preferred family first; invalid ones dropped."""
    first: dict[int, str] = {}
    for ip in map(canonical_address, ips):
        if ip:
            first.setdefault(family(ip), ip)
    preferred = family(host_ips[0]) if host_ips else 4
    return [first[version] for version in sorted(first, key=lambda version: version != preferred)]


def canonical_address(text: str) -> str:
    """An IP address in its usual form; empty if the text is none that other machines can use."""
    try:
        return str(host_address(text))
    except ValueError:
        return ""


def family(address: str) -> int:
    """4 or 6, for an address in its usual form."""
    return 6 if ":" in address else 4
