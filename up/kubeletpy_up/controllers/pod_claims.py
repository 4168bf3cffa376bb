"""Creates the claims of pods from templates: claims of devices, and of ephemeral volumes.

The garbage collector deletes the claims of removed pods. Another program allocates devices. A
device claim's ``status.reservedFor`` lists its users: the scheduler adds pods, the controller here
removes those that have ended, and the allocation with the last one. Source: a cluster's resource
claim controller.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import TERMINAL_PHASES
from kubeletpy_up.auth.node_restriction import device_claim_names
from kubeletpy_up.controllers.claim_matching import owner_of
from kubeletpy_up.controllers.pod_devices import FINALIZER, owned_by, reserved
from kubeletpy_up.controllers.reconciler import Key, Reconciler, key_of
from kubeletpy_up.kinds import storage
from kubeletpy_up.kinds.devices import CLAIMS, TEMPLATES
from kubeletpy_up.kinds.meta import with_metadata
from kubeletpy_up.requests import CONTROLLER
from kubeletpy_up.storage.history import Change

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"


def claim_from(template: JSON, pod: JSON, name: str) -> JSON:
    """The claim that a template yields for a pod, which refers to it as ``name``. Pure."""
    spec = template.get("spec") or {}
    supplied = spec.get("metadata") or {}
    metadata = {
        "generateName": f"{pod['metadata']['name']}-{name}-",
        "annotations": {**(supplied.get("annotations") or {}), POD_CLAIM: name},
        "ownerReferences": [owned_by(pod)],
    }
    if supplied.get("labels"):
        metadata["labels"] = supplied["labels"]
    return {"metadata": metadata, "spec": spec.get("spec") or {}}


class DeviceClaims(Reconciler):
    """Creates and deallocates a registry's device claims while it runs."""

    component = "resource_claim"

    def everything(self) -> Iterable[Key]:
        """All pods and claims."""
        return [key_of(each, obj) for each in ("pods", CLAIMS) for obj in self.all_of(each)]

    def concerned(self, change: Change) -> Iterable[Key]:
        """The object itself, the claims of a pod, the pods waiting for a template."""
        obj = change.object
        namespace = obj["metadata"].get("namespace", "")
        if change.resource == CLAIMS:
            yield key_of(CLAIMS, obj)
            owner = owner_of(obj)
            if owner is not None:
                yield "pods", namespace, owner["name"]
        elif change.resource == TEMPLATES and change.type != "DELETED":
            yield from (key_of("pods", pod) for pod in self.all_of("pods", namespace))
        elif change.resource == "pods" and (obj.get("spec") or {}).get("resourceClaims"):
            yield key_of("pods", obj)
            yield from ((CLAIMS, namespace, name) for name in device_claim_names(obj))

    def check(self, key: Key) -> None:
        """Create the claims a pod lacks, or release a claim that its users have left."""
        found = self.find(key)
        if found is None:
            return
        if key[0] == "pods":
            self._pod(found)
        else:
            self._claim(found)

    # -- pods ----------------------------------------------------------------------------------

    def _pod(self, pod: JSON) -> None:
        about = pod["metadata"]
        if about.get("deletionTimestamp") or _has_ended(pod):
            return
        statuses = list((pod.get("status") or {}).get("resourceClaimStatuses") or ())
        known = {each["name"] for each in statuses}
        for entry in (pod.get("spec") or {}).get("resourceClaims") or ():
            template = entry.get("resourceClaimTemplateName")
            if template and entry["name"] not in known:
                made = self._made(pod, entry["name"], template)
                if made:
                    statuses.append({"name": entry["name"], "resourceClaimName": made})
        if len(statuses) > len(known):
            status = {**(pod.get("status") or {}), "resourceClaimStatuses": statuses}
            pod = self.write("pods", {**pod, "status": status}, old=pod, status=True)
        if (pod.get("spec") or {}).get("nodeName"):
            self._reserve(pod)  # a pod bound without the scheduler has nothing reserved

    def _made(self, pod: JSON, name: str, template_name: str) -> str:
        """The name of a pod's claim, created if necessary; empty if it can't be."""
        namespace = pod["metadata"]["namespace"]
        for claim in self.all_of(CLAIMS, namespace):
            supplied = (claim["metadata"].get("annotations") or {}).get(POD_CLAIM)
            if supplied == name and (owner_of(claim) or {}).get("uid") == pod["metadata"]["uid"]:
                return str(claim["metadata"]["name"])
        template = self.registry.find(TEMPLATES, namespace, template_name)
        if template is None:
            message = (
                f'PodResourceClaim {name}: resource claim template "{template_name}": '
                f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            )
            self.report("Pod", pod, "Warning", "FailedResourceClaimCreation", message)
            return ""
        claim = claim_from(template, pod, name)
        made = self.registry.create(CONTROLLER, CLAIMS, claim, namespace)
        return str(made["metadata"]["name"])

    def _reserve(self, pod: JSON) -> None:
        for name in device_claim_names(pod):
            claim = self.registry.find(CLAIMS, pod["metadata"]["namespace"], name)
            if claim is not None and (claim.get("status") or {}).get("allocation"):
                self.write(CLAIMS, reserved(claim, pod), old=claim, status=True)

    # -- claims --------------------------------------------------------------------------------

    def _claim(self, claim: JSON) -> None:
        status = dict(claim.get("status") or {})
        users = status.get("reservedFor") or []
        left = [each for each in users if self._uses(claim, each)]
        if users != left:
            status = {**status, "reservedFor": left}
        if not left:
            status.pop("reservedFor", None)
            if users or claim["metadata"].get("deletionTimestamp"):
                status.pop("allocation", None)
        claim = self.write(CLAIMS, {**claim, "status": status}, old=claim, status=True)
        if not left:
            claim = self._let_go(claim)
            self._delete_if_ended(claim)

    def _let_go(self, claim: JSON) -> JSON:
        """Remove the finalizer from a claim that is not allocated."""
        finalizers = claim["metadata"].get("finalizers") or []
        if (claim.get("status") or {}).get("allocation") or FINALIZER not in finalizers:
            return claim
        finalizers = [each for each in finalizers if each != FINALIZER]
        desired = with_metadata(claim, finalizers=finalizers or None)
        return self.write(CLAIMS, desired, old=claim)

    def _delete_if_ended(self, claim: JSON) -> None:
        """Delete the claim of a pod that has ended but still exists."""
        about, owner = claim["metadata"], owner_of(claim)
        if owner is None or POD_CLAIM not in (about.get("annotations") or {}):
            return
        pod = self.registry.find("pods", about["namespace"], owner["name"])
        if pod is None or pod["metadata"]["uid"] != owner["uid"] or not _has_ended(pod):
            return
        known = self.registry.find(CLAIMS, about["namespace"], about["name"])
        if known is not None and not about.get("deletionTimestamp"):
            self.registry.delete(CONTROLLER, CLAIMS, about["name"], about["namespace"])

    def _uses(self, claim: JSON, user: JSON) -> bool:
        if user.get("resource") != "pods" or user.get("apiGroup"):
            return True  # not ours to judge
        pod = self.registry.find("pods", claim["metadata"]["namespace"], user.get("name", ""))
        if pod is None or pod["metadata"]["uid"] != user.get("uid"):
            return False
        on_node = bool((pod.get("spec") or {}).get("nodeName"))
        return not _has_ended(pod) and (on_node or not pod["metadata"].get("deletionTimestamp"))


