"""Volumes of pods as the API shows them: resolved through their claims, attached, in use.

Pure. Objects are passed in as they were read; an object that could not be read implies nothing for
the volume. Source: docs/reference/behaviour-storage.md, sb2, sc, se2, se3, se4, sf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kubeletpy.base.structs import Hidden, HidesFields, Struct, field, replace
from kubeletpy.pods.pod import Pod, matches
from kubeletpy.volumes.claims.model import (
    Describes,
    Mode,
    VolumeSource,
    VolumeSpec,
    WaitCause,
    Waits,
)

CLOUD_KINDS = frozenset(
    {
        "awsElasticBlockStore",
        "azureDisk",
        "azureFile",
        "cinder",
        "gcePersistentDisk",
        "portworxVolume",
        "vsphereVolume",
    }
)
"""In-tree kinds that became CSI drivers (table sc2)."""
PVC_PROTECTION = "kubernetes.io/pvc-protection"
_NOT_SOURCES = frozenset({"capacity", "claimRef", "nodeAffinity"})
"""Objects in a PV's spec that are not sources."""


class ClaimVolume(HidesFields, Struct, frozen=True):
    """A volume of a pod's spec that the agent does not make itself."""

    name: str
    kind: str
    """The field of its source: persistentVolumeClaim, ephemeral, csi, nfs, …"""
    source: Hidden[Mapping[str, Any]]
    mounted: bool
    """A container names it in volumeMounts."""
    mapped: bool
    """A container names it in volumeDevices."""


class UnreadObject(Struct, frozen=True):
    """An object that could not be read."""

    why: str


Read = Mapping[str, Any] | UnreadObject | None
"""An object; None: the API has none."""


def claim_name(pod: Pod, volume: ClaimVolume) -> str | None:
    """The name of the PersistentVolumeClaim behind a volume; None: it has no claim."""
    if volume.kind == "ephemeral":
        return f"{pod.name}-{volume.name}"
    if volume.kind == "persistentVolumeClaim":
        return str(volume.source.get("claimName") or "")
    return None


def pv_name(claim: Read) -> str | None:
    """The name of the PersistentVolume that a claim is bound to; None: there is nothing to read."""
    if claim is None or isinstance(claim, UnreadObject) or _phase(claim) != "Bound":
        return None
    return (claim.get("spec") or {}).get("volumeName") or None


def resolve(
    pod: Pod,
    volume: ClaimVolume,
    plugins: Iterable[Describes],
    *,
    claim: Read = None,
    pv: Read = None,
) -> VolumeSpec | Waits:
    """Resolve a volume, or return why it is not available yet (checks of table sb2, in order)."""
    name = claim_name(pod, volume)
    if name is None:
        return _inline(pod, volume, plugins)
    problem = _claim_problem(pod, volume, name, claim)
    if problem is not None:
        return problem
    assert claim is not None, "it would be a problem"
    assert not isinstance(claim, UnreadObject), "it would be a problem"
    desired = str(claim["spec"]["volumeName"])
    problem = _pv_problem(pod, name, claim, desired, pv)
    if problem is not None:
        return problem
    assert pv is not None, "it would be a problem"
    assert not isinstance(pv, UnreadObject), "it would be a problem"
    return _bound(pod, volume, plugins, claim, pv)


def _inline(pod: Pod, volume: ClaimVolume, plugins: Iterable[Describes]) -> VolumeSpec | Waits:
    if volume.mapped:
        subject = f'volume "{volume.name}" of pod "{pod.key}"'
        message = f"{volume.kind} volumes have volume mode Filesystem: volumeDevices needs a claim"
        return Waits(WaitCause.MODE_DIFFERS, subject, message)
    if volume.kind in CLOUD_KINDS:
        return _cloud(pod, volume, plugins)
    source = VolumeSource(
        volume.kind, volume.source, volume.name, pod.uid, Mode.FILESYSTEM, inline=True
    )
    options = (volume.source.get("mountOptions") or ()) if volume.kind != "csi" else ()
    return _described(pod, volume, plugins, source, options=options)


def _cloud(pod: Pod, volume: ClaimVolume, plugins: Iterable[Describes]) -> VolumeSpec | Waits:
    """An inline disk of a pod: its driver treats it as a PersistentVolume."""
    from kubeletpy.volumes.claims import translated

    try:
        pv = translated.translated_inline(volume.kind, volume.source, volume.name, pod.namespace)
    except translated.Untranslatable as error:
        return Waits(WaitCause.INVALID, f'volume "{volume.name}" of pod "{pod.key}"', str(error))
    csi = pv["spec"]["csi"]
    source = VolumeSource(
        "csi", csi, pv["metadata"]["name"], pod.uid, Mode.FILESYSTEM, inline=False
    )
    got = _described(pod, volume, plugins, source, options=(), pv=pv)
    return got if isinstance(got, Waits) else replace(got, read_only=csi["readOnly"], migrated=True)


