"""What is wanted of volumes, what there is, and what can be done. Pure.

Source: docs/reference/behaviour-storage.md, sa1, sd1, sg.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kubeletpy.volumes.attach.attached import Attached
from kubeletpy.volumes.claims.model import Mode, VolumeSpec, Waits
from kubeletpy.volumes.on_disk import Published, PublishedOnDisk, StagedOnDisk


class Presence(StrEnum):
    """How sure we are that something is there."""

    ABSENT = "absent"
    UNCERTAIN = "uncertain"
    """It may be there: it is made again while wanted, and taken down when not."""
    THERE = "there"


class Kind(StrEnum):
    """What can be done to a volume."""

    STAGE = "stage"
    PUBLISH = "publish"
    REPUBLISH = "republish"
    EXPAND = "expand"
    UNPUBLISH = "unpublish"
    UNSTAGE = "unstage"


METRIC_NAMES = {
    Kind.STAGE: ("volume_mount", "map_volume"),
    Kind.PUBLISH: ("volume_mount", "map_volume"),
    Kind.REPUBLISH: ("volume_mount", "map_volume"),
    Kind.EXPAND: ("volume_fs_resize", "volume_fs_resize"),
    Kind.UNPUBLISH: ("volume_unmount", "unmap_volume"),
    Kind.UNSTAGE: ("unmount_device", "unmap_device"),
}
"""What metrics call them: of file systems, of block devices."""

_CSI_CALLS = {
    Kind.STAGE: "NodeStageVolume",
    Kind.PUBLISH: "NodePublishVolume",
    Kind.REPUBLISH: "NodePublishVolume",
    Kind.EXPAND: "NodeExpandVolume",
    Kind.UNPUBLISH: "NodeUnpublishVolume",
    Kind.UNSTAGE: "NodeUnstageVolume",
}
_IN_TREE_CALLS = {
    Kind.STAGE: "device mount",
    Kind.PUBLISH: "mount",
    Kind.REPUBLISH: "mount",
    Kind.EXPAND: "file system resize",
    Kind.UNPUBLISH: "unmount",
    Kind.UNSTAGE: "device unmount",
}

Expansion = tuple[int, int, str, str]
"""What an expansion depends on: bytes of the PersistentVolume, bytes that the claim shows, and what
the claim's status says of its resize."""

Key = tuple[str, str]
"""What an operation has to itself: unique name and pod uid; without a uid the whole volume."""


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What one pod wants."""

    uid: str
    specs: tuple[VolumeSpec, ...] = ()
    waits: Mapping[str, Waits] = field(default_factory=dict)
    """Name of the pod's volume -> why it is not resolved."""
    ending: bool = False
    """Its containers are gone, and what it has is to be taken down."""


@dataclass(frozen=True, slots=True)
class PodMount:
    """A volume as one pod has it, or may have it."""

    left: PublishedOnDisk
    state: Presence
    found: bool = False
    """An agent before this one has left it."""
    published: Published | None = field(default=None, repr=False)
    at: float = 0.0
    """When it was last published, by the event loop's clock."""


@dataclass(frozen=True, slots=True)
class Volume:
    """What there is of a volume on this node."""

    unique_name: str
    plugin: str
    pods: Mapping[str, PodMount] = field(default_factory=dict)
    """By pod uid."""
    device: Presence = Presence.ABSENT
    staged: StagedOnDisk | None = None
    device_found: bool = False
    attachable: bool = False
    size: int = 0
    """Bytes; 0: not known."""
    expanded_for: Expansion | None = None
    """With what it was last expanded; the same again would do nothing more."""
    expansion_held: bool = False
    """Its driver expands only what is not in use."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing to do, and why."""

    kind: Kind
    unique_name: str
    plugin: str
    reason: str
    pod_uid: str = ""
    """For whom it is done."""
    spec: VolumeSpec | None = None
    mount: PublishedOnDisk | None = None
    staged: StagedOnDisk | None = None
    size: int = 0
    whole: bool = True
    """It has the whole volume to itself, not only one pod's part of it."""

    @property
    def key(self) -> Key:
        """What it has to itself."""
        return (self.unique_name, "" if self.whole else self.pod_uid)

    @property
    def call(self) -> str:
        """What is called, for people."""
        left = self.spec or self.mount or self.staged
        driver = left.driver if left is not None else ""
        if driver:
            return f"{_CSI_CALLS[self.kind]} of driver {driver}"
        name = left.spec_name if left is not None else self.unique_name
        return f'{_IN_TREE_CALLS[self.kind]} of {self.plugin} volume "{name}"'

    @property
    def metric_name(self) -> str:
        """What metrics call it."""
        left = self.spec or self.mount or self.staged
        block = left is not None and left.mode is Mode.BLOCK
        return METRIC_NAMES[self.kind][block]


@dataclass(frozen=True, slots=True)
class Failure:
    """The last try of an operation failed."""

    message: str
    call: str
    count: int
    """How often in a row."""
    retry_at: float
    """By the event loop's clock."""
    at: float = 0.0
    """When it failed first in this row, by the same clock."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a plan is made from besides demands and what there is."""

    attachments: Mapping[str, Attached | Waits] = field(default_factory=dict)
    """By unique name; one that is missing here needs no attachment."""
    blocked: Mapping[str, Waits] = field(default_factory=dict)
    """Unique name -> why an operation would only fail now."""
    running: Mapping[Key, Operation] = field(default_factory=dict)
    failures: Mapping[tuple[Kind, Key], Failure] = field(default_factory=dict)
    republished: frozenset[str] = frozenset()
    """Unique names of volumes that want to be published again now and then."""
    leftovers_judged: bool = False
    """All pods of the node are known: what an agent before left staged belongs to one or none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and what the rest waits for."""

    operations: tuple[Operation, ...] = ()
    waits: Mapping[tuple[str, str], Waits] = field(default_factory=dict)
    """(pod uid, name of its volume) -> why it is not there."""
    forgotten: tuple[str, ...] = ()
    """Unique names of volumes of which nothing is left."""
    next_at: float | None = None
    """When a plan will differ by time alone, by the event loop's clock."""
