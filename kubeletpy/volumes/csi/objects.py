"""CSI in names and API objects: paths of volumes, CSIDriver, CSINode, versions.

Pure. Paths are the kubelet's, so that nodes can switch both ways. Names come from the API and from
drivers: a name that could lead elsewhere is refused. Source: docs/reference/behaviour-storage.md,
sc1, sc2, sc3, si1, sj, sl, sm2, sp1, sr2.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from enum import StrEnum
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.volumes.files.paths import safe_name

PLUGIN = "kubernetes.io/csi"
DIRECTORY = "kubernetes.io~csi"
DATA_FILE = "vol_data.json"
PERSISTENT, EPHEMERAL = "Persistent", "Ephemeral"


def inline_handle(pod_uid: str, volume: str) -> str:
    """The handle of a volume that is inline in the pod's spec."""
    return f"csi-{_sha256(pod_uid + volume)}"


def unique_name(driver: str, handle: str) -> str:
    """The unique name of a volume that outlives pods."""
    return f"{PLUGIN}/{driver}^{handle}"


def inline_unique_name(pod_uid: str, volume: str) -> str:
    """The unique name of a volume of one pod."""
    return f"{PLUGIN}/{pod_uid}-{volume}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _part(name: str) -> str:
    return safe_name(name.replace("/", "~"))


class MountPaths(Struct, frozen=True):
    """The paths of a volume in one pod, or staged on the node."""

    directory: str
    name: str
    """Where the driver mounts it, below ``directory``."""

    @property
    def target(self) -> str:
        """Where the driver mounts it."""
        return f"{self.directory}/{self.name}"

    @property
    def data(self) -> str:
        """The path of its vol_data.json."""
        return f"{self.directory}/{DATA_FILE}"


class BlockPaths(Struct, frozen=True):
    """The paths of a block volume on the node and in its pods."""

    directory: str
    """``{root}/plugins/kubernetes.io/csi/volumeDevices``"""
    name: str

    @property
    def staging(self) -> str:
        """Where the driver stages it."""
        return f"{self.directory}/staging/{self.name}"

    @property
    def publish_dir(self) -> str:
        """Where the driver publishes it to pods."""
        return f"{self.directory}/publish/{self.name}"

    def publish(self, pod_uid: str) -> str:
        """Where the driver publishes it to one pod."""
        return f"{self.publish_dir}/{safe_name(pod_uid)}"

    @property
    def top(self) -> str:
        """The directory of its files."""
        return f"{self.directory}/{self.name}"

    @property
    def map_dir(self) -> str:
        """Where its device is bound for pods."""
        return f"{self.top}/dev"

    def map(self, pod_uid: str) -> str:
        """The device bound for one pod."""
        return f"{self.map_dir}/{safe_name(pod_uid)}"

    @property
    def data(self) -> str:
        """The path of its vol_data.json."""
        return f"{self.top}/data/{DATA_FILE}"


class CsiPaths(Struct, frozen=True):
    """All paths below the kubelet's root directory. Each raises UnsafePath."""

    root: str

    @property
    def staging_root(self) -> str:
        """The directory of staged volumes, by driver, and of block volumes."""
        return f"{self.root}/plugins/{PLUGIN}"

    @property
    def block_root(self) -> str:
        """The directory of block volumes."""
        return f"{self.staging_root}/volumeDevices"

    @property
    def pods(self) -> str:
        """The directory of all pods."""
        return f"{self.root}/pods"

    def filesystem(self, pod_uid: str, spec_name: str) -> MountPaths:
        """The paths of a volume in a pod's directory."""
        pod = f"{self.pods}/{safe_name(pod_uid)}"
        return MountPaths(f"{pod}/volumes/{DIRECTORY}/{_part(spec_name)}", "mount")

    def staging(self, driver: str, handle: str) -> MountPaths:
        """The paths of a volume staged on the node."""
        directory = f"{self.staging_root}/{safe_name(driver)}/{_sha256(handle)}"
        return MountPaths(directory, "globalmount")

    def block(self, spec_name: str) -> BlockPaths:
        """The paths of a block volume."""
        return BlockPaths(self.block_root, _part(spec_name))

    def block_link(self, pod_uid: str, spec_name: str) -> str:
        """The link through which a pod's containers get their device."""
        pod = f"{self.pods}/{safe_name(pod_uid)}"
        return f"{pod}/volumeDevices/{DIRECTORY}/{_part(spec_name)}"


# The CSIDriver object: how a driver's volumes are handled (tables sl, sp1). It is optional.

TOKEN_SECONDS = 3600
"""For a token without a requested lifetime: the API's default."""
SHORTEST_PERIOD_S = 10.0


class GroupPolicy(StrEnum):
    """Policy that determines who applies the pod's fsGroup to a volume, and when."""

    READ_WRITE_ONCE_WITH_FS_TYPE = "ReadWriteOnceWithFSType"
    FILE = "File"
    NONE = "None"


_POLICIES: Mapping[str, GroupPolicy] = {policy.value: policy for policy in GroupPolicy}


class TokenRequest(Struct, frozen=True):
    """A service account's token that a driver requests for each pod."""

    audience: str
    """Empty: the API server's own."""
    seconds: int


