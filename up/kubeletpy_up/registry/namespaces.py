"""Namespaces: what a cluster has from the start, what each gets, and how one is deleted.

Event driven: fed with the store's changes. Must never touch a namespace that is not terminating,
except to restore what every one has. Pure: the registry that it changes is an argument
(:class:`Api`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import ApiError
from kubeletpy_up.requests import CONTROLLER, Caller, DeleteOptions
from kubeletpy_up.resources import all_resources
from kubeletpy_up.storage.history import Change

BOOTSTRAP = ("default", "kube-node-lease", "kube-public", "kube-system")
IMMORTAL = frozenset({"default", "kube-public", "kube-system"})
ROOT_CA_NAME = "kube-root-ca.crt"


class Api(Protocol):
    """The part of the registry that namespaces need; all methods raise ApiError."""

    service_cidr: str

    def find(self, resource: str, namespace: str, name: str) -> JSON | None:
        """One stored object by resource key."""

    def names(self, resource: str, namespace: str | None = None) -> list[str]:
        """The names of a resource's objects; of one namespace, or of all."""

    def create(
        self, caller: Caller, resource: str, obj: JSON, namespace: str | None = None
    ) -> JSON:
        """Create an object, by plural or resource key."""

    def update(
        self, caller: Caller, resource: str, obj: JSON, namespace: str | None = None
    ) -> JSON:
        """Replace an object, by plural or resource key."""

    def delete(
        self,
        caller: Caller,
        resource: str,
        name: str,
        namespace: str | None = None,
        options: DeleteOptions | None = None,
    ) -> JSON:
        """Delete an object, or mark it for deletion."""


class NamespaceController:
    """Fills new namespaces, empties old ones. Call :meth:`on_change` for every change of the store.

    Args:
        remove: removes a namespace from the store, once it is empty.
        root_ca: PEM text for the ``kube-root-ca.crt`` configMap; it may be empty.
    """

    def __init__(self, api: Api, remove: Callable[[str], object], root_ca: str) -> None:
        self._api = api
        self._remove = remove
        self._root_data: JSON = {"ca.crt": root_ca}

    def replace_root_ca(self, root_ca: str) -> None:
        """Provide another authority's certificate (PEM) from now on."""
        self._root_data = {"ca.crt": root_ca}
        self.reconcile_all()

    def reconcile_all(self) -> None:
        """Catch up after a start."""
        for name in self._api.names("namespaces"):
            found = self._api.find("namespaces", "", name)
            if found is not None and found["metadata"].get("deletionTimestamp"):
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
        found = self._api.find("namespaces", "", namespace)
        if found is None:
            return
        if found["metadata"].get("deletionTimestamp"):
            self._remove_if_empty(namespace)
        elif change.resource in ("serviceaccounts", "configmaps"):
            self._provide(namespace)

    def _provide(self, namespace: str) -> None:
        if self._api.find("serviceaccounts", namespace, "default") is None:
            account: JSON = {"metadata": {"name": "default"}}
            self._api.create(CONTROLLER, "serviceaccounts", account, namespace)
        found, data = self._api.find("configmaps", namespace, ROOT_CA_NAME), self._root_data
        if found is not None and found.get("data") != data:
            # of an authority that was replaced
            self._api.update(CONTROLLER, "configmaps", {**found, "data": data}, namespace)
        if found is None:
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
            self._api.create(CONTROLLER, "configmaps", config_map, namespace)

    def _empty(self, namespace: str) -> None:
        for key in _stored_namespaced():
            self._delete_all(key, namespace)
        self._remove_if_empty(namespace)

    def _delete_all(self, key: str, namespace: str) -> None:
        for name in self._api.names(key, namespace):
            try:
                self._api.delete(CONTROLLER, key, name, namespace, DeleteOptions())
            except ApiError as error:
                if error.code != 404:
                    raise

    def _remove_if_empty(self, namespace: str) -> None:
        found = self._api.find("namespaces", "", namespace)
        if found is None or found["metadata"].get("finalizers"):
            return
        for key in _stored_namespaced():
            if key != "events" and self._api.names(key, namespace):
                return
        # its pods' deletions made more events, which must not hold it up
        self._delete_all("events", namespace)
        if self._api.find("namespaces", "", namespace) is not None:
            self._remove(namespace)


def _stored_namespaced() -> list[str]:
    keys = [r.storage_key for r in all_resources() if r.namespaced and "list" in r.verbs]
    # Pods first: their nodes need time; events last: deleting may make more.
    return sorted(dict.fromkeys(keys), key=lambda k: (k == "events", k != "pods"))


def terminating(namespace: JSON) -> JSON:
    """A copy of a namespace that is being deleted, with phase Terminating."""
    return {**namespace, "status": {**(namespace.get("status") or {}), "phase": "Terminating"}}


# Objects that every new cluster has: namespaces, priority classes, the API's service.

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


def create_missing(api: Api) -> None:
    """Create what does not exist yet; does nothing on a second start."""
    for name in BOOTSTRAP:
        if api.find("namespaces", "", name) is None:
            api.create(CONTROLLER, "namespaces", {"metadata": {"name": name}})
    for name, value, description in _CRITICAL:
        if api.find(_PRIORITY_CLASSES, "", name) is None:
            api.create(
                CONTROLLER,
                _PRIORITY_CLASSES,
                {
                    "metadata": {"name": name},
                    "value": value,
                    "description": description,
                    "preemptionPolicy": "PreemptLowerPriority",
                },
            )
    if api.find("services", "default", "kubernetes") is None:
        labels = {"component": "apiserver", "provider": "kubernetes"}
        port = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}
        api.create(
            CONTROLLER,
            "services",
            {
                "metadata": {"name": "kubernetes", "labels": labels},
                "spec": {"ports": [port], "clusterIP": _first_address(api.service_cidr)},
            },
            "default",
        )


def _first_address(cidr: str) -> str:
    import ipaddress

    return str(next(iter(ipaddress.ip_network(cidr).hosts())))
