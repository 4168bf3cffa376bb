"""The data of volume operations: desired and existing volumes, operations, failures. Pure.

A previous agent's volumes, and names that are spelled in two ways, are brought into that form here.
Source: docs/reference/behaviour-storage.md, sa1, sc1, sd1, sd2, se2, sg, sn1, sq, ss, sv;
kubernetes/kubelet 39.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from kubeletpy.base.host.errors import Cause, cause_of
from kubeletpy.base.structs import Hidden, HidesFields, Struct, field, replace
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.claims.resolve import Attached, not_in_use_yet, volumes_in_use


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
    specs: tuple[claims.VolumeSpec, ...] = ()
    waits: Mapping[str, claims.Waits] = field(default_factory=dict)
    """Name of the pod's volume -> why it is not resolved."""
    ending: bool = False
    """Its containers have exited, and its volumes are to be torn down."""


class PodMount(HidesFields, Struct, frozen=True):
    """A volume that one pod has, or may have."""

    left: claims.PublishedOnDisk
    state: Presence
    found: bool = False
    """A previous agent has left it."""
    published: Hidden[claims.Published | None] = None
    at: float = 0.0
    """When it was last published, in event-loop time."""


class Volume(Struct, frozen=True):
    """The state of a volume on this node."""

    unique_name: str
    plugin: str
    pods: Mapping[str, PodMount] = field(default_factory=dict)
    """Pod uid -> its mount."""
    device: Presence = Presence.ABSENT
    staged: claims.StagedOnDisk | None = None
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
    spec: claims.VolumeSpec | None = None
    mount: claims.PublishedOnDisk | None = None
    staged: claims.StagedOnDisk | None = None
    whole: bool = True
    """It locks the whole volume, not only one pod's part of it."""

    @property
    def key(self) -> Key:
        """The lock that it holds while it runs."""
        return (self.unique_name, "" if self.whole else self.pod_uid)

    @property
    def about(self) -> claims.VolumeSpec | claims.PublishedOnDisk | claims.StagedOnDisk | None:
        """The volume that it makes, or tears down."""
        return self.spec or self.mount or self.staged

    @property
    def driver(self) -> str:
        """The CSI driver; empty for other kinds."""
        return self.about.driver if self.about is not None else ""

    @property
    def call(self) -> str:
        """Its call, for people."""
        left = self.about
        if self.driver:
            return f"{_NAMES[self.kind].csi_call} of driver {self.driver}"
        name = left.spec_name if left is not None else self.unique_name
        export = f" ({self.spec.export})" if self.spec is not None and self.spec.export else ""
        return f'{_NAMES[self.kind].in_tree_call} of {self.plugin} volume "{name}"{export}'

    @property
    def metric_name(self) -> str:
        """Its name in metrics."""
        names, left = _NAMES[self.kind], self.about
        block = left is not None and left.mode is claims.Mode.BLOCK
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
    cause: Cause | None = None


class Facts(Struct, frozen=True):
    """The inputs of a plan besides demands and existing volumes."""

    attachments: Mapping[str, Attached | claims.Waits] = field(default_factory=dict)
    """Unique name -> its attachment; a volume without an entry needs none."""
    blocked: Mapping[str, claims.Waits] = field(default_factory=dict)
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
    waits: Mapping[tuple[str, str], claims.Waits] = field(default_factory=dict)
    """(pod uid, name of its volume) -> why it is not ready."""
    forgotten: tuple[str, ...] = ()
    """Unique names of volumes of which nothing is left."""
    next_at: float | None = None
    """When time alone will change the plan, in event-loop time."""


# When failed operations may be retried (table sd2).

FIRST_MS = 500
LAST_MS = 122_000

Tried = tuple[OperationKind, Key]


