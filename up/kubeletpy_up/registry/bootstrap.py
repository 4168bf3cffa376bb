"""Objects that every new cluster has: namespaces, priority classes, the API's service."""

from __future__ import annotations

from typing import Protocol

from kubeletpy.api.types import JSON
from kubeletpy_up.registry.namespaces import BOOTSTRAP
from kubeletpy_up.requests import CONTROLLER, Caller

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


class Host(Protocol):
    """The part of the registry that this module uses."""

    service_cidr: str

    def find(self, resource: str, namespace: str, name: str) -> JSON | None:
        """One stored object."""
        ...

    def create(
        self, caller: Caller, resource: str, obj: JSON, namespace: str | None = None
    ) -> JSON:
        """Create an object."""
        ...


def create_missing(host: Host) -> None:
    """Create what does not exist yet; does nothing on a second start."""
    for name in BOOTSTRAP:
        if host.find("namespaces", "", name) is None:
            host.create(CONTROLLER, "namespaces", {"metadata": {"name": name}})
    for name, value, description in _CRITICAL:
        if host.find(_PRIORITY_CLASSES, "", name) is None:
            host.create(
                CONTROLLER,
                _PRIORITY_CLASSES,
                {
                    "metadata": {"name": name},
                    "value": value,
                    "description": description,
                    "preemptionPolicy": "PreemptLowerPriority",
                },
            )
    if host.find("services", "default", "kubernetes") is None:
        labels = {"component": "apiserver", "provider": "kubernetes"}
        port = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}
        host.create(
            CONTROLLER,
            "services",
            {
                "metadata": {"name": "kubernetes", "labels": labels},
                "spec": {"ports": [port], "clusterIP": _first_address(host.service_cidr)},
            },
            "default",
        )


def _first_address(cidr: str) -> str:
    import ipaddress

    return str(next(iter(ipaddress.ip_network(cidr).hosts())))
