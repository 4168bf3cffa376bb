"""The state of a claim-backed volume on this node, and what a failure implies for it. Pure."""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.base.structs import Struct
from kubeletpy.volumes.claims.model import Mode


class FailureOutcome(StrEnum):
    """The consequence of a failure for the volume (table sg)."""

    FINAL = "final"
    """It was not done."""
    UNCERTAIN = "uncertain"
    """It may have been done."""
    TRANSIENT = "transient"
    """It was not even attempted; what was known of the volume still holds."""


class Published(Struct, frozen=True):
    """A volume that is ready for a pod."""

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
    """A volume that is ready for a pod."""

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
