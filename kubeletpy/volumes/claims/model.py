"""Claim-backed volumes as data.

Pure. A volume is resolved, waits for something, is on this node, is measured, or an operation on it
has failed: each has a type here. The rule for SELinux contexts stands at the end. Source:
docs/reference/behaviour-storage.md, sb2, sc, sf, sg, sh, si, sn, sp3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from kubeletpy.base.host.errors import Cause, CausedError
from kubeletpy.base.structs import Hidden, HidesFields, Struct
from kubeletpy.pods.pod import Pod


class Mode(StrEnum):
    """``volumeMode``: how containers get a volume."""

    FILESYSTEM = "Filesystem"
    BLOCK = "Block"


class WaitCause(StrEnum):
    """Why a volume is not available yet; the text is ``Waits.message``."""

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
    failure: Cause | None = None
    """Why the call failed, as data, where advice depends on it."""


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
    driver: str = ""
    """Its CSI driver; empty for other kinds, and while that is not known."""
    export: str = ""
    """``server:path`` of an NFS volume."""


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

    name: str
    """For example ``kubernetes.io/csi``."""
    kinds: frozenset[str]
    """The source fields of PVs and pods that it handles, for example ``csi``."""

    def traits(self, source: VolumeSource) -> VolumeTraits | Waits:
        """Names and needs of a volume; or why they are unknown."""


# The state of a volume on this node, and what a failure implies for it.


class FailureOutcome(StrEnum):
    """The consequence of a failure for the volume (table sg)."""

    FINAL = "final"
    """It was not done."""
    UNCERTAIN = "uncertain"
    """It may have been done."""
    TRANSIENT = "transient"
    """It was not even attempted; what was known of the volume still holds."""


class Published(Struct, frozen=True):
    """The result of publishing a volume to a pod."""

    path: str
    """The path that containers mount; for a block volume, the runtime makes a device from it."""
    selinux_relabel: bool = False
    give_to_group: bool = False
    """The agent must apply the pod's fsGroup: the plugin has not and will not."""
    shared_group: int | None = None
    """The group of the files if it can't change, because other pods have the volume."""
    map_directory: str = ""
    """Where the node keeps a block volume's device for its pods; empty: nowhere."""


class PublishedOnDisk(Struct, frozen=True):
    """A pod's volume as it is, or may be, on this node: enough to tear it down."""

    plugin: str
    unique_name: str
    pod_uid: str
    spec_name: str
    path: str
    """The pod's target path; block: the pod's link."""
    mode: Mode = Mode.FILESYSTEM
    driver: str = ""
    handle: str = ""
    lifecycle: str = "Persistent"
    """Persistent or Ephemeral."""
    selinux_context: str = ""
    damaged: str = ""
    """Why information is missing (its file is torn or missing); empty: it is complete."""


class StagedOnDisk(Struct, frozen=True):
    """A volume as it is, or may be, staged on this node: enough to tear it down."""

    plugin: str
    unique_name: str
    path: str
    """The staging path (global mount)."""
    mode: Mode = Mode.FILESYSTEM
    driver: str = ""
    handle: str = ""
    spec_name: str = ""
    """PV name, where the layout includes it (block volumes)."""
    selinux_context: str = ""
    damaged: str = ""


class Found(Struct, frozen=True):
    """A plugin's volumes left by a previous agent."""

    published: tuple[PublishedOnDisk, ...] = ()
    staged: tuple[StagedOnDisk, ...] = ()


class VolumeStats(Struct, frozen=True):
    """How full a volume is; None: its plugin does not report it."""

    capacity_bytes: int | None = None
    used_bytes: int | None = None
    available_bytes: int | None = None
    inodes: int | None = None
    inodes_used: int | None = None
    inodes_free: int | None = None
    abnormal: bool | None = None
    message: str = ""


class SetUp(Struct, frozen=True):
    """A volume of a pod that its containers can mount."""

    path: str
    spec_name: str
    """The PersistentVolume's name."""
    read_only: bool
    selinux_relabel: bool
    block: bool
    group: int | None = None
    """A supplemental group that its PersistentVolume requests."""


class MountedVolume(Struct, frozen=True):
    """A volume of a pod."""

    uid: str
    name: str
    """Its name in the pod's spec."""
    claim: tuple[str, str] | None
    """Namespace and name of its PersistentVolumeClaim."""
    source: str
    """The name of what measures it: the driver, ``statfs`` or ``block``."""
    left: PublishedOnDisk


class MeasuredVolume(Struct, frozen=True):
    """A volume with its last measurement."""

    volume: MountedVolume
    stats: VolumeStats
    at: float
    """Unix seconds."""


# How operations see a pod, and how they fail.


class PodUse(Struct, frozen=True):
    """The pod, as far as plugins may see it."""

    uid: str
    name: str
    namespace: str
    service_account: str
    fs_group: int | None
    fs_group_change_policy: str | None
    selinux_context: str | None
    """Mount the volume with this SELinux context; None: the runtime relabels."""
    pod: Pod
    alone: bool = True
    """No other pod of this node has, or may have, the volume."""