def _claim_problem(pod: Pod, volume: ClaimVolume, name: str, claim: Read) -> Waits | None:
    def waits(cause: WaitCause, why: str) -> Waits:
        subject = f'persistentvolumeclaim "{pod.namespace}/{name}"'
        return Waits(cause, subject, f"error processing PVC {pod.namespace}/{name}: {why}")

    if isinstance(claim, UnreadObject):
        return waits(WaitCause.UNREAD, f"failed to fetch PVC from API server: {claim.why}")
    if claim is None:
        missing = f'persistentvolumeclaim "{name}" not found'
        if volume.kind == "ephemeral":
            missing += "; the control plane makes it for the pod"
        return waits(WaitCause.CLAIM_MISSING, missing)
    metadata = claim.get("metadata") or {}
    if metadata.get("deletionTimestamp") and PVC_PROTECTION not in (
        metadata.get("finalizers") or ()
    ):
        return waits(WaitCause.CLAIM_DELETING, "PVC is being deleted")
    if _phase(claim) == "Lost":
        lost = (claim.get("spec") or {}).get("volumeName")
        return waits(
            WaitCause.CLAIM_LOST, f'PVC is lost: its volume "{lost}" does not exist any more'
        )
    if _phase(claim) != "Bound" or not (claim.get("spec") or {}).get("volumeName"):
        return waits(WaitCause.CLAIM_UNBOUND, "PVC is not bound")
    if volume.kind == "ephemeral" and not _is_of_pod(metadata, pod):
        why = f"PVC was not created for pod {pod.key}: the pod is not its controller"
        return waits(WaitCause.NOT_OWNED, why)
    return None


def _is_of_pod(claim_metadata: Mapping[str, Any], pod: Pod) -> bool:
    return any(
        owner.get("controller") and owner.get("uid") == pod.uid
        for owner in claim_metadata.get("ownerReferences") or ()
    )


def _pv_problem(
    pod: Pod, claim_name: str, claim: Mapping[str, Any], name: str, pv: Read
) -> Waits | None:
    subject = f'persistentvolume "{name}"'
    prefix = f"error processing PVC {pod.namespace}/{claim_name}: "
    if isinstance(pv, UnreadObject):
        why = f"failed to fetch PV {name} from API server: {pv.why}"
        return Waits(WaitCause.UNREAD, subject, prefix + why)
    if pv is None:
        why = f'persistentvolume "{name}" not found'
        return Waits(WaitCause.PV_MISSING, subject, prefix + why)
    reference = (pv.get("spec") or {}).get("claimRef")
    if not reference:
        return Waits(WaitCause.PV_OF_ANOTHER, subject, f"{prefix}PV {name} is bound to no claim")
    if reference.get("uid") != (claim.get("metadata") or {}).get("uid"):
        other = f"{reference.get('namespace')}/{reference.get('name')}"
        why = f"PV {name} is bound to another claim ({other}, uid {reference.get('uid')})"
        return Waits(WaitCause.PV_OF_ANOTHER, subject, prefix + why)
    return None


def _bound(
    pod: Pod,
    volume: ClaimVolume,
    plugins: Iterable[Describes],
    claim: Mapping[str, Any],
    pv: Mapping[str, Any],
) -> VolumeSpec | Waits:
    name = pv["metadata"]["name"]
    subject = f'persistentvolume "{name}"'
    original = pv
    if not CLOUD_KINDS.isdisjoint(pv["spec"]):
        from kubeletpy.volumes.claims import translated

        try:
            pv = translated.translated(original)
        except translated.Untranslatable as error:
            return Waits(WaitCause.INVALID, subject, str(error))
    spec = pv["spec"]
    mode = spec.get("volumeMode")
    if mode not in ("Filesystem", "Block"):
        found = "no volumeMode" if mode is None else f"volumeMode {mode!r}"
        return Waits(WaitCause.MODE_DIFFERS, subject, f"PV {name} has {found}")
    if mode == "Block" and volume.mounted:
        why = f"volume {volume.name} has volumeMode Block, but is specified in volumeMounts"
        return Waits(WaitCause.MODE_DIFFERS, subject, why)
    if mode == "Filesystem" and volume.mapped:
        why = f"volume {volume.name} has volumeMode Filesystem, but is specified in volumeDevices"
        return Waits(WaitCause.MODE_DIFFERS, subject, why)
    kind = next(
        (
            key
            for key, value in spec.items()
            if isinstance(value, Mapping) and key not in _NOT_SOURCES
        ),
        "",
    )
    source = VolumeSource(kind, spec.get(kind) or {}, name, pod.uid, Mode(mode), inline=False)
    got = _described(
        pod, volume, plugins, source, options=spec.get("mountOptions") or (), pv=pv, claim=claim
    )
    return got if isinstance(got, Waits) else replace(got, migrated=pv is not original)


