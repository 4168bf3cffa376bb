"""What a kind of claim-backed volume can do: CSI and the in-tree kinds implement it.

A plugin acts and tells how it went; when what is done is decided by
:mod:`kubeletpy.volumes.operations`, which never runs two operations on one volume at once. Every
operation is idempotent: it may be repeated after a failure or a kill at any instant. What ends a
works from what is on disk, without the API. Source: docs/reference/behaviour-storage.md, sf, sg,
sh, si, sn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.model import (
    Mode,
    VolumeSource,
    VolumeSpec,
    VolumeTraits,
    Waits,
)


@dataclass(frozen=True, slots=True)
class PodUse:
    """The pod, as far as a plugin may know it."""

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
    """No other pod of this node has the volume, or may have it."""


class Outcome(StrEnum):
    """What a failure says of the volume (table sg)."""

    FINAL = "final"
    """It was not done."""
    UNCERTAIN = "uncertain"
    """It may have been done."""
    TRANSIENT = "transient"
    """It was not even tried; what was known of the volume still holds."""


class OperationFailed(Exception):
    """An operation on a volume failed.

    Attributes:
        outcome: what that says of the volume.
        message: for people, without secrets.
        step: the tabled word for events (table sf), for example ``MountVolume.MountDevice``.
        call: what failed, for example ``NodeStageVolume of driver x``.
    """

    def __init__(self, outcome: Outcome, message: str, *, step: str = "", call: str = "") -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message
        self.step = step
        self.call = call


class ExpansionProblem(StrEnum):
    """Why a volume was not expanded on this node (table so3)."""

    UNSUPPORTED = "unsupported"
    """The driver does not expand on nodes."""
    IN_USE = "in use"
    """Not while it is in use (FailedPrecondition): not tried again until it is set up anew."""
    INFEASIBLE = "infeasible"
    """Never with this size (InvalidArgument, OutOfRange, NotFound)."""
    OTHER = "other"


class ExpansionFailed(OperationFailed):
    """A volume could not be expanded."""

    def __init__(self, problem: ExpansionProblem, message: str, *, call: str = "") -> None:
        super().__init__(Outcome.UNCERTAIN, message, call=call)
        self.problem = problem


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


class VolumePlugin(Protocol):
    """One kind of volume. The synchronous questions answer from memory and never block."""

    @property
    def name(self) -> str:
        """``kubernetes.io/csi``, …"""
        ...

    @property
    def kinds(self) -> frozenset[str]:
        """The source fields of PVs and pods that it is for: ``csi``, ``local``, …"""
        ...

    def traits(self, source: VolumeSource) -> VolumeTraits | Waits:
        """Names and needs of a volume; or why nothing can be said (the reason is told again when
        ``on_change`` was called)."""
        ...

    def ready(self, spec: VolumeSpec) -> Waits | None:
        """What an operation on this volume would only fail for now (its driver is not there)."""
        ...

    def metric_name(self, spec: VolumeSpec | PublishedOnDisk | StagedOnDisk) -> str:
        """What metrics call it: ``kubernetes.io/csi:{driver}``, …"""
        ...

    def wants_selinux_mount(self, spec: VolumeSpec) -> bool:
        """Whether it can be mounted with an SELinux context (table sp3)."""
        ...

    def republishes(self, spec: VolumeSpec) -> bool:
        """Whether it wants to be published again now and then (requiresRepublish)."""
        ...

    def published(self, spec: VolumeSpec, pod_uid: str) -> PublishedOnDisk:
        """Where and how ``publish`` puts it for a pod; pure."""
        ...

    def staged(self, spec: VolumeSpec) -> StagedOnDisk:
        """Where and how ``stage`` puts it; pure."""
        ...

    async def stage(
        self, spec: VolumeSpec, attachment: Mapping[str, str] | None, use: PodUse
    ) -> None:
        """Make a volume ready for all pods of the node (NodeStageVolume, a device mount).

        ``attachment`` is the VolumeAttachment's attachmentMetadata; None: it is not attached by a
        controller. Raises OperationFailed.
        """
        ...

    async def publish(
        self,
        spec: VolumeSpec,
        attachment: Mapping[str, str] | None,
        use: PodUse,
        *,
        remount: bool,
    ) -> Published:
        """Give a volume to one pod. ``remount``: it has it already, maybe with running containers,
        and must keep it whatever happens. Raises OperationFailed."""
        ...

    async def unpublish(self, left: PublishedOnDisk) -> None:
        """Take a volume from one pod. Done is done: nothing mounted, no file left. Raises
        OperationFailed."""
        ...

    async def unstage(self, left: StagedOnDisk) -> None:
        """Undo ``stage``. Raises OperationFailed."""
        ...

    async def expand(self, spec: VolumeSpec, size: int, use: PodUse, *, at_mount: bool) -> int:
        """Grow the volume on this node to ``size`` bytes; the size it has then. Raises
        ExpansionFailed."""
        ...

    async def stats(self, left: PublishedOnDisk) -> VolumeStats | None:
        """How full it is; None: the plugin does not know. Raises OperationFailed."""
        ...

    def found(self) -> Found:
        """What is on disk of this plugin's volumes, staged leftovers too. Blocks: for a thread."""
        ...

    def on_change(self, tell: Callable[[str], None]) -> None:
        """Have ``tell(driver)`` called when what the plugin can do has changed: a driver came or
        went, its CSIDriver object changed. Empty: any."""
        ...