class DriverObject(Struct, frozen=True):
    """A CSIDriver; default values stand for a missing object."""

    attach_required: bool = True
    pod_info: bool = False
    lifecycles: frozenset[str] = frozenset({PERSISTENT})
    group_policy: GroupPolicy | None = GroupPolicy.READ_WRITE_ONCE_WITH_FS_TYPE
    """None: the object has no known one."""
    tokens: tuple[TokenRequest, ...] = ()
    tokens_in_secrets: bool = False
    republish: bool = False
    selinux_mount: bool = False
    allocatable_period: float | None = None
    """Seconds between queries for the number of volumes that fit."""


ABSENT = DriverObject()


def read(found: Mapping[str, Any] | None) -> DriverObject:
    """A CSIDriver from the API's object."""
    if found is None:
        return ABSENT
    spec = found.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    policy = spec.get("fsGroupPolicy")
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    return DriverObject(
        attach_required=spec.get("attachRequired") is not False,
        pod_info=spec.get("podInfoOnMount") is True,
        lifecycles=frozenset(_texts(spec.get("volumeLifecycleModes"))) or ABSENT.lifecycles,
        group_policy=_POLICIES.get(policy) if isinstance(policy, str) else None,
        tokens=tuple(_tokens(spec.get("tokenRequests"))),
        tokens_in_secrets=spec.get("serviceAccountTokenInSecrets") is True,
        republish=spec.get("requiresRepublish") is True,
        selinux_mount=spec.get("seLinuxMount") is True,
        allocatable_period=max(float(period), SHORTEST_PERIOD_S)
        if isinstance(period, int) and period > 0
        else None,
    )


def gives_to_group(
    policy: GroupPolicy | None, *, fs_type: str, inline: bool, access_modes: tuple[str, ...]
) -> bool:
    """Whether the agent applies the pod's fsGroup to a volume (table sp1)."""
    if policy is not GroupPolicy.READ_WRITE_ONCE_WITH_FS_TYPE:
        return policy is GroupPolicy.FILE
    single = {"ReadWriteOnce", "ReadWriteOncePod"} & set(access_modes)
    return bool(fs_type) and (inline or bool(single))


def lifecycle_problem(driver: str, desired: DriverObject, *, inline: bool) -> str:
    """Why a volume of this kind is rejected; empty: it is not."""
    mode = EPHEMERAL if inline else PERSISTENT
    if mode in desired.lifecycles:
        return ""
    if not inline:
        return f"volume mode {mode!r} not supported by driver {driver}"
    hint = "its CSIDriver object does not list it in volumeLifecycleModes"
    return f"volume mode {mode!r} not supported by driver {driver} ({hint})"


def _texts(found: Any) -> list[str]:
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _tokens(found: Any) -> list[TokenRequest]:
    desired = []
    for each in found if isinstance(found, list) else []:
        if isinstance(each, Mapping):
            seconds = each.get("expirationSeconds")
            life = seconds if isinstance(seconds, int) and seconds > 0 else TOKEN_SECONDS
            desired.append(TokenRequest(str(each.get("audience") or ""), life))
    return desired


# The node's drivers as the cluster reads them: CSINode, an annotation, labels (tables sc2, sm2).

ANNOTATION = "csi.volume.kubernetes.io/nodeid"
MIGRATED_ANNOTATION = "storage.alpha.kubernetes.io/migrated-plugins"
MIGRATED = ",".join(
    sorted(
        f"kubernetes.io/{kind}"
        for kind in (
            "aws-ebs",
            "azure-disk",
            "azure-file",
            "cinder",
            "gce-pd",
            "portworx-volume",
            "vsphere-volume",
        )
    )
)
NOT_INITIALIZED = "CSINode is not yet initialized"


class NodeObjectConflict(Exception):
    """An object of the API cannot be updated as needed; the text contains the reason."""


class DriverOnNode(Struct, frozen=True):
    """One driver, as reported to the cluster."""

    name: str
    node_id: str
    max_volumes: int | None
    topology: Mapping[str, str]

    def entry(self) -> JSON:
        """Its entry in CSINode."""
        made: JSON = {
            "name": self.name,
            "nodeID": self.node_id,
            "topologyKeys": sorted(self.topology),
        }
        if self.max_volumes is not None:
            made["allocatable"] = {"count": self.max_volumes}
        return made


