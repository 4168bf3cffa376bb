"""The API's view of this node, as far as volume operations depend on it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import matches
from kubeletpy.volumes.claims.attached import Attached, attached, attached_by_node, attachments_of
from kubeletpy.volumes.claims.model import VolumeSpec, WaitCause, Waits
from kubeletpy.volumes.claims.resolve import Read


class NodeObservation(Struct, frozen=True):
    """The state of the API at one instant, for some volumes."""

    in_use: frozenset[str] | None = None
    """``volumesInUse`` of this node; None: the API has not shown the node yet."""
    attachments: Mapping[str, Attached | Waits] = field(default_factory=dict)
    """Unique name -> whether the volume is attached."""
    blocked: Mapping[str, Waits] = field(default_factory=dict)
    """Unique name -> why the volume can't be used on this node (table sf, 2)."""


Observe = Callable[[Collection[VolumeSpec]], NodeObservation]
"""Observes the node for these volumes."""


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
    shown = bool(metadata.get("resourceVersion"))
    return NodeObservation(status.in_use if shown else None, attachments, blocked)


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