class Backoffs:
    """Failures of operations, by operation and its key."""

    def __init__(self) -> None:
        self.failures: dict[Tried, Failure] = {}
        self._drivers: dict[Tried, str] = {}

    def ended(self, kind: OperationKind, key: Key) -> Failure | None:
        """An operation ended, which resets the back-off of others; returns its previous failure."""
        before = self.failures.get((kind, key))
        for each in OperationKind:
            self.failures.pop((each, key), None)
            self._drivers.pop((each, key), None)
        return before

    def failed(self, tried: Tried, error: claims.OperationFailed, driver: str, now: float) -> None:
        """An operation ended and failed; ``now`` is event-loop time."""
        before = self.ended(*tried)
        count = before.count if before is not None else 0
        since = before.at if before is not None else now
        wait = min(FIRST_MS << count, LAST_MS) / 1000
        cause = cause_of(error)
        self.failures[tried] = Failure(
            error.message, error.call, count + 1, now + wait, since, cause
        )
        self._drivers[tried] = driver

    def driver_changed(self, driver: str) -> None:
        """Allow immediate retries of a driver's failures (empty: any driver's)."""
        for tried, of in list(self._drivers.items()):
            if not driver or of == driver:
                self.failures.pop(tried, None)
                self._drivers.pop(tried)

    def of_unpublish(self, uid: str) -> Failure | None:
        """Why a pod's volume could not be unpublished."""
        for (kind, (_, of)), failure in self.failures.items():
            if kind is OperationKind.UNPUBLISH and of == uid:
                return failure
        return None


# Unique names of one volume that are spelled in two ways (tables sc1, sq).
#
# On disk, the portal of an iSCSI volume always has its port, and names of Fibre Channel disks have
# underscores for blanks and dashes between them. The kubelet treats them as two volumes.

_ISCSI = re.compile(r"(kubernetes\.io/iscsi/)(.+?):((?:iqn|eui|naa)\..+)")
_FC = re.compile(r"(kubernetes\.io/fc/\[)([^\]]*)(\].*)")
_BETWEEN = re.compile(r"[ -]")
_HAS_PORT = re.compile(r"(\[.*\]|[^\[\]]*):[0-9]+")


def canonical(unique_name: str) -> str:
    """A key that is equal for all spellings of a name."""
    if (found := _ISCSI.fullmatch(unique_name)) is not None:
        portal = found[2] if _HAS_PORT.fullmatch(found[2]) else f"{found[2]}:3260"
        return f"{found[1]}{portal}:{found[3]}"
    if (found := _FC.fullmatch(unique_name)) is not None:
        return f"{found[1]}{_BETWEEN.sub('_', found[2])}{found[3]}"
    return unique_name


def spelled(
    actual: Mapping[str, Volume], names: Collection[str], busy: Collection[str] = ()
) -> dict[str, Volume]:
    """All known volumes, renamed to the spelling in ``names``.

    ``busy``: names with operations in progress; they stay.
    """
    desired = {canonical(name): name for name in names if name not in actual}
    there = {}
    for name, volume in actual.items():
        new = desired.get(canonical(name), name)
        free = name not in names and name not in busy
        there[new if free else name] = _renamed(volume, new) if free and new != name else volume
    return there


def _renamed(volume: Volume, name: str) -> Volume:
    pods = {
        uid: replace(mount, left=replace(mount.left, unique_name=name))
        for uid, mount in volume.pods.items()
    }
    staged = replace(volume.staged, unique_name=name) if volume.staged is not None else None
    return replace(volume, unique_name=name, pods=pods, staged=staged)


# Volumes left by a previous agent (table sn1). Nothing found is certain: that agent may have been
# killed at any instant.


def reconstructed(
    actual: Mapping[str, Volume], plugin: str, found: claims.Found
) -> dict[str, Volume]:
    """All known volumes, with those that one plugin has found."""
    there = dict(actual)
    for left in found.published:
        volume = there.get(left.unique_name) or Volume(left.unique_name, plugin)
        pods = {**volume.pods, left.pod_uid: PodMount(left, Presence.UNCERTAIN, found=True)}
        there[left.unique_name] = replace(volume, pods=pods)
    for staged in found.staged:
        volume = there.get(staged.unique_name) or Volume(staged.unique_name, plugin)
        there[staged.unique_name] = replace(
            volume, device=Presence.UNCERTAIN, staged=staged, device_found=True
        )
    return there


