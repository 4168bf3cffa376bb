"""Which IP addresses a pod has, as its status and its containers' variables show them. Pure.

Source: docs/reference/behaviour.md, e2.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from kubeletpy.pods.pod import Pod


def pod_addresses(pod: Pod, sandbox_ips: Sequence[str], host_ips: Sequence[str]) -> list[str]:
    """The pod's addresses, the primary one first; those of the node when it uses its network.

    Args:
        sandbox_ips: what the runtime says of the pod's sandbox; nothing for the host's network.
        host_ips: the node's addresses, the primary one first.
    """
    found = order_pod_ips(sandbox_ips, host_ips)
    hosts = host_ips[:2]
    if pod.host_network and hosts:
        found = found or [hosts[0]]
        if len(hosts) == 2 and len(found) == 1 and _family(found[0]) != _family(hosts[1]):
            found.append(hosts[1])
    return found


def order_pod_ips(ips: Iterable[str], host_ips: Sequence[str]) -> list[str]:
    """At most one address per family, the node's preferred family first; nonsense dropped."""
    first: dict[int, str] = {}
    for ip in ips:
        family = _family(ip)
        if family:
            first.setdefault(family, ip)
    preferred = _family(host_ips[0]) if host_ips else 4
    return [first[family] for family in sorted(first, key=lambda family: family != preferred)]


def _family(ip: str) -> int:
    try:
        return ipaddress.ip_address(ip).version
    except ValueError:
        return 0
