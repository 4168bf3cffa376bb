"""Rules for the values of the node's own flags: its name, addresses and labels. Pure.

Must never read the machine: whether an address is one of this node's is not decided here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from kubeletpy.base.api import names
from kubeletpy.base.kubernetes_version import SUPPORTED, supported
from kubeletpy.config.problems import Problem, show
from kubeletpy.config.rules import dns_subdomain, host_address, label_value, qualified_name
from kubeletpy.config.version_choice import AUTO


def check_node_name(name: str, flag: str = "--hostname-override") -> list[Problem]:
    """A node's name, trimmed and in lower case, has to be valid as the name of an API object."""
    if not name or dns_subdomain(name.strip().lower()):
        return []
    allowed = "must be a node's name: letters, digits, - and ., such as node-1.example"
    return [Problem(flag, show(flag, name), allowed)]


def node_addresses(text: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses in ``--node-ip``. Raises ValueError for one that others can't use."""
    return [host_address(part.strip()) for part in text.split(",") if part.strip()]


def check_node_ip(text: str) -> list[Problem]:
    """``--node-ip``: one address, or one of each family; 0.0.0.0 and :: only request a family.

    Source: the kubelet's flag; KEP-1664 and KEP-3705 for two families.
    """
    allowed = "must be an IP address, or an IPv4 and an IPv6 address with a comma between"
    try:
        found = node_addresses(text)
    except ValueError:
        found = []
    both = len(found) == 2 and {each.version for each in found} == {4, 6}
    if both and any(each.is_unspecified for each in found):
        allowed = "0.0.0.0 and :: request an address of a family, and stand alone"
    elif both or len(found) == 1 or not text:
        return []
    return [Problem("--node-ip", show("node-ip", text), allowed)]


def check_kubernetes_version(text: str) -> list[Problem]:
    """``--kubernetes-version``: auto, or a version that this agent can be a kubelet of."""
    if text in ("", AUTO) or supported(text) is not None:
        return []
    allowed = f"must be {AUTO} or one of {', '.join(map(str, SUPPORTED))}"
    return [Problem("--kubernetes-version", show("kubernetes-version", text), allowed)]


def check_node_labels(labels: Mapping[str, str]) -> list[Problem]:
    """Label syntax, and the kubernetes.io labels that a node may set on itself.

    Source: docs/reference/names.csv: node-label.
    """
    problems = []
    for key, value in labels.items():
        at = f"--node-labels {key}"
        if not qualified_name(key):
            problems.append(Problem(at, "", "is not a label key"))
        elif value and not label_value(value):
            problems.append(Problem(at, value, "is not a label value"))
        elif not _own_label(key):
            problems.append(
                Problem(at, "", "a node may not give itself this kubernetes.io or k8s.io label")
            )
    return problems


def _own_label(key: str) -> bool:
    domain = f".{key.rpartition('/')[0]}"
    reserved = domain.endswith((".kubernetes.io", ".k8s.io"))
    allowed = domain.endswith((".kubelet.kubernetes.io", ".node.kubernetes.io"))
    return not reserved or allowed or key in names.OWN
