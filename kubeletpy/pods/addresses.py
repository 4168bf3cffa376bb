"""Which IP addresses a pod has, as its status and its containers' variables show them. Pure.

Source: docs/reference/behaviour.md, e2.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

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
        families = {_family(ip) for ip in found}
        found += [ip for ip in host_ips[1:2] if _family(ip) not in families]
    return found


def order_pod_ips(ips: Iterable[str], host_ips: Sequence[str]) -> list[str]:
    """At most one address per family, the node's preferred family first; invalid ones dropped."""
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
