"""Deleting objects: carries out what :mod:`kubeletpy_up.registry.deletion` decides."""

from __future__ import annotations

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component
from kubeletpy_up import errors
from kubeletpy_up.kinds import meta
from kubeletpy_up.kinds import rules as kinds
from kubeletpy_up.registry import deletion, namespaces, reading
from kubeletpy_up.registry.cluster import Cluster
from kubeletpy_up.requests import DeleteOptions
from kubeletpy_up.resources import ResourceInfo


class Remover(Component):
    """Deletes objects for the registry; the caller is already authorized."""

    cluster: Cluster

    def delete(self, info: ResourceInfo, name: str, namespace: str, options: DeleteOptions) -> JSON:
        """Delete or mark for deletion; returns the object or a Status.

        Raises:
            ApiError: 403, 404, 409.
        """
        old = self.cluster.stored(info, namespace, name)
        meta.check_delete_preconditions(info, name, old, options.uid, options.resource_version)
        if info.plural == "namespaces" and name in namespaces.IMMORTAL:
            raise errors.forbidden("namespaces", name, "this namespace may not be deleted")
        now = self.cluster.clock.now()
        if info.plural == "namespaces":
            return self._namespace(old, name, options, now)
        decision = deletion.decide(info.storage_key, old, options, now)
        if options.dry_run:
            return self._answer(info, decision)
        store = self.cluster.store
        if decision.remove:
            if info.storage_key == "pods" and decision.object is not old:
                # a pod removed at once is marked first, so that watchers see that, too
                store.put(info.storage_key, namespace, name, decision.object)
            removed = store.remove(info.storage_key, namespace, name, decision.object)
            return self._answer(info, deletion.Decision(True, removed))
        if decision.object is old:
            return reading.view(info, old)
        return reading.view(info, store.put(info.storage_key, namespace, name, decision.object))

    def _answer(self, info: ResourceInfo, decision: deletion.Decision) -> JSON:
        obj = decision.object
        if not decision.remove or info.storage_key in kinds.RETURNS_DELETED:
            return reading.view(info, obj)
        about = obj["metadata"]
        return errors.success(info.plural, about["name"], about["uid"], info.group)

    def _namespace(self, old: JSON, name: str, options: DeleteOptions, now: float) -> JSON:
        if old["metadata"].get("deletionTimestamp"):
            return old
        forced = DeleteOptions(grace_period_seconds=0)
        kept = meta.with_metadata(old, finalizers=["kubernetes"])
        marked = deletion.decide("namespaces", kept, forced, now).object
        finalizers = old["metadata"].get("finalizers")
        marked = namespaces.terminating(meta.with_metadata(marked, finalizers=finalizers))
        if options.dry_run:
            return marked
        # The namespace's content is deleted as this write is published: see namespaces.py.
        return self.cluster.store.put("namespaces", "", name, marked)

    def after_update(self, info: ResourceInfo, namespace: str, name: str, obj: JSON) -> JSON | None:
        """Remove an object whose last finalizer an update removed; None if it stays."""
        if not deletion.finished(obj) or info.plural == "namespaces":
            return None
        return self.cluster.store.remove(info.storage_key, namespace, name, obj)
