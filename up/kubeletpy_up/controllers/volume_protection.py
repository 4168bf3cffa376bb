"""Protects claims that pods use and volumes that claims use, until nobody uses them any more.

A deleted claim or volume stays, with its finalizer, until then. A bound claim has a condition
``Unused``, as from 1.37 on. Event driven.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import TERMINAL_PHASES
from kubeletpy_up.auth.node_restriction import claim_names
from kubeletpy_up.controllers.reconciler import Key, Reconciler, key_of
from kubeletpy_up.kinds.meta import with_metadata
from kubeletpy_up.kinds.storage import CLAIMS, PROTECTION, VOLUMES, protected
from kubeletpy_up.storage.history import Change

_UNUSED: JSON = {
    "type": "Unused",
    "status": "True",
    "reason": "NoPodsUsingPVC",
    "message": "No pods are currently referencing this PVC",
}
_USED: JSON = {
    "type": "Unused",
    "status": "False",
    "reason": "PodUsingPVC",
    "message": "A pod is currently referencing this PVC",
}


def _may_change_use(change: Change) -> bool:
    """Whether a pod came, ended or was removed. Its claims never change, its status often does."""
    phase = (change.object.get("status") or {}).get("phase")
    return change.type != "MODIFIED" or phase in TERMINAL_PHASES


class VolumeProtection(Reconciler):
    """Protects a registry's claims and volumes while it runs."""

    component = "pvc-protection-controller"

    def everything(self) -> Iterable[Key]:
        """All claims and volumes."""
        return [key_of(each, obj) for each in PROTECTION for obj in self.all_of(each)]

    def concerned(self, change: Change) -> Iterable[Key]:
        """The object itself, and the claims of a pod that ends."""
        if change.resource in PROTECTION and change.type != "DELETED":
            yield key_of(change.resource, change.object)
        elif change.resource == "pods" and _may_change_use(change):
            namespace = change.object["metadata"]["namespace"]
            yield from ((CLAIMS, namespace, name) for name in claim_names(change.object))

    def check(self, key: Key) -> None:
        """Add the finalizer, or remove it from an object that is deleted and unused."""
        resource = key[0]
        found = self.find(key)
        if found is None:
            return
        about = found["metadata"]
        if not about.get("deletionTimestamp"):
            stored = self.write(resource, protected(resource, found), old=found)
            if resource == CLAIMS:
                self.write(resource, self._with_unused(stored), old=stored, status=True)
        elif PROTECTION[resource] in (about.get("finalizers") or ()) and not self._used(key, found):
            left = [name for name in about["finalizers"] if name != PROTECTION[resource]]
            self.write(resource, with_metadata(found, finalizers=left or None), old=found)

    def _with_unused(self, claim: JSON) -> JSON:
        """A bound claim with the condition that shows whether a pod that has not ended names it."""
        status = claim.get("status") or {}
        if status.get("phase") != "Bound":
            return claim
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        used = any(
            name in claim_names(pod)
            for pod in self.all_of("pods", namespace)
            if (pod.get("status") or {}).get("phase") not in TERMINAL_PHASES
        )
        conditions = status.get("conditions") or []
        desired = _USED if used else _UNUSED
        before = next((each for each in conditions if each["type"] == desired["type"]), None)
        if before is not None and before.get("status") == desired["status"]:
            return claim
        about = {
            **desired,
            "lastProbeTime": None,
            "lastTransitionTime": format_time(self.registry.clock.now()),
        }
        if before is None:
            conditions = [*conditions, about]
        else:
            conditions = [about if each is before else each for each in conditions]
        return {**claim, "status": {**status, "conditions": conditions}}

    def _used(self, key: Key, found: JSON) -> bool:
        resource, namespace, name = key
        if resource == VOLUMES:
            return (found.get("status") or {}).get("phase") == "Bound"
        # a pod that is on no node has mounted nothing
        return any(
            name in claim_names(pod)
            for pod in self.all_of("pods", namespace)
            if (pod.get("spec") or {}).get("nodeName")
        )
