"""The node's CSI drivers as the cluster reads them: the CSINode object, an annotation, labels.

Pure. Source: docs/reference/behaviour-storage.md, sm2, sc2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct

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
    node: Mapping[str, Any], present: Mapping[str, DriverOnNode], gone: Set[str], subject: str = ""
) -> JSON | None:
    """The changes of the Node object for its drivers; None: nothing to change.

    ``subject`` is the driver that registers. Raises NodeObjectConflict: a label that it needs
    already has another value. Conflicts of other drivers are left alone.
    """
    metadata = node.get("metadata") or {}
    ids = _ids((metadata.get("annotations") or {}).get(ANNOTATION))
    wanted = {name: node_id for name, node_id in ids.items() if name not in gone}
    wanted |= {driver.name: driver.node_id for driver in present.values()}
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
    if wanted != ids:
        text = json.dumps(wanted, separators=(",", ":"), sort_keys=True) if wanted else None
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
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid},
            ],
        },
        "spec": {"drivers": [driver.entry() for driver in present.values()]},
    }


def owned_by(csi_node: JSON, uid: str) -> bool:
    """Whether a CSINode belongs to this Node object, and not to one that was deleted."""
    owners = (csi_node.get("metadata") or {}).get("ownerReferences") or []
    nodes = [owner for owner in owners if isinstance(owner, dict) and owner.get("kind") == "Node"]
    return not nodes or any(owner.get("uid") == uid for owner in nodes)


def changed_csi_node(
    found: JSON, present: Mapping[str, DriverOnNode], gone: Set[str]
) -> JSON | None:
    """The CSINode updated to the current drivers; None when nothing changes.

    Entries of drivers in neither ``present`` nor ``gone`` stay: they have not registered yet.
    """
    entries = [e for e in (found.get("spec") or {}).get("drivers") or [] if isinstance(e, dict)]
    by_name: dict[Any, JSON] = {entry.get("name"): entry for entry in entries}
    new = {driver.name: driver.entry() for driver in present.values()}
    changed = {name for name, entry in new.items() if _differs(by_name.get(name), entry)}
    kept = [e for e in entries if e.get("name") not in gone | changed]
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


def _differs(have: JSON | None, want: JSON) -> bool:
    if have is None:
        return True
    same = {"name": have.get("name"), "nodeID": have.get("nodeID")}
    same["topologyKeys"] = sorted(have.get("topologyKeys") or [])
    if have.get("allocatable"):
        same["allocatable"] = have["allocatable"]
    return same != want


def _ids(text: Any) -> dict[str, str]:
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}