def recognized(
    actual: Mapping[str, Volume], mount: claims.PublishedOnDisk, staged: claims.StagedOnDisk
) -> dict[str, Volume]:
    """All known volumes, when a pod needs the volume that has, or will have, these paths.

    An agent that died before it had recorded which volume it was about to publish or stage leaves
    an anonymous directory. Once the volume is known, the directory belongs to it: it must not be
    torn down under two names.
    """
    there, uid = dict(actual), mount.pod_uid
    for name, before in actual.items():
        if name == mount.unique_name:
            continue
        volume = before
        own = there.get(mount.unique_name) or Volume(mount.unique_name, volume.plugin)
        pods = dict(volume.pods)
        left = pods.get(uid)
        if left is not None and left.found and left.left.damaged and left.left.path == mount.path:
            del pods[uid]
            there[name] = volume = replace(volume, pods=pods)
            if uid not in own.pods:
                found = PodMount(mount, Presence.UNCERTAIN, found=True)
                own = replace(own, pods={**own.pods, uid: found})
            there[own.unique_name] = own
        device = volume.staged if volume.device_found else None
        if device is not None and device.damaged and device.path == staged.path:
            there[name] = replace(volume, device=Presence.ABSENT, staged=None, device_found=False)
            if own.device is Presence.ABSENT:
                own = replace(own, device=Presence.UNCERTAIN, staged=staged, device_found=True)
            there[own.unique_name] = own
    return there


class InUse:
    """``volumesInUse`` of this node: what was reported, what must be, what that delays.

    A volume leaves the list only when nothing of it is left here: the controller detaches unlisted
    volumes even if they are mounted (tables se2, sv).
    """

    def __init__(self) -> None:
        self._listed: list[str] | None = None
        self._sent: frozenset[str] = frozenset()
        """The list of the newest write, whatever became of it."""
        self._surely: frozenset[str] | None = None
        """The volumes in every list that the API may have by now; None: nothing was written yet."""

    def report(self) -> list[str] | None:
        """For the next status update of the node; None: not known yet, the API's list stays."""
        if self._listed is None:
            return None
        self._sent = frozenset(self._listed)
        self._surely = self._sent if self._surely is None else self._surely & self._sent
        return list(self._listed)

    def written(self) -> bool:
        """The API has the list that was reported last; returns whether that makes volumes usable.

        A write that failed may have been done: until the next one has succeeded, the API may have
        either list.
        """
        more = self._surely is not None and self._surely != self._sent
        self._surely = self._sent
        return more

    def unreported(self, spec: claims.VolumeSpec) -> claims.Waits | None:
        """Why an attachable volume must not be used yet; None: it may be used.

        The API may still show it as in use while a status without it is on its way, or has arrived
        unseen.
        """
        if not spec.attachable or self._surely is None or spec.unique_name in self._surely:
            return None
        return not_in_use_yet(f'volume "{spec.unique_name}"')

    def update(
        self,
        demands: Iterable[PodDemand],
        actual: Mapping[str, Volume],
        running: Iterable[Operation],
    ) -> bool:
        """Compute the list again; whether it has changed."""
        desired = (spec for each in demands for spec in each.specs)
        there = {name for name, volume in actual.items() if volume.attachable}
        worked_on = {each.unique_name for each in running if each.spec and each.spec.attachable}
        listed = volumes_in_use(desired, there | worked_on)
        changed = listed != self._listed
        self._listed = listed
        return changed


def attachable_as_reported(
    demands: Iterable[PodDemand], actual: Mapping[str, Volume], reported: frozenset[str]
) -> dict[str, Volume]:
    """Volumes found on disk that the API shows in use are attached; returns those that change.

    For volumes that a pod needs, the API object decides: a driver may no longer need attaching, and
    the controller detaches only unlisted volumes.
    """
    known = {spec.unique_name for each in demands for spec in each.specs}
    return {
        name: replace(actual[name], attachable=True)
        for name in (reported & actual.keys()) - known
        if not actual[name].attachable
    }
