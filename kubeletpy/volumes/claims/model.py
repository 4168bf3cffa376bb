"""A pod's claim-backed volume once resolved, and what it waits for until then.

Pure. Source: docs/reference/behaviour-storage.md, sb2, sc.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from kubeletpy.base.host.errors import MachineFault
from kubeletpy.base.structs import Hidden, HidesFields, Struct


class Mode(StrEnum):
    """``volumeMode``: how containers get a volume."""

    FILESYSTEM = "Filesystem"
    BLOCK = "Block"


class WaitCause(StrEnum):
    """Why a volume is not available yet; the words are in ``Waits.message``."""

    UNREAD = "Unread"
    """An object could not be read: this implies nothing for the volume."""
    CLAIM_MISSING = "ClaimMissing"
    CLAIM_DELETING = "ClaimDeleting"
    CLAIM_UNBOUND = "ClaimUnbound"
    CLAIM_LOST = "ClaimLost"
    NOT_OWNED = "NotOwned"
    """The claim of an ephemeral volume was not created for this pod."""
    PV_MISSING = "PersistentVolumeMissing"
    PV_OF_ANOTHER = "PersistentVolumeOfAnother"
    MODE_DIFFERS = "ModeDiffers"
    NO_PLUGIN = "NoPlugin"
    """The node does not support this kind of volume."""
    INVALID = "Invalid"
    """The source is invalid."""
    SELINUX_CONFLICT = "SELinuxConflict"
    DRIVER_MISSING = "DriverMissing"
    NODE_AFFINITY = "NodeAffinity"
    NOT_IN_USE_YET = "NotInUseYet"
    """The API does not show yet that this node uses the volume."""
    NOT_ATTACHED = "NotAttached"
    ATTACH_FAILED = "AttachFailed"
    ATTACH_LIMIT = "AttachLimit"
    """The driver reports that the node has reached its volume limit (ResourceExhausted)."""
    SOLE_USER = "SoleUser"
    """ReadWriteOncePod, and another pod has it."""
    BUSY = "Busy"
    """Another operation on the volume is in progress."""
    BACKOFF = "Backoff"
    """An operation failed; it is retried at ``retry_at``."""


class Waits(Struct, frozen=True):
    """Why a volume is not available yet: a typed reason, with a message for people."""

    cause: WaitCause
    object: str
    """The object concerned: ``persistentvolumeclaim "default/data"``, ``csidriver "x"``."""
    message: str
    call: str = ""
    """The pending or failed call: ``NodeStageVolume of driver x``; else empty."""
    retry_at: float | None = None
    """When it is retried, in event-loop time; None: when something changes."""
    fault: MachineFault | None = None
    """The machine's fault for which the call failed, such as a full disk."""


def wait_text(wait: Waits) -> str:
    """The text of a wait: its message, object and call."""
    text = wait.message
    if wait.cause not in (WaitCause.BUSY, WaitCause.BACKOFF) and wait.object not in text:
        text = f"{text} (waiting for {wait.object})"
    if wait.call and wait.call not in text:
        text = f"{text} ({'failed' if wait.cause is WaitCause.BACKOFF else 'needed'}: {wait.call})"
    return text


class VolumeWait(Struct, frozen=True):
    """The wait of one volume of a pod."""

    volume: str
    """Its name in the pod's spec; during teardown the name of its PersistentVolume."""
    wait: Waits
    since: float | None = None
    """Event-loop time."""


class VolumeSource(HidesFields, Struct, frozen=True):
    """The source of a pod's volume, according to its PV or the pod itself."""

    kind: str
    """The field: ``csi``, ``local``, ``nfs``, …"""
    source: Hidden[Mapping[str, Any]]
    spec_name: str
    """PV name for a claim, else the pod's name for the volume."""
    pod_uid: str
    mode: Mode
    inline: bool
    """Inline in the pod's spec: no claim, no PV."""


class VolumeTraits(Struct, frozen=True):
    """Properties of a volume that its plugin determines (table sc1)."""

    unique_name: str
    attachable: bool
    """A controller must attach it: volumesInUse, volumesAttached."""
    device_mountable: bool
    """It is staged once for the node before it is published to pods."""


class VolumeSpec(HidesFields, Struct, frozen=True):
    """One volume of one pod, resolved."""

    plugin: str
    """The name of the plugin, for example ``kubernetes.io/csi``."""
    kind: str
    """The field of its source: ``csi``, ``local``, …"""
    pod_volume: str
    """Its name in the pod's spec.volumes."""
    spec_name: str
    """PV name for a claim, else ``pod_volume``."""
    unique_name: str
    source: Hidden[Mapping[str, Any]]
    """The PV's or the pod's source object; must not be changed."""
    mode: Mode
    read_only: bool
    """From the pod's claim source (or inline source), never from the PV or a mount."""
    access_modes: tuple[str, ...] = ()
    """From the PV."""
    mount_options: tuple[str, ...] = ()
    attachable: bool = False
    device_mountable: bool = False
    inline: bool = False
    migrated: bool = False
    """Written as an in-tree kind and translated for its CSI driver."""
    selinux_context: str | None = None
    """Mount it with this SELinux context; None: the runtime relabels it, where it can."""
    pv: Hidden[Mapping[str, Any] | None] = None
    claim: Hidden[Mapping[str, Any] | None] = None
    """The PersistentVolumeClaim."""

    @property
    def driver(self) -> str:
        """The CSI driver; empty for other kinds."""
        return str(self.source.get("driver") or "") if self.kind == "csi" else ""

    @property
    def handle(self) -> str:
        """The volume handle of a CSI PV; empty for other kinds and inline volumes."""
        return str(self.source.get("volumeHandle") or "") if self.kind == "csi" else ""

    @property
    def export(self) -> str:
        """``server:path`` of an NFS volume, as mount.nfs expects it; empty for other kinds."""
        if self.kind != "nfs":
            return ""
        server, path = str(self.source.get("server")), str(self.source.get("path"))
        bare = server.removeprefix("[").removesuffix("]")
        return f"[{bare}]:{path}" if ":" in bare else f"{server}:{path}"


AttachmentMetadata = Mapping[str, str] | None
"""``attachmentMetadata`` of a VolumeAttachment; None: no controller has attached the volume."""


class Describes(Protocol):
    """The part of a plugin that describes volumes, from memory."""

    @property
    def name(self) -> str:
        """The name of the plugin, for example ``kubernetes.io/csi``."""
        ...

    @property
    def kinds(self) -> frozenset[str]:
        """The source fields of PVs and pods that it handles, for example ``csi``."""
        ...

    def traits(self, source: VolumeSource) -> VolumeTraits | Waits:
        """Names and needs of a volume; or why they are unknown."""
        ...
