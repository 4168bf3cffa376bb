"""A claim-backed volume as it is on this node, and what a failure says of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kubeletpy.volumes.claims.model import Mode


class Outcome(StrEnum):
    """What a failure says of the volume (table sg)."""

    FINAL = "final"
    """It was not done."""
    UNCERTAIN = "uncertain"
    """It may have been done."""
    TRANSIENT = "transient"
    """It was not even tried; what was known of the volume still holds."""


@dataclass(frozen=True, slots=True)
class Published:
    """A volume is there for a pod."""

    path: str
    """What containers mount, or for a block volume the path the runtime makes a device of."""
    device: str | None = None
    """The node's device, when there is one."""
    selinux_relabel: bool = False
    give_to_group: bool = False
    """The agent is to give the files to the pod's fsGroup: the plugin has not and will not."""
    shared_group: int | None = None
    """The group that the files have, when they can't be given to another: more pods have them."""
    map_directory: str = ""
    """Where the node keeps the device of a block volume for its pods; empty: nowhere."""


@dataclass(frozen=True, slots=True)
class PublishedOnDisk:
    """A volume of one pod as it is, or may be, on this node: enough to take it down."""

    plugin: str
    unique_name: str
    pod_uid: str
    spec_name: str
    path: str
    """Where the pod has it (target path; block: the pod's link)."""
    mode: Mode = Mode.FILESYSTEM
    driver: str = ""
    handle: str = ""
    attachment_id: str = ""
    lifecycle: str = "Persistent"
    """Persistent or Ephemeral."""
    selinux_context: str = ""
    damaged: str = ""
    """Why less is known than should be (its file is torn or missing); empty: all is known."""


@dataclass(frozen=True, slots=True)
class StagedOnDisk:
    """A volume as it is, or may be, staged on this node: enough to take it down."""

    plugin: str
    unique_name: str
    path: str
    """The staging path (global mount)."""
    mode: Mode = Mode.FILESYSTEM
    driver: str = ""
    handle: str = ""
    spec_name: str = ""
    """PV name, where the layout has it (block volumes)."""
    selinux_context: str = ""
    damaged: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What an agent before this one has left of a plugin's volumes."""

    published: tuple[PublishedOnDisk, ...] = ()
    staged: tuple[StagedOnDisk, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Path -> why nothing could be made of it."""


@dataclass(frozen=True, slots=True)
class VolumeStats:
    """How full a volume is; None: its plugin does not say."""

    capacity_bytes: int | None = None
    used_bytes: int | None = None
    available_bytes: int | None = None
    inodes: int | None = None
    inodes_used: int | None = None
    inodes_free: int | None = None
    abnormal: bool | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class SetUp:
    """A volume that is there for a pod."""

    path: str
    read_only: bool
    selinux_relabel: bool
    block: bool
    group: int | None = None
    """A supplemental group that its PersistentVolume asks for."""


@dataclass(frozen=True, slots=True)
class MountedVolume:
    """A volume that a pod has."""

    uid: str
    name: str
    """In the pod's spec."""
    claim: tuple[str, str] | None
    """Namespace and name of its PersistentVolumeClaim."""
    source: str
    """Who measures it: the driver, ``statfs`` or ``block``."""
    left: PublishedOnDisk


@dataclass(frozen=True, slots=True)
class MeasuredVolume:
    """A volume, and what was last found of it."""

    volume: MountedVolume
    stats: VolumeStats
    at: float
    """Unix seconds."""