def node_patch(
    node: Mapping[str, Any],
    present: Mapping[str, DriverOnNode],
    removed: Set[str],
    subject: str = "",
) -> JSON | None:
    """The changes of the Node object for its drivers; None: nothing to change.

    ``subject`` is the driver that registers. Raises NodeObjectConflict: a label that it needs
    already has another value. Conflicts of other drivers are left alone.
    """
    metadata = node.get("metadata") or {}
    ids = _ids((metadata.get("annotations") or {}).get(ANNOTATION))
    desired = {name: node_id for name, node_id in ids.items() if name not in removed}
    desired |= {driver.name: driver.node_id for driver in present.values()}
    have = metadata.get("labels") or {}
    labels: dict[str, str] = {}
    for driver in present.values():
        for key, value in driver.topology.items():
            other = have.get(key, labels.get(key, value))
            if other == value:
                labels[key] = value
            elif driver.name == subject:
                raise NodeObjectConflict(
                    f"detected topology value collision: driver {driver.name} reported "
                    f"{key!r}:{value!r} but existing label is {key!r}:{other!r}"
                )
    labels = {key: value for key, value in labels.items() if key not in have}
    patch: JSON = {}
    if desired != ids:
        text = json.dumps(desired, separators=(",", ":"), sort_keys=True) if desired else None
        patch["annotations"] = {ANNOTATION: text}
    if labels:
        patch["labels"] = labels
    return {"metadata": patch} if patch else None


def new_csi_node(name: str, uid: str, present: Mapping[str, DriverOnNode]) -> JSON:
    """The CSINode for a node that has none."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": name,
            "annotations": {MIGRATED_ANNOTATION: MIGRATED},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}],
        },
        "spec": {"drivers": [driver.entry() for driver in present.values()]},
    }


def owned_by(csi_node: JSON, uid: str) -> bool:
    """Whether a CSINode belongs to this Node object, and not to one that was deleted."""
    owners = (csi_node.get("metadata") or {}).get("ownerReferences") or []
    nodes = [owner for owner in owners if isinstance(owner, dict) and owner.get("kind") == "Node"]
    return not nodes or any(owner.get("uid") == uid for owner in nodes)


def changed_csi_node(
    found: JSON, present: Mapping[str, DriverOnNode], removed: Set[str]
) -> JSON | None:
    """The CSINode updated to the current drivers; None when nothing changes.

    Entries of drivers in neither ``present`` nor ``removed`` stay: they have not registered yet.
    """
    entries = [e for e in (found.get("spec") or {}).get("drivers") or [] if isinstance(e, dict)]
    by_name: dict[Any, JSON] = {entry.get("name"): entry for entry in entries}
    new = {driver.name: driver.entry() for driver in present.values()}
    changed = {name for name, entry in new.items() if _differs(by_name.get(name), entry)}
    kept = [e for e in entries if e.get("name") not in removed | changed]
    drivers = [*kept, *(new[name] for name in new if name in changed)]
    metadata = found.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if drivers == entries and annotations.get(MIGRATED_ANNOTATION) == MIGRATED:
        return None
    return {
        **found,
        "metadata": {**metadata, "annotations": {**annotations, MIGRATED_ANNOTATION: MIGRATED}},
        "spec": {**(found.get("spec") or {}), "drivers": drivers},
    }


def _differs(have: JSON | None, desired: JSON) -> bool:
    if have is None:
        return True
    same = {"name": have.get("name"), "nodeID": have.get("nodeID")}
    same["topologyKeys"] = sorted(have.get("topologyKeys") or [])
    if have.get("allocatable"):
        same["allocatable"] = have["allocatable"]
    return same != desired


def _ids(text: Any) -> dict[str, str]:
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}


# The health of drivers' storage in a CSINode's status (table sr2).

Conditions = Sequence[JSON]
"""StorageHealthConditions: status, reason, message, accessMode, volumeMode, lastTransitionTime."""


def changed_storage_health(
    old: Sequence[JSON], reported: Mapping[str, Conditions], now: str
) -> list[JSON] | None:
    """``status.storageHealth`` with the drivers' new reports; None: nothing is to be written.

    A report counts only if its set of (status, reason, modes) is another one: messages alone change
    nothing. A condition that stays keeps its time, and a driver without conditions has no entry.

    Args:
        old: the entries of the CSINode.
        reported: the conditions of each driver that has answered, without times.
        now: the time of new conditions.
    """
    entries = {entry.get("name") or "": entry for entry in old}
    changed = False
    for driver, conditions in reported.items():
        since = {
            identity(each): each.get("lastTransitionTime")
            for each in entries.get(driver, {}).get("healthConditions") or ()
        }
        if since.keys() == {identity(each) for each in conditions}:
            continue
        changed = True
        entries.pop(driver, None)
        if conditions:
            timed = [
                {**each, "lastTransitionTime": since.get(identity(each)) or now}
                for each in conditions
            ]
            entries[driver] = {"name": driver, "healthConditions": timed}
    return list(entries.values()) if changed else None


def identity(condition: JSON) -> tuple[str, ...]:
    """The fields that identify a condition: all but its message and its time."""
    fields = ("status", "reason", "accessMode", "volumeMode")
    return tuple(str(condition.get(field) or "") for field in fields)


Version = tuple[int, ...]
_VERSION = re.compile(r"\s*v?(\d{1,9}(?:\.\d{1,9}){1,8})(?:[-+].*)?\s*", re.ASCII)


def highest_supported(versions: Iterable[str]) -> Version | None:
    """The highest 1.x among the versions that a driver offers; None: there is none.

    Unreadable versions are skipped.
    """
    read = (_VERSION.fullmatch(text) for text in versions)
    numbers = (tuple(map(int, match[1].split("."))) for match in read if match is not None)
    return max((version for version in numbers if version[0] == 1), default=None)
