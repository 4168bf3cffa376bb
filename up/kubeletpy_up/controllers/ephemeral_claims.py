"""Creates the claims of generic ephemeral volumes. The garbage collector deletes them."""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import TERMINAL_PHASES
from kubeletpy_up.controllers.claim_matching import owner_of
from kubeletpy_up.controllers.pod_devices import owned_by
from kubeletpy_up.controllers.reconciler import Key, Reconciler, key_of
from kubeletpy_up.kinds.storage import CLAIMS
from kubeletpy_up.requests import CONTROLLER
from kubeletpy_up.storage.history import Change


def claim_for(pod: JSON, volume: JSON) -> JSON:
    """The claim of a pod's ephemeral volume: the pod is its controller. Pure."""
    about = pod["metadata"]
    template = (volume["ephemeral"] or {}).get("volumeClaimTemplate") or {}
    supplied = template.get("metadata") or {}
    owner = {**owned_by(pod), "blockOwnerDeletion": True}
    kept = {key: supplied[key] for key in ("labels", "annotations") if supplied.get(key)}
    name = f"{about['name']}-{volume['name']}"
    metadata = {**kept, "name": name, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": template.get("spec") or {}}


class EphemeralClaims(Reconciler):
    """Creates a registry's claims while it runs."""

    component = "ephemeral_volume"

    def everything(self) -> Iterable[Key]:
        """All pods: each may have ephemeral volumes."""
        return [key_of("pods", pod) for pod in self.all_of("pods")]

    def concerned(self, change: Change) -> Iterable[Key]:
        """A new pod, and the pod of a deleted claim."""
        if change.resource == "pods" and change.type == "ADDED":
            yield key_of("pods", change.object)
        elif change.resource == CLAIMS and change.type == "DELETED":
            owner = owner_of(change.object)
            if owner is not None:
                yield "pods", change.object["metadata"]["namespace"], owner["name"]

    def check(self, key: Key) -> None:
        """Create the claims that a pod lacks."""
        pod = self.find(key)
        if pod is None:
            return
        about = pod["metadata"]
        ended = (pod.get("status") or {}).get("phase") in TERMINAL_PHASES
        if about.get("deletionTimestamp") or ended:
            return
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            if not volume.get("ephemeral"):
                continue
            claim = claim_for(pod, volume)
            name = claim["metadata"]["name"]
            known = self.registry.find(CLAIMS, about["namespace"], name)
            if known is None:
                self.registry.create(CONTROLLER, CLAIMS, claim, about["namespace"])
            elif (owner_of(known) or {}).get("uid") != about["uid"]:
                where = f"{about['namespace']}/{name}"
                message = f"PVC {where} was not created for the pod: the pod is not its owner"
                self.report("Pod", pod, "Warning", "FailedBinding", message)
