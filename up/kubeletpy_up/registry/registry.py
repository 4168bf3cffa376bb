"""The API without HTTP: every verb on every resource, synchronous, on a store and a clock.

This is what a request means; :mod:`kubeletpy_up.http.server` only carries it. The simulation
of the whole agent calls it directly, on virtual time. Every refusal is an
:class:`~kubeletpy_up.errors.ApiError`. Returned objects are shared: never change one.

Resources are named by plural (``pods``) or key (``events.events.k8s.io``).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Collection
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import replace
from kubeletpy_up import errors
from kubeletpy_up.auth.authorizer import Request, named_in
from kubeletpy_up.cluster_kinds import WRITES, second_node
from kubeletpy_up.registry import namespaces, reading
from kubeletpy_up.registry.cluster import Cluster
from kubeletpy_up.registry.namespaces import NamespaceController
from kubeletpy_up.registry.reading import EVERYTHING, ListOptions
from kubeletpy_up.registry.removal import Remover
from kubeletpy_up.registry.subresources import Subresources
from kubeletpy_up.registry.writing import Writer
from kubeletpy_up.requests import Caller, DeleteOptions, Target, WriteOptions
from kubeletpy_up.resources import ResourceInfo
from kubeletpy_up.storage.optimistic import EventRetention
from kubeletpy_up.storage.selectors import FieldTerm, Selection, parse_fields, parse_labels
from kubeletpy_up.storage.store import Store
from kubeletpy_up.storage.watch import Subscription


class Registry(Cluster):
    """The whole API of a cluster of one node.

    Args:
        root_ca: PEM text of the configMap that every namespace gets.

    The other arguments are :class:`~kubeletpy_up.registry.cluster.Cluster`'s.
    """

    def __init__(
        self,
        clock: Clock,
        store: Store,
        *,
        strict: bool = True,
        service_account_volumes: bool = False,
        signing_key: bytes | None = None,
        root_ca: str = "",
        rng: random.Random | None = None,
        service_cidr: str = "10.96.0.0/16",
        only_node: str = "",
        feature_gates: Collection[str] = (),
    ) -> None:
        super().__init__(
            clock,
            store,
            strict=strict,
            service_account_volumes=service_account_volumes,
            signing_key=signing_key,
            rng=rng,
            service_cidr=service_cidr,
            only_node=only_node,
            feature_gates=feature_gates,
        )
        self._namespaces = NamespaceController(
            self, lambda name: store.remove("namespaces", "", name), root_ca
        )
        self._remover = Remover(self)
        self._writer = Writer(self, self._remover)
        self._events = EventRetention(store)
        self._subresources = Subresources(self, self._remover)
        store.subscribe(self.watchers.dispatch)
        store.subscribe(self._namespaces.on_change)
        store.subscribe(self._events.on_change)
        namespaces.create_missing(self)
        self._namespaces.reconcile_all()

    def get(
        self,
        caller: Caller,
        resource: str,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str = "",
    ) -> JSON:
        """Read one object. Raises ApiError (404, 403)."""
        target = self._target(
            caller, "get", resource, namespace, name=name, subresource=subresource
        )
        return reading.view(target.info, self.stored(target.info, target.namespace, name))

    def list(
        self,
        caller: Caller,
        resource: str,
        namespace: str | None = None,
        options: ListOptions = EVERYTHING,
    ) -> JSON:
        """Read many objects; namespace None is all. Raises ApiError (400, 403, 410)."""
        info, selection = self._select(caller, "list", resource, namespace, options)
        return reading.list_objects(self.store, info, selection, options)

    def watch(
        self,
        caller: Caller,
        resource: str,
        namespace: str | None = None,
        options: ListOptions = EVERYTHING,
        begin: reading.Begin | None = None,
    ) -> Subscription:
        """Follow changes: take events with ``await subscription.next()``, then close it.

        A resource version that is too old yields an ERROR event with a Status of code 410.

        Args:
            begin: what :meth:`begin_watch` has read.

        Raises:
            ApiError: 400, 403.
        """
        info, selection = self._select(caller, "watch", resource, namespace, options)
        return reading.start_watch(self.store, self.watchers, info, selection, options, begin=begin)

    def begin_watch(
        self,
        caller: Caller,
        resource: str,
        namespace: str | None = None,
        options: ListOptions = EVERYTHING,
    ) -> reading.Begin:
        """The first part of a watch; a separate call since it may be large. Raises ApiError."""
        info, selection = self._select(caller, "watch", resource, namespace, options)
        return reading.begin_watch(self.store, info, selection, options)

    def on(self, store: Store) -> Registry:
        """The same API with another view of the same store; for one request."""
        twin = copy.copy(self)
        twin.store = store
        twin._remover = Remover(twin)
        twin._writer = Writer(twin, twin._remover)
        twin._subresources = Subresources(twin, twin._remover)
        return twin

    def _select(
        self, caller: Caller, verb: str, resource: str, namespace: str | None, options: ListOptions
    ) -> tuple[ResourceInfo, Selection]:
        info = self._verb(resource, verb, "")
        chosen = (namespace or None) if info.namespaced else None
        refused: errors.ApiError | None = None
        fields: tuple[FieldTerm, ...] = ()
        try:
            # the Node authorizer needs them; the rest is parsed only for authorized callers
            fields = parse_fields(info.storage_key, options.field_selector)
        except errors.ApiError as error:
            refused = error
        by_field = Selection(chosen, (), fields)
        node = [t.value for t in fields if t.path == "spec.nodeName" and not t.negated]
        request = Request(
            verb,
            info.key,
            namespace=namespace or "",
            name=by_field.single_name,
            node_selector=node[0] if node else "",
        )
        self.check(caller, info, request)
        if refused is not None:
            raise refused
        return info, replace(by_field, labels=parse_labels(options.label_selector))

    def create(
        self,
        caller: Caller,
        resource: str,
        obj: JSON,
        namespace: str | None = None,
        *,
        name: str = "",
        subresource: str = "",
        options: WriteOptions | None = None,
    ) -> JSON:
        """Create an object, or with ``subresource`` and ``name`` act on one (token, binding, …).

        Raises:
            ApiError: 400, 403, 404, 409, 422.
        """
        body = obj if isinstance(obj, dict) else {}
        target = self._target(
            caller, "create", resource, namespace, name=name, subresource=subresource, body=body
        )
        options = options or WriteOptions()
        if subresource or "get" not in target.info.verbs:
            return self._subresources.create(target, obj, options)
        return self._writer.create(caller, target.info, obj, target.namespace, options)

    def update(
        self,
        caller: Caller,
        resource: str,
        obj: JSON,
        namespace: str | None = None,
        *,
        name: str = "",
        subresource: str = "",
        options: WriteOptions | None = None,
    ) -> JSON:
        """Replace an object, or the part of it that ``subresource`` names.

        Raises:
            ApiError: 400, 403, 404, 409, 422.
        """
        if not name:
            supplied = (obj.get("metadata") or {}) if isinstance(obj, dict) else {}
            name = str(supplied.get("name") or "")
        target = self._target(
            caller, "update", resource, namespace, name=name, subresource=subresource
        )
        return self._writer.update(target, obj, options or WriteOptions())

    def patch(
        self,
        caller: Caller,
        resource: str,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        patch_type: str = "application/strategic-merge-patch+json",
        subresource: str = "",
        options: WriteOptions | None = None,
    ) -> JSON:
        """Change an object; ``patch_type`` is the content type. An apply patch may create it.

        Raises:
            ApiError: 400, 403, 404, 409, 415, 422.
        """
        target = self._target(
            caller, "patch", resource, namespace, name=name, subresource=subresource
        )
        return self._writer.patch(target, patch, patch_type, options or WriteOptions())

    def delete(
        self,
        caller: Caller,
        resource: str,
        name: str,
        namespace: str | None = None,
        options: DeleteOptions | None = None,
    ) -> JSON:
        """Delete an object: at once, or marked for deletion. Returns it, or a Status.

        Raises:
            ApiError: 403, 404, 409.
        """
        target = self._target(caller, "delete", resource, namespace, name=name)
        return self._remover.delete(target.info, name, target.namespace, options or DeleteOptions())

    def delete_collection(
        self,
        caller: Caller,
        resource: str,
        namespace: str | None = None,
        chosen: ListOptions = EVERYTHING,
        options: DeleteOptions | None = None,
    ) -> JSON:
        """Delete everything selected; returns the list of it. Raises ApiError (400, 403)."""
        self._verb(resource, "deletecollection", "")
        info, selection = self._select(caller, "deletecollection", resource, namespace, chosen)
        found = reading.list_objects(self.store, info, selection, chosen)
        for item in found["items"]:
            about = item["metadata"]
            if self.store.get(info.storage_key, about.get("namespace", ""), about["name"]):
                self._remover.delete(
                    info, about["name"], about.get("namespace", ""), options or DeleteOptions()
                )
        return found

    def _target(
        self,
        caller: Caller,
        verb: str,
        resource: str,
        namespace: str | None,
        *,
        name: str,
        subresource: str = "",
        body: JSON | None = None,
    ) -> Target:
        """Authorize a write and return its target. Raises ApiError."""
        info = self._verb(resource, verb, subresource, name)
        where = namespace or ""
        request = Request(verb, info.key, subresource, where, name, body=body or {})
        self.check(caller, info, request)
        about = name or named_in(request.body)
        refused = self._only_of_clusters(info, verb, about)
        if refused:
            raise errors.not_stored(info.plural, about, refused, info.group)
        return Target(caller, info, where, name, subresource)

    def _only_of_clusters(self, info: ResourceInfo, verb: str, name: str) -> str:
        """The refusal of a write that only a cluster can serve; empty if it is served here."""
        if info.refusal and verb in WRITES:
            return info.refusal
        is_other_node = self.only_node and info.key == "nodes" and name != self.only_node
        if is_other_node and verb in WRITES and self.find("nodes", "", name) is None:
            return second_node(self.only_node)
        return ""

    def _verb(self, resource: str, verb: str, subresource: str, name: str = "") -> ResourceInfo:
        info = self.resource(resource)
        verbs = info.verbs
        if subresource:
            below = info.subresource(subresource)
            if below is None or info.is_proxied(subresource):
                raise errors.unknown_path()
            verbs = below.verbs
        if verb not in verbs and verbs == ("create",) and not subresource:
            raise errors.unknown_path() if name else errors.method_not_served()
        if verb not in verbs:
            raise errors.method_not_allowed(info.plural, verb, info.group)
        return info

    def replace_root_ca(self, root_ca: str) -> None:
        """Give the namespaces another authority's certificate (PEM)."""
        self._namespaces.replace_root_ca(root_ca)

    def expire_events(self) -> int:
        """Remove events that were last written more than an hour ago; returns how many."""
        return self._events.expire(self.clock.now())

    def close(self) -> None:
        """End all watches. The store stays open: it belongs to the caller."""
        self.watchers.close_all()