def _has_ended(pod: JSON) -> bool:
    return (pod.get("status") or {}).get("phase") in TERMINAL_PHASES


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
    """Creates the claims of ephemeral volumes while it runs."""

    component = "ephemeral_volume"

    def everything(self) -> Iterable[Key]:
        """All pods: each may have ephemeral volumes."""
        return [key_of("pods", pod) for pod in self.all_of("pods")]

    def concerned(self, change: Change) -> Iterable[Key]:
        """A new pod, and the pod of a deleted claim."""
        if change.resource == "pods" and change.type == "ADDED":
            yield key_of("pods", change.object)
        elif change.resource == storage.CLAIMS and change.type == "DELETED":
            owner = owner_of(change.object)
            if owner is not None:
                yield "pods", change.object["metadata"]["namespace"], owner["name"]

    def check(self, key: Key) -> None:
        """Create the claims that a pod lacks."""
        pod = self.find(key)
        if pod is None:
            return
        about = pod["metadata"]
        if about.get("deletionTimestamp") or _has_ended(pod):
            return
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            if not volume.get("ephemeral"):
                continue
            claim = claim_for(pod, volume)
            name = claim["metadata"]["name"]
            known = self.registry.find(storage.CLAIMS, about["namespace"], name)
            if known is None:
                self.registry.create(CONTROLLER, storage.CLAIMS, claim, about["namespace"])
            elif (owner_of(known) or {}).get("uid") != about["uid"]:
                where = f"{about['namespace']}/{name}"
                message = f"PVC {where} was not created for the pod: the pod is not its owner"
                self.report("Pod", pod, "Warning", "FailedBinding", message)
