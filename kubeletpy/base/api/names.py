"""Names to which Kubernetes attaches a meaning: sysctls with their namespaces, and node labels.

Pure. Source of the sysctls: docs/reference/behaviour.md, j4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

IPC, NET, UTS, USER = "IPC", "Net", "UTS", "User"
MAX_NAME = 253
"""Characters of a name."""
_NAME = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_NAMES = {
    **{
        f"kernel.{name}": IPC
        for name in (
            *("sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced"),
            *("msgmax", "msgmnb", "msgmni"),
        )
    },
    "kernel.domainname": UTS,
}
_PREFIXES = {"fs.mqueue.": IPC, "net.": NET, "user.": USER}
_GROUPS = {"kernel.shm": IPC, "kernel.msg": IPC}
"""Beginnings of names that only patterns (``kernel.shm*``) stand for."""


def is_name(text: str) -> bool:
    """Whether a text is the name of a sysctl, with dots or slashes."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def normalize(name: str) -> str:
    """The dotted form of a name: ``net/ipv4/conf/eth0.1/mtu`` has dots and slashes swapped.

    A name whose first separator is a dot, or that has none, already has that form.
    """
    slash, dot = name.find("/"), name.find(".")
    if slash < 0 or 0 <= dot < slash:
        return name
    return name.translate(str.maketrans("./", "/."))


def namespace_of(sysctl: str, *, pattern: bool = False) -> str | None:
    """The namespace of a sysctl, None if it is not known to be namespaced. Takes dotted names.

    ``pattern``: the name is a pattern without its ``*``, or matches one.
    """
    if found := _NAMES.get(sysctl):
        return found
    beginnings = {**_PREFIXES, **_GROUPS} if pattern else _PREFIXES
    return next((found for each, found in beginnings.items() if sysctl.startswith(each)), None)


def shared_namespaces(spec: Mapping[str, Any]) -> frozenset[str]:
    """The namespaces of sysctls that a pod with this spec shares with the node."""
    on_nodes_network = bool(spec.get("hostNetwork"))
    shared = {
        IPC: bool(spec.get("hostIPC")),
        NET: on_nodes_network,
        UTS: on_nodes_network,
        USER: spec.get("hostUsers") is not False,
    }
    return frozenset(name for name, with_node in shared.items() if with_node)


# Node labels in the Kubernetes domains.

SYNCED = (
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)
"""Labels that a kubelet keeps up to date on its node."""

OWN = frozenset((*SYNCED, "node.kubernetes.io/windows-build"))
"""Labels that a kubelet may set: k8s.io/kubelet/pkg/apis, IsKubeletLabel."""