class VolumeError(CausedError):
    """A pod's volumes could not be set up; the message names the volume and what to do.

    Attributes:
        reported: events of the pod already report it.
        node_is_full: the node can't attach the pod's volumes: the pod must be rejected.
        cause: that of the first volume that has one.
    """

    def __init__(
        self,
        message: str,
        *,
        reported: bool = False,
        node_is_full: bool = False,
        cause: Cause | None = None,
    ) -> None:
        super().__init__(message, cause)
        self.reported = reported
        self.node_is_full = node_is_full


class OperationFailed(CausedError):
    """An operation on a volume failed.

    Attributes:
        outcome: what the failure implies for the volume.
        message: for people, without secrets.
        event_word: the prefix for events (table sf), for example ``MountVolume.MountDevice``.
        call: the call that failed, for example ``NodeStageVolume of driver x``.
    """

    def __init__(
        self, outcome: FailureOutcome, message: str, *, event_word: str = "", call: str = ""
    ) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message
        self.event_word = event_word
        self.call = call


def not_done(message: str, *, event_word: str = "", call: str = "") -> OperationFailed:
    """The error of an operation that had no effect."""
    return OperationFailed(FailureOutcome.FINAL, message, event_word=event_word, call=call)


def maybe_done(message: str, *, event_word: str = "", call: str = "") -> OperationFailed:
    """The error of an operation that may have had an effect."""
    return OperationFailed(FailureOutcome.UNCERTAIN, message, event_word=event_word, call=call)


def not_tried(message: str, *, call: str = "") -> OperationFailed:
    """The error of an operation that was not even attempted."""
    return OperationFailed(FailureOutcome.TRANSIENT, message, call=call)


class FilesystemMismatch(OperationFailed):
    """A disk could not be mounted: its file system is not the one that its volume specifies."""


class StillUnderWay(OperationFailed):
    """Not a failure: the caller has waited long enough."""

    def __init__(self, call: str) -> None:
        super().__init__(FailureOutcome.UNCERTAIN, f"still waiting for {call}", call=call)


class ExpansionProblem(StrEnum):
    """Why a volume was not expanded on this node (table so3)."""

    UNSUPPORTED = "unsupported"
    """The driver does not support expansion on nodes."""
    IN_USE = "in use"
    """Not while in use (FailedPrecondition): not retried until it has been set up again."""
    INFEASIBLE = "infeasible"
    """Never with this size (InvalidArgument, OutOfRange, NotFound)."""
    REFUSED = "refused"
    """The driver has tried and refuses: no part of the call is in progress any more."""
    OTHER = "other"


class ExpansionFailed(OperationFailed):
    """A volume could not be expanded."""

    def __init__(self, problem: ExpansionProblem, message: str, *, call: str = "") -> None:
        super().__init__(FailureOutcome.UNCERTAIN, message, call=call)
        self.problem = problem


# SELinux (table sp3): a mount option labels a volume at once; otherwise the runtime would relabel
# every file of it.

RECURSIVE = "Recursive"
SOLE_MODE = ("ReadWriteOncePod",)
"""The access modes of a volume that only one pod may use."""
_LABEL = re.compile(r"[A-Za-z0-9_.:,-]+")


class SELinux(Struct, frozen=True):
    """The settings for all volumes of a node."""

    file_label: str = ""
    """The default label of container files; empty: the kernel labels nothing."""
    all_modes: bool = False
    """The feature gate SELinuxMount: not only ReadWriteOncePod volumes."""


class SELinuxConflict(Struct, frozen=True):
    """Containers of one pod need a volume with different labels, but it can have only one."""

    labels: tuple[str, ...]


def mount_option(context: str | None) -> tuple[str, ...]:
    """The mount option of a context; None: there is none."""
    return (f'context="{context}"',) if context else ()


def mount_context(
    spec: VolumeSpec, pod: Pod, node: SELinux, *, supported: bool
) -> str | SELinuxConflict | None:
    """The context to mount a volume with; None: the runtime relabels it.

    ``supported``: its plugin can mount with a context.
    """
    if not node.file_label or spec.pv is None or spec.mode is Mode.BLOCK:
        return None
    if not supported or not (node.all_modes or spec.access_modes == SOLE_MODE):
        return None
    labels = sorted({_label(each, node.file_label) for each in _options(spec.pod_volume, pod)})
    if len(labels) > 1:
        return SELinuxConflict(tuple(labels))
    recursive = _context(pod.spec).get("seLinuxChangePolicy") == RECURSIVE
    return None if recursive or not labels else labels[0] or None


def _options(volume: str, pod: Pod) -> list[Mapping[str, Any]]:
    """The options of each container that mounts a volume, its own in preference to the pod's."""
    of_pod = _context(pod.spec).get("seLinuxOptions")
    found = []
    for _, container in pod.all_containers():
        options = _context(container).get("seLinuxOptions", of_pod)
        uses = any(mount["name"] == volume for mount in container.get("volumeMounts") or ())
        if uses and options is not None:
            found.append(options)
    return found


def _label(options: Mapping[str, Any], default: str) -> str:
    """The label of files that a process with these options may use.

    Empty: not known here, because the runtime picks the level, or refuses a text that is no label.
    In a mount's options such a text would be more options.
    """
    level = options.get("level")
    if not level:
        return ""
    user, role, kind, _ = default.split(":", 3)
    label = f"{options.get('user') or user}:{role}:{kind}:{level}"
    return label if _LABEL.fullmatch(label) else ""


def _context(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return found.get("securityContext") or {}
