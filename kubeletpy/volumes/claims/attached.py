"""Lists the volumes that the node reports as in use; checks if a volume is attached. Pure.

A volume leaves ``volumesInUse`` only when nothing of it is left on this node: the controller
detaches unlisted volumes even if they are mounted. Source: docs/reference/behaviour-storage.md,
sc3, se2, se4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from kubeletpy.base.structs import Struct, field
from kubeletpy.volumes.claims.model import VolumeSpec, WaitCause, Waits
from kubeletpy.volumes.claims.resolve import Read, UnreadObject

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
    """Read a node's status."""
    return NodeAttachments(
        frozenset(status.get("volumesInUse") or ()),
        {
            str(entry.get("name")): str(entry.get("devicePath") or "")
            for entry in status.get("volumesAttached") or ()
        },
    )


def volumes_in_use(wanted: Iterable[VolumeSpec], there: Iterable[str]) -> list[str]:
    """``volumesInUse``: attachable volumes that pods need, and those with something left here.

    ``there``: unique names of the latter.
    """
    return sorted({spec.unique_name for spec in wanted if spec.attachable} | set(there))


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
    controller.
    Source: docs/reference/behaviour-storage.md, se3.
    """
    if not spec.attachable or not spec.driver:
        return Attached()
    why = (
        f'AttachVolume.Attach failed for volume "{spec.spec_name}" : attaching volumes from the '
        "kubelet is not supported: set enableControllerAttachDetach to true"
    )
    return Waits(WaitCause.INVALID, f'csidriver "{spec.driver}"', why)


def not_in_use_yet(about: str) -> Waits:
    """The controller would consider a volume free to detach."""
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
