"""Objects that every new cluster has: namespaces, priority classes, the API's service.

Pure: the registry that it changes is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy_up.registry.namespaces import BOOTSTRAP
from kubeletpy_up.requests import CONTROLLER

if TYPE_CHECKING:
    from kubeletpy_up.registry.registry import Registry

_PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
_CRITICAL = (
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another "
        "node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
)


def create_missing(registry: Registry) -> None:
    """Create what does not exist yet; does nothing on a second start."""
    for name in BOOTSTRAP:
        if registry.find("namespaces", "", name) is None:
            registry.create(CONTROLLER, "namespaces", {"metadata": {"name": name}})
    for name, value, description in _CRITICAL:
        if registry.find(_PRIORITY_CLASSES, "", name) is None:
            registry.create(
                CONTROLLER,
                _PRIORITY_CLASSES,
                {
                    "metadata": {"name": name},
                    "value": value,
                    "description": description,
                    "preemptionPolicy": "PreemptLowerPriority",
                },
            )
    if registry.find("services", "default", "kubernetes") is None:
        labels = {"component": "apiserver", "provider": "kubernetes"}
        port = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}
        registry.create(
            CONTROLLER,
            "services",
            {
                "metadata": {"name": "kubernetes", "labels": labels},
                "spec": {"ports": [port], "clusterIP": _first_address(registry.service_cidr)},
            },
            "default",
        )


def _first_address(cidr: str) -> str:
    import ipaddress

    return str(next(iter(ipaddress.ip_network(cidr).hosts())))
