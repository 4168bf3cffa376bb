"""The life of a namespace: what every one gets, and how one is deleted with all its content.

Event driven: fed with the store's changes. Must never touch a namespace that is not terminating,
except to restore what every one has. Pure: the registry that it changes is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import ApiError
from kubeletpy_up.requests import CONTROLLER, DeleteOptions
from kubeletpy_up.resources import all_resources
from kubeletpy_up.storage.history import Change

if TYPE_CHECKING:
    from kubeletpy_up.registry.registry import Registry


BOOTSTRAP = ("default", "kube-node-lease", "kube-public", "kube-system")
IMMORTAL = frozenset({"default", "kube-public", "kube-system"})
ROOT_CA_NAME = "kube-root-ca.crt"


class NamespaceController:
    """Fills new namespaces, empties old ones. Call :meth:`on_change` for every change of the store.

    Args:
        root_ca: PEM text for the ``kube-root-ca.crt`` configMap; it may be empty.
    """

    def __init__(self, registry: Registry, root_ca: str) -> None:
        self._store = registry.store
        self._registry = registry
        self._root_data: JSON = {"ca.crt": root_ca}

    def replace_root_ca(self, root_ca: str) -> None:
        """Provide another authority's certificate (PEM) from now on."""
        self._root_data = {"ca.crt": root_ca}
        self.reconcile_all()

    def reconcile_all(self) -> None:
        """Catch up after a start."""
        for (_, name), entry in list(self._store.entries("namespaces")):
            if entry.object["metadata"].get("deletionTimestamp"):
                self._empty(name)
            else:
                self._provide(name)

    def on_change(self, change: Change) -> None:
        """React to one change."""
        meta = change.object["metadata"]
        if change.resource == "namespaces":
            if change.type == "DELETED":
                return
            if meta.get("deletionTimestamp"):
                self._empty(meta["name"])
            elif change.type == "ADDED":
                self._provide(meta["name"])
            return
        namespace = meta.get("namespace", "")
        if change.type != "DELETED" or not namespace:
            return
        entry = self._store.get("namespaces", "", namespace)
        if entry is None:
            return
        if entry.object["metadata"].get("deletionTimestamp"):
            self._remove_if_empty(namespace)
        elif change.resource in ("serviceaccounts", "configmaps"):
            self._provide(namespace)

    def _provide(self, namespace: str) -> None:
        if self._store.get("serviceaccounts", namespace, "default") is None:
            account: JSON = {"metadata": {"name": "default"}}
            self._registry.create(CONTROLLER, "serviceaccounts", account, namespace)
        entry, data = self._store.get("configmaps", namespace, ROOT_CA_NAME), self._root_data
        if entry is not None and entry.object.get("data") != data:
            # of an authority that was replaced
            self._registry.update(
                CONTROLLER, "configmaps", {**entry.object, "data": data}, namespace
            )
        if entry is None:
            about = (
                "Contains a CA bundle that can be used to verify the kube-apiserver when using "
                "internal endpoints such as the internal service IP or kubernetes.default.svc."
            )
            config_map: JSON = {
                "metadata": {
                    "name": ROOT_CA_NAME,
                    "annotations": {"kubernetes.io/description": about},
                },
                "data": data,
            }
            self._registry.create(CONTROLLER, "configmaps", config_map, namespace)

    def _empty(self, namespace: str) -> None:
        for key in _stored_namespaced():
            self._delete_all(key, namespace)
        self._remove_if_empty(namespace)

    def _delete_all(self, key: str, namespace: str) -> None:
        for (_, name), _entry in list(self._store.entries(key, namespace)):
            try:
                self._registry.delete(CONTROLLER, key, name, namespace, DeleteOptions())
            except ApiError as error:
                if error.code != 404:
                    raise

    def _remove_if_empty(self, namespace: str) -> None:
        entry = self._store.get("namespaces", "", namespace)
        if entry is None or entry.object["metadata"].get("finalizers"):
            return
        for key in _stored_namespaced():
            if key != "events" and any(True for _ in self._store.entries(key, namespace)):
                return
        # its pods' deletions made more events, which must not hold it up
        self._delete_all("events", namespace)
        if self._store.get("namespaces", "", namespace) is not None:
            self._store.remove("namespaces", "", namespace)


def _stored_namespaced() -> list[str]:
    keys = [r.storage_key for r in all_resources() if r.namespaced and "list" in r.verbs]
    # Pods first: their nodes need time; events last: deleting may make more.
    return sorted(dict.fromkeys(keys), key=lambda k: (k == "events", k != "pods"))


def terminating(namespace: JSON) -> JSON:
    """A copy of a namespace that is being deleted, with phase Terminating."""
    return {**namespace, "status": {**(namespace.get("status") or {}), "phase": "Terminating"}}


# Objects that every new cluster has: namespaces, priority classes, the API's service.
#
# Pure: the registry that it changes is an argument.

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