def _described(
    pod: Pod,
    volume: ClaimVolume,
    plugins: Iterable[Describes],
    source: VolumeSource,
    *,
    options: Iterable[str],
    pv: Mapping[str, Any] | None = None,
    claim: Mapping[str, Any] | None = None,
) -> VolumeSpec | Waits:
    subject = f'volume "{volume.name}" of pod "{pod.key}"'
    if claim is not None:
        subject = f'persistentvolume "{source.spec_name}"'
    able = [plugin for plugin in plugins if source.kind in plugin.kinds]
    if not able:
        return Waits(WaitCause.NO_PLUGIN, subject, _no_plugin(source.kind))
    traits = able[0].traits(source)
    if isinstance(traits, Waits):  # an invalid source is fixed in the PersistentVolume or the pod
        return replace(traits, object=subject) if traits.cause is WaitCause.INVALID else traits
    return VolumeSpec(
        plugin=able[0].name,
        kind=source.kind,
        pod_volume=volume.name,
        spec_name=source.spec_name,
        unique_name=traits.unique_name,
        source=source.source,
        mode=source.mode,
        read_only=bool(volume.source.get("readOnly")),
        access_modes=tuple((pv or {}).get("spec", {}).get("accessModes") or ()),
        mount_options=tuple(options),
        attachable=traits.attachable,
        device_mountable=traits.device_mountable,
        inline=source.inline,
        pv=pv,
        claim=claim,
    )


def _no_plugin(kind: str) -> str:
    if not kind:
        return "no volume plugin matched: the volume has no source"
    return f"no volume plugin matched: kubeletpy has no {kind} volumes"


def _phase(claim: Mapping[str, Any]) -> str:
    return (claim.get("status") or {}).get("phase") or ""


# Whether volumes are attached, and which the node reports as in use (tables sc3, se2, se4).

RESOURCE_EXHAUSTED = 8
"""The gRPC code in the ``errorCode`` of an attachError."""


def attachment_name(handle: str, driver: str, node: str) -> str:
    """The VolumeAttachment name of a CSI volume on a node."""
    return "csi-" + hashlib.sha256(f"{handle}{driver}{node}".encode()).hexdigest()


class NodeAttachments(Struct, frozen=True):
    """The node's status as the API shows it."""

    in_use: frozenset[str] = frozenset()
    """``volumesInUse``: the volumes that the API shows as in use by us."""
    attached: Mapping[str, str] = field(default_factory=dict)
    """``volumesAttached``: name -> device path."""


def attachments_of(status: Mapping[str, Any]) -> NodeAttachments:
    """The volumes in use and attached according to a node's status."""
    return NodeAttachments(
        frozenset(status.get("volumesInUse") or ()),
        {
            str(entry.get("name")): str(entry.get("devicePath") or "")
            for entry in status.get("volumesAttached") or ()
        },
    )


def volumes_in_use(desired: Iterable[VolumeSpec], there: Iterable[str]) -> list[str]:
    """``volumesInUse``: attachable volumes that pods need, and those with something left here.

    The controller detaches unlisted volumes even if they are mounted. ``there``: unique names of
    those with something left.
    """
    return sorted({spec.unique_name for spec in desired if spec.attachable} | set(there))


class Attached(Struct, frozen=True):
    """A volume is attached, or needs no attaching."""

    metadata: Mapping[str, str] | None = None
    """``attachmentMetadata`` of its VolumeAttachment; None: it has none."""


def attached(
    spec: VolumeSpec, node: NodeAttachments, node_name: str, attachment: Read
) -> Attached | Waits:
    """Whether the controller has attached a volume.

    Args:
        node: what the API shows of this node.
        attachment: the VolumeAttachment, for CSI volumes.
    """
    if not spec.attachable:
        return Attached()
    about = f'node "{node_name}"'
    if spec.unique_name not in node.in_use:
        return not_in_use_yet(about)
    if not spec.driver:
        if spec.unique_name in node.attached:
            return Attached()
        why = "the attach controller has not attached the volume (status.volumesAttached)"
        return Waits(WaitCause.NOT_ATTACHED, about, why)
    return _by_object(spec, node, node_name, attachment)


def attached_by_node(spec: VolumeSpec) -> Attached | Waits:
    """Whether a volume is usable without a controller (``enableControllerAttachDetach: false``).

    The node itself can attach a volume by a login or a scan; CSI drivers attach only for a
    controller (table se3).
    """
    if not spec.attachable or not spec.driver:
        return Attached()
    why = (
        f'AttachVolume.Attach failed for volume "{spec.spec_name}" : attaching volumes from the '
        "kubelet is not supported: set enableControllerAttachDetach to true"
    )
    return Waits(WaitCause.INVALID, f'csidriver "{spec.driver}"', why)


