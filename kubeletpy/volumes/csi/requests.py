"""Builds the requests of the Node service from the data of a volume.

Pure. Imports the CSI messages: load it with the first driver. Source:
docs/reference/behaviour-storage.md, sk; docs/reference/csi-v1.json.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.structs import Hidden, HidesFields, Struct, field
from kubeletpy.remote.generated import csi_pb2 as csi

AccessMode = csi.VolumeCapability.AccessMode
_MULTI_NODE = {
    "ReadOnlyMany": AccessMode.MULTI_NODE_READER_ONLY,
    "ReadWriteMany": AccessMode.MULTI_NODE_MULTI_WRITER,
}
_SINGLE_NODE = {
    "ReadWriteOnce": AccessMode.SINGLE_NODE_MULTI_WRITER,
    "ReadWriteOncePod": AccessMode.SINGLE_NODE_SINGLE_WRITER,
}
"""For drivers that distinguish one writer from several on a node; others have a single mode."""


class VolumeAccess(Struct, frozen=True):
    """How a volume is used.

    Attributes:
        mode: Kubernetes' name of the access mode; inline volumes have ``ReadWriteOnce``.
        block: as a device; then the rest is empty.
        group: the pod's fsGroup, for drivers that apply it themselves.
    """

    mode: str = "ReadWriteOnce"
    block: bool = False
    fs_type: str = ""
    flags: tuple[str, ...] = ()
    group: int | None = None


def access_mode(name: str, *, multi_writer: bool) -> csi.VolumeCapability.AccessMode.Mode:
    """The CSI access mode.

    ``multi_writer``: the driver has SINGLE_NODE_MULTI_WRITER. Raises ValueError for an unknown
    mode.
    """
    if name in _MULTI_NODE:
        return _MULTI_NODE[name]
    if name not in _SINGLE_NODE:
        raise ValueError(f"access mode {name!r} is unknown")
    return _SINGLE_NODE[name] if multi_writer else AccessMode.SINGLE_NODE_WRITER


def capability(access: VolumeAccess, *, multi_writer: bool) -> csi.VolumeCapability:
    """The volume capability of a request. Raises ValueError."""
    mode = AccessMode(mode=access_mode(access.mode, multi_writer=multi_writer))
    if access.block:
        return csi.VolumeCapability(access_mode=mode, block=csi.VolumeCapability.BlockVolume())
    mount = csi.VolumeCapability.MountVolume(
        fs_type=access.fs_type,
        mount_flags=access.flags,
        volume_mount_group="" if access.group is None else str(access.group),
    )
    return csi.VolumeCapability(access_mode=mode, mount=mount)


class CsiVolume(HidesFields, Struct, frozen=True):
    """The volume data of stage and publish requests.

    Attributes:
        publish_context: the VolumeAttachment's attachmentMetadata.
        context: the attributes; for publish, also pod info and tokens.
        migrated: it is written as an in-tree kind (for metrics only).
    """

    handle: str
    access: VolumeAccess
    publish_context: Hidden[Mapping[str, str]] = field(default_factory=dict)
    context: Hidden[Mapping[str, str]] = field(default_factory=dict)
    secrets: Hidden[Mapping[str, str]] = field(default_factory=dict)
    migrated: bool = False


def stage(volume: CsiVolume, staging: str, *, multi_writer: bool) -> csi.NodeStageVolumeRequest:
    """NodeStageVolume. Raises ValueError."""
    return csi.NodeStageVolumeRequest(
        volume_id=volume.handle,
        publish_context=volume.publish_context,
        staging_target_path=staging,
        volume_capability=capability(volume.access, multi_writer=multi_writer),
        secrets=volume.secrets,
        volume_context=volume.context,
    )


def publish(
    volume: CsiVolume, staging: str, target: str, *, read_only: bool, multi_writer: bool
) -> csi.NodePublishVolumeRequest:
    """NodePublishVolume; ``staging`` is empty if the volume is not staged. Raises ValueError."""
    return csi.NodePublishVolumeRequest(
        volume_id=volume.handle,
        publish_context=volume.publish_context,
        staging_target_path=staging,
        target_path=target,
        volume_capability=capability(volume.access, multi_writer=multi_writer),
        readonly=read_only,
        secrets=volume.secrets,
        volume_context=volume.context,
    )


def expand(
    volume: CsiVolume, path: str, staging: str, size: int, *, multi_writer: bool
) -> csi.NodeExpandVolumeRequest:
    """NodeExpandVolume to ``size`` bytes. Raises ValueError."""
    return csi.NodeExpandVolumeRequest(
        volume_id=volume.handle,
        volume_path=path,
        capacity_range=csi.CapacityRange(required_bytes=size),
        staging_target_path=staging,
        volume_capability=capability(volume.access, multi_writer=multi_writer),
        secrets=volume.secrets,
    )
