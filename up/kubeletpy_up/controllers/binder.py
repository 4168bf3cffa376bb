"""The volume binder: binds claims to volumes and keeps the status of both.

Event driven. It neither creates nor deletes volumes: provisioners do.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.api.types import JSON
from kubeletpy_up.controllers import claim_matching as matching
from kubeletpy_up.controllers.reconciler import Key, Reconciler, key_of
from kubeletpy_up.kinds.storage import CLAIMS, CLASSES, VOLUMES, class_of, with_default_class
from kubeletpy_up.storage.history import Change

_CLAIM, _VOLUME = "PersistentVolumeClaim", "PersistentVolume"


class Binder(Reconciler):
    """Binds a registry's claims while it runs."""

    component = "persistentvolume-controller"

    def everything(self) -> Iterable[Key]:
        """All volumes, then all claims."""
        return [key_of(each, obj) for each in (VOLUMES, CLAIMS) for obj in self.all_of(each)]

    def concerned(self, change: Change) -> Iterable[Key]:
        """The changed object and those bound to it; for a free volume, all unbound claims too."""
        if change.resource == CLAIMS:
            yield key_of(CLAIMS, change.object)
            yield from (key_of(VOLUMES, v) for v in self._volumes_of(change.object))
        elif change.resource == VOLUMES:
            yield key_of(VOLUMES, change.object)
            for obj in (change.object, change.previous or change.object):
                known = matching.reference(obj)
                if known is not None:
                    yield CLAIMS, str(known.get("namespace")), str(known.get("name"))
            name = change.object["metadata"]["name"]
            is_free = matching.reference(change.object) is None
            for claim in self.all_of(CLAIMS):
                desired = matching.volume_name(claim)
                if desired == name or (not desired and is_free):
                    yield key_of(CLAIMS, claim)
        elif change.resource == CLASSES:
            yield from (
                key_of(CLAIMS, claim)
                for claim in self.all_of(CLAIMS)
                if not matching.is_completed(claim)
            )

    def check(self, key: Key) -> None:
        """Reconcile a volume or a claim."""
        found = self.find(key)
        if found is None:
            return
        if key[0] == VOLUMES:
            self._volume(found)
        else:
            self._claim(found)

    def _volumes_of(self, claim: JSON) -> list[JSON]:
        name, about = matching.volume_name(claim), claim["metadata"]
        found = []
        for volume in self.all_of(VOLUMES):
            known = matching.reference(volume) or {}
            named = (known.get("namespace"), known.get("name"))
            if volume["metadata"]["name"] == name or named == (about["namespace"], about["name"]):
                found.append(volume)
        return found

    def _class_of(self, claim: JSON) -> JSON | None:
        name = class_of(claim)
        return self.registry.find(CLASSES, "", name) if name else None

    # claims

    def _claim(self, claim: JSON) -> None:
        if matching.is_completed(claim):
            self._completed(claim)
        elif matching.volume_name(claim):
            self._named(claim)
        else:
            self._unbound(claim)

    def _completed(self, claim: JSON) -> None:
        volume = self.registry.find(VOLUMES, "", matching.volume_name(claim))
        if volume is None:
            why = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
            self._lost(claim, "ClaimLost", why)
        elif matching.reference(volume) is None or matching.belongs_to(volume, claim):
            self._bind(claim, volume)
        else:
            why = "Two claims are bound to the same volume, this one is bound incorrectly"
            self._lost(claim, "ClaimMisbound", why)

    def _lost(self, claim: JSON, reason: str, message: str) -> None:
        if (claim.get("status") or {}).get("phase") != "Lost":
            self.report(_CLAIM, claim, "Warning", reason, message)
        self._status(claim, matching.unbound_status(claim, "Lost"))

    def _named(self, claim: JSON) -> None:
        name = matching.volume_name(claim)
        volume = self.registry.find(VOLUMES, "", name)
        if volume is not None and matching.belongs_to(volume, claim):
            self._bind(claim, volume)
            return
        if volume is not None and matching.reference(volume) is None:
            why = matching.mismatch(volume, claim)
            if not why:
                self._bind(claim, volume)
                return
            message = f'Cannot bind to requested volume "{name}": {why}'
            self.report(_CLAIM, claim, "Warning", "VolumeMismatch", message)
        elif volume is not None:
            message = f'volume "{name}" already bound to a different claim.'
            self.report(_CLAIM, claim, "Warning", "FailedBinding", message)
        self._status(claim, matching.unbound_status(claim, "Pending"))

    def _unbound(self, claim: JSON) -> None:
        defaulted = with_default_class(claim, self.all_of(CLASSES))
        claim = self.write(CLAIMS, defaulted, old=claim)
        storage_class = self._class_of(claim)
        waits = matching.waits_for_pod(claim, storage_class)
        volume = matching.find_volume(claim, self.all_of(VOLUMES), reserved_only=waits)
        if volume is not None:
            self._bind(claim, volume)
            return
        if waits:
            message = "waiting for first consumer to be created before binding"
            self.report(_CLAIM, claim, "Normal", "WaitForFirstConsumer", message)
        elif class_of(claim):
            self._ask_for_one(claim, storage_class)
        else:
            message = "no persistent volumes available for this claim and no storage class is set"
            self.report(_CLAIM, claim, "Normal", "FailedBinding", message)
            self._status(claim, matching.unbound_status(claim, "Pending"))

    def _ask_for_one(self, claim: JSON, storage_class: JSON | None) -> None:
        """Annotate a claim with its class's provisioner, which then creates a volume."""
        if storage_class is None:
            message = f'storageclass.storage.k8s.io "{class_of(claim)}" not found'
            self.report(_CLAIM, claim, "Warning", "ProvisioningFailed", message)
            return
        provisioner = storage_class["provisioner"]
        if provisioner == matching.NO_PROVISIONER:
            return
        message = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}'"
            " or manually by the system administrator. If volume creation is delayed, please "
            "verify that the provisioner is running and correctly registered."
        )
        self.report(_CLAIM, claim, "Normal", "ExternalProvisioning", message)
        self.write(CLAIMS, matching.with_provisioner(claim, provisioner), old=claim)

    def _bind(self, claim: JSON, volume: JSON) -> None:
        """Do whichever of the four writes is missing: a crash between any two is harmless."""
        volume = self.write(VOLUMES, matching.with_claim(volume, claim), old=volume)
        self._phase(volume, "Bound")
        claim = self.write(CLAIMS, matching.with_volume(claim, volume), old=claim)
        self._status(claim, matching.bound_status(claim, volume))

    def _status(self, claim: JSON, changed: JSON) -> None:
        self.write(CLAIMS, changed, old=claim, status=True)

    # volumes

    def _volume(self, volume: JSON) -> None:
        known = matching.reference(volume)
        if known is None or not known.get("uid"):
            self._phase(volume, "Available")
            return
        claim = self.registry.find(CLAIMS, str(known.get("namespace")), str(known.get("name")))
        if claim is None or claim["metadata"]["uid"] != known["uid"]:
            if (volume.get("status") or {}).get("phase") not in ("Released", "Failed"):
                self._phase(volume, "Released")
            self._recycle(volume)
            return
        desired = matching.volume_name(claim)
        if desired == volume["metadata"]["name"]:
            self._phase(volume, "Bound")
        elif desired:
            # another volume was faster
            if matching.annotation(volume, matching.PROVISIONED_BY) is not None:
                self._phase(volume, "Released")
            else:
                self.write(VOLUMES, matching.without_claim(volume), old=volume)

    def _recycle(self, volume: JSON) -> None:
        if volume["spec"].get("persistentVolumeReclaimPolicy") == "Recycle":
            why = "the reclaim policy Recycle is not supported: use Retain or Delete"
            self.report(_VOLUME, volume, "Warning", "VolumeFailedRecycle", why)
            self._phase(volume, "Failed", why)

    def _phase(self, volume: JSON, phase: str, message: str = "") -> None:
        known = volume.get("status") or {}
        if known.get("phase") == phase:
            return
        status = {k: v for k, v in known.items() if k not in ("message", "reason")}
        status |= {"phase": phase, **({"message": message} if message else {})}
        self.write(VOLUMES, {**volume, "status": status}, old=volume, status=True)
