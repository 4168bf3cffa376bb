"""Desired volumes, existing volumes and possible operations. Pure.

Source: docs/reference/behaviour-storage.md, sa1, sd1, sg.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from kubeletpy.base.host.errors import MachineFault
from kubeletpy.base.structs import Hidden, HidesFields, Struct, field
from kubeletpy.volumes.claims.attached import Attached
from kubeletpy.volumes.claims.model import Mode, VolumeSpec, Waits
from kubeletpy.volumes.claims.on_disk import Published, PublishedOnDisk, StagedOnDisk


class Presence(StrEnum):
    """How certain it is that something exists."""

    ABSENT = "absent"
    UNCERTAIN = "uncertain"
    """It may exist: it is made again while a pod needs it, and torn down when none does."""
    THERE = "there"


class OperationKind(StrEnum):
    """An operation on a volume."""

    STAGE = "stage"
    PUBLISH = "publish"
    REPUBLISH = "republish"
    EXPAND = "expand"
    UNPUBLISH = "unpublish"
    UNSTAGE = "unstage"


class _Names(NamedTuple):
    """The names of a kind of operation: of its call, and in metrics."""

    csi_call: str
    in_tree_call: str
    metric: str
    block_metric: str


_PUBLISH = _Names("NodePublishVolume", "mount", "volume_mount", "map_volume")
_NAMES = {
    OperationKind.STAGE: _Names("NodeStageVolume", "device mount", "volume_mount", "map_volume"),
    OperationKind.PUBLISH: _PUBLISH,
    OperationKind.REPUBLISH: _PUBLISH,
    OperationKind.EXPAND: _Names(
        "NodeExpandVolume", "file system resize", "volume_fs_resize", "volume_fs_resize"
    ),
    OperationKind.UNPUBLISH: _Names(
        "NodeUnpublishVolume", "unmount", "volume_unmount", "unmap_volume"
    ),
    OperationKind.UNSTAGE: _Names(
        "NodeUnstageVolume", "device unmount", "unmount_device", "unmap_device"
    ),
}

Expansion = tuple[int, int, str, str]
"""The inputs of an expansion: bytes of the PersistentVolume, bytes that the claim shows, and the
claim's ``allocatedResources`` and ``allocatedResourceStatuses`` for storage.
"""

Key = tuple[str, str]
"""The lock of an operation: unique name and pod uid; without a uid the whole volume."""


class PodDemand(Struct, frozen=True):
    """The volumes that one pod needs."""

    uid: str
    specs: tuple[VolumeSpec, ...] = ()
    waits: Mapping[str, Waits] = field(default_factory=dict)
    """Name of the pod's volume -> why it is not resolved."""
    ending: bool = False
    """Its containers have exited, and its volumes are to be torn down."""


class PodMount(HidesFields, Struct, frozen=True):
    """A volume that one pod has, or may have."""

    left: PublishedOnDisk
    state: Presence
    found: bool = False
    """A previous agent has left it."""
    published: Hidden[Published | None] = None
    at: float = 0.0
    """When it was last published, in event-loop time."""


class Volume(Struct, frozen=True):
    """The state of a volume on this node."""

    unique_name: str
    plugin: str
    pods: Mapping[str, PodMount] = field(default_factory=dict)
    """Pod uid -> its mount."""
    device: Presence = Presence.ABSENT
    staged: StagedOnDisk | None = None
    device_found: bool = False
    attachable: bool = False
    size: int = 0
    """Bytes; 0: unknown."""
    expanded_for: Expansion | None = None
    """The inputs of the last expansion; the same again would change nothing."""
    expansion_held: bool = False
    """Its driver expands it only while it is not in use."""


class Operation(Struct, frozen=True):
    """One operation to do, and why."""

    kind: OperationKind
    unique_name: str
    plugin: str
    reason: str
    pod_uid: str = ""
    """The pods that it is done for."""
    spec: VolumeSpec | None = None
    mount: PublishedOnDisk | None = None
    staged: StagedOnDisk | None = None
    whole: bool = True
    """It locks the whole volume, not only one pod's part of it."""

    @property
    def key(self) -> Key:
        """The lock that it holds while it runs."""
        return (self.unique_name, "" if self.whole else self.pod_uid)

    @property
    def call(self) -> str:
        """Its call, for people."""
        left = self.spec or self.mount or self.staged
        driver = left.driver if left is not None else ""
        if driver:
            return f"{_NAMES[self.kind].csi_call} of driver {driver}"
        name = left.spec_name if left is not None else self.unique_name
        export = f" ({self.spec.export})" if self.spec is not None and self.spec.export else ""
        return f'{_NAMES[self.kind].in_tree_call} of {self.plugin} volume "{name}"{export}'

    @property
    def metric_name(self) -> str:
        """Its name in metrics."""
        names, left = _NAMES[self.kind], self.spec or self.mount or self.staged
        block = left is not None and left.mode is Mode.BLOCK
        return names.block_metric if block else names.metric


class Failure(Struct, frozen=True):
    """The last attempt of an operation failed."""

    message: str
    call: str
    count: int
    """The number of consecutive failures."""
    retry_at: float
    """Event-loop time."""
    at: float = 0.0
    """Time of the first failure in this row, by the same clock."""
    fault: MachineFault | None = None


class Facts(Struct, frozen=True):
    """The inputs of a plan besides demands and existing volumes."""

    attachments: Mapping[str, Attached | Waits] = field(default_factory=dict)
    """Unique name -> its attachment; a volume without an entry needs none."""
    blocked: Mapping[str, Waits] = field(default_factory=dict)
    """Unique name -> why an operation would only fail now."""
    running: Mapping[Key, Operation] = field(default_factory=dict)
    failures: Mapping[tuple[OperationKind, Key], Failure] = field(default_factory=dict)
    republished: frozenset[str] = frozenset()
    """Unique names of volumes that need to be republished periodically."""
    leftovers_judged: bool = False
    """All pods of the node are known: volumes left staged by a previous agent belong to one or
    none.
    """


class OperationsPlan(Struct, frozen=True):
    """The operations to do now, and what all other volumes wait for."""

    operations: tuple[Operation, ...] = ()
    waits: Mapping[tuple[str, str], Waits] = field(default_factory=dict)
    """(pod uid, name of its volume) -> why it is not ready."""
    forgotten: tuple[str, ...] = ()
    """Unique names of volumes of which nothing is left."""
    next_at: float | None = None
    """When time alone will change the plan, in event-loop time."""