def not_in_use_yet(about: str) -> Waits:
    """The wait for the API to show a volume in use: the controller might still detach it."""
    why = "the API does not show yet that this node uses the volume (status.volumesInUse)"
    return Waits(WaitCause.NOT_IN_USE_YET, about, why)


def _by_object(
    spec: VolumeSpec, node: NodeAttachments, node_name: str, attachment: Read
) -> Attached | Waits:
    name = attachment_name(spec.handle, spec.driver, node_name)
    about = f'volumeattachment "{name}"'
    call = f"ControllerPublishVolume of driver {spec.driver}"
    if isinstance(attachment, UnreadObject):
        if spec.unique_name in node.attached:  # it is read again, and may exist by then
            why = f"could not be read: {attachment.why}"
            return Waits(WaitCause.NOT_ATTACHED, about, why, call)
        # the Node authorizer rejects a missing one as not belonging to this node
        why = f"the node's status.volumesAttached does not list the volume yet ({attachment.why})"
        return Waits(WaitCause.NOT_ATTACHED, about, why, call)
    if attachment is None:
        why = f"the attach controller has made no VolumeAttachment for volume {spec.handle} yet"
        return Waits(WaitCause.NOT_ATTACHED, about, why, call)
    if (attachment.get("metadata") or {}).get("deletionTimestamp"):
        return Waits(WaitCause.NOT_ATTACHED, about, "volume attachment is being deleted", call)
    status = attachment.get("status") or {}
    if status.get("attached"):
        if spec.unique_name not in node.attached:
            # before the controller detaches a volume, it removes it from this list
            why = "attached, but the node's status.volumesAttached does not list it yet"
            return Waits(WaitCause.NOT_ATTACHED, f'node "{node_name}"', why)
        return Attached(status.get("attachmentMetadata") or {})
    if error := status.get("attachError"):
        message = str(error.get("message") or "the driver gave no reason")
        limit = error.get("errorCode") == RESOURCE_EXHAUSTED
        cause = WaitCause.ATTACH_LIMIT if limit else WaitCause.ATTACH_FAILED
        return Waits(cause, about, message, call)
    return Waits(WaitCause.NOT_ATTACHED, about, "volume is not attached yet", call)


# The node as volume operations see it.


class NodeObservation(Struct, frozen=True):
    """The state of the API at one instant, for some volumes."""

    in_use: frozenset[str] | None = None
    """``volumesInUse`` of this node; None: the API has not shown the node yet."""
    attachments: Mapping[str, Attached | Waits] = field(default_factory=dict)
    """Unique name -> whether the volume is attached."""
    blocked: Mapping[str, Waits] = field(default_factory=dict)
    """Unique name -> why the volume can't be used on this node (table sf, 2)."""


def observe_node(
    node: Mapping[str, Any],
    specs: Collection[VolumeSpec],
    *,
    node_name: str,
    controller_attaches: bool,
    attachment: Callable[[VolumeSpec], Read],
) -> NodeObservation:
    """Derive from a Node object and VolumeAttachments which volumes are attached or blocked.

    Args:
        node: the Node object as the API shows it; empty: not yet.
        controller_attaches: whether a controller attaches volumes to this node.
        attachment: the VolumeAttachment of a volume, as it was last read.
    """
    metadata, status = node.get("metadata") or {}, attachments_of(node.get("status") or {})
    labels = metadata.get("labels") or {}
    attachments: dict[str, Attached | Waits] = {}
    blocked: dict[str, Waits] = {}
    for spec in specs:
        if not spec.attachable:
            attachments[spec.unique_name] = Attached()
        elif controller_attaches:
            attachments[spec.unique_name] = attached(spec, status, node_name, attachment(spec))
        else:
            attachments[spec.unique_name] = attached_by_node(spec)
        wait = affinity_conflict(spec, labels, node_name)
        if wait is not None:
            blocked[spec.unique_name] = wait
    reported = bool(metadata.get("resourceVersion"))
    return NodeObservation(status.in_use if reported else None, attachments, blocked)


def affinity_conflict(spec: VolumeSpec, labels: Mapping[str, str], node_name: str) -> Waits | None:
    """Why a PersistentVolume is for other nodes; None: it may be used here."""
    affinity = ((spec.pv or {}).get("spec") or {}).get("nodeAffinity") or {}
    required = affinity.get("required")
    if required is None or matches(required, labels, node_name):
        return None
    return Waits(
        WaitCause.NODE_AFFINITY,
        f'persistentvolume "{spec.spec_name}"',
        f'MountVolume.NodeAffinity check failed for volume "{spec.spec_name}" : the labels of '
        f'node "{node_name}" match no term of the volume\'s nodeAffinity',
    )
